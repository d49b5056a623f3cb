"""Weights of learned peers: safetensors files in a folder that the caller names. No pickle is ever loaded.

A peer class with weights states two constants and takes the folder as its first argument:

    class SpinNet:
        SOURCE = "SpinNet's weights, github QingyongHu/SpinNet, MIT, converted to safetensors"
        FILES = ("spinnet-3dmatch.safetensors",)

        def __init__(self, weights: Path) -> None:
            self.network = load_network(_Network(), weights, self.FILES[0], self.SOURCE, prefix="module.")
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

from torch import Tensor, nn

from wsdesc.peers.base import PeerUnavailableError


class WeightedPeer(Protocol):
    """Constants of the class of a peer with weights."""

    SOURCE: ClassVar[str]  # one line: whose weights, from where, under which licence
    FILES: ClassVar[tuple[str, ...]]  # names of the files in the folder of weights


Network = TypeVar("Network", bound=nn.Module)


def find_files(folder: str | Path | None, peer: type[WeightedPeer]) -> list[Path]:
    """Find the weight files of a peer class.

    Raises:
        PeerUnavailableError: No folder is given, or a file is missing.
    """
    if folder is None:
        raise PeerUnavailableError(
            f"{peer.__name__} needs weights: pass the folder that holds {', '.join(peer.FILES)} as "
            f"weights=DIR or --peer-weights DIR ({peer.SOURCE})"
        )
    paths = [Path(folder) / file for file in peer.FILES]
    for path in paths:
        if not path.is_file():
            raise PeerUnavailableError(f"{path}: no such file ({peer.SOURCE})")
    return paths


def fingerprint(folder: str | Path | None, peer: type[WeightedPeer]) -> str:
    """Return the names and content hashes of a peer's weight files in one line."""
    return ", ".join(
        f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
        for path in find_files(folder, peer)
    )


def read_tensors(folder: str | Path, file: str, source: str) -> dict[str, Tensor]:
    """Read all tensors of a safetensors file.

    Args:
        folder: Folder of weights.
        file: File name in the folder.
        source: Origin of the weights in one line; part of error messages.

    Raises:
        PeerUnavailableError: The file is missing or not a safetensors file.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = Path(folder) / file
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise PeerUnavailableError(f"{path}: cannot be read: {reason} ({source})") from error
    except (SafetensorError, ValueError, KeyError) as error:
        raise PeerUnavailableError(
            f"{path}: not a safetensors file; pickles are not loaded ({source})"
        ) from error
    return tensors


def load_network(
    network: Network,
    folder: str | Path,
    file: str,
    source: str,
    *,
    prefix: str = "",
    leftovers: Collection[str] = (),
) -> Network:
    """Load a file of weights into a network, check every tensor, and freeze the network for inference.

    Args:
        network: Module whose state has the file's names, apart from `prefix`.
        folder: Folder of weights.
        file: File name in the folder.
        source: Origin of the weights in one line.
        prefix: Start of all names in the file, which the network's names lack.
        leftovers: Starts of names, without `prefix`, that the file may hold and the network does not use.

    Returns:
        The network, in evaluation mode, without gradients.

    Raises:
        PeerUnavailableError: A tensor is missing, unknown, not finite, or has a wrong shape.
    """
    path = Path(folder) / file
    tensors = {
        name.removeprefix(prefix): tensor for name, tensor in read_tensors(folder, file, source).items()
    }
    state = network.state_dict()
    # Counters of batch normalisation have no influence on inference.
    needed = {name: tensor for name, tensor in state.items() if not name.endswith("num_batches_tracked")}
    for name, tensor in needed.items():
        expected = tuple(tensor.shape)
        if name not in tensors:
            raise PeerUnavailableError(f"{path}: no tensor {name}, expected shape {expected} ({source})")
        shape = tuple(tensors[name].shape)
        if shape != expected:
            raise PeerUnavailableError(f"{path}: {name} has shape {shape}, expected {expected} ({source})")
        if not bool(tensors[name].isfinite().all()):
            raise PeerUnavailableError(f"{path}: {name} has values that are not finite ({source})")
    ignored = (*leftovers, *(name for name in tensors if name.endswith("num_batches_tracked")))
    for name in tensors:
        if name not in needed and not name.startswith(tuple(ignored)):
            raise PeerUnavailableError(f"{path}: unknown tensor {name} ({source})")
    network.load_state_dict(state | {name: tensors[name] for name in needed})
    return network.eval().requires_grad_(False)
