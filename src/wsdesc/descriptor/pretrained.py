"""Weights on disk: safetensors with the descriptor's options in the header. No pickle is ever loaded."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.descriptor.options import DescriptorOptions

if TYPE_CHECKING:
    from torch import Tensor

_HEADER = "wsdesc"
_FOLDER = Path(__file__).parent / "weights"


def available() -> list[str]:
    """Names of the weights that come with the package."""
    return sorted(path.stem for path in _FOLDER.glob("*.safetensors"))


def find(name_or_path: str | Path) -> Path:
    """The file of weights that come with the package, or a path to others."""
    packaged = _FOLDER / f"{name_or_path}.safetensors"
    path = packaged if str(name_or_path) in available() else Path(name_or_path)
    if not os.path.isfile(path):  # noqa: PTH113 - the other one raises below a closed folder
        names = ", ".join(available()) or "none yet"
        raise FileFormatError(f"{name_or_path}: neither a file nor weights of this package ({names})")
    return path


def save(path: str | Path, options: DescriptorOptions, tensors: dict[str, Tensor]) -> None:
    """Write weights and options to `path`, whole or not at all."""
    save_tensors(path, tensors, {_HEADER: options.model_dump_json()})


def save_tensors(path: str | Path, tensors: dict[str, Tensor], header: dict[str, str]) -> None:
    """Write tensors and texts as safetensors, whole or not at all."""
    from safetensors.torch import save as as_bytes

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # The library's own `save_file` makes one more temporary file, which a kill leaves behind, and a result
    # that nobody but its owner may read.
    content = as_bytes(tensors, header)
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


def load(path: str | Path) -> tuple[DescriptorOptions, dict[str, Tensor]]:
    """Read options and weights; a file that is anything else is refused with a reason."""
    import torch
    from safetensors import SafetensorError, safe_open

    numbers = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64)
    try:
        with safe_open(str(path), framework="pt") as file:
            header = (file.metadata() or {}).get(_HEADER)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RuntimeError, AttributeError) as error:
        # The last two are for types of numbers that this torch does not have.
        raise FileFormatError(f"{path}: not a safetensors file ({error}); pickles are not loaded") from error
    if header is None:
        raise FileFormatError(f"{path}: its header does not describe a WSDesc model")
    try:
        options = DescriptorOptions.read(json.loads(header))
    except (ValueError, TypeError, InputError, RecursionError) as error:
        raise FileFormatError(f"{path}: its header cannot be read ({error})") from error
    for name, tensor in tensors.items():
        if tensor.dtype not in numbers:
            raise FileFormatError(f"{path}: {name} is not made of ordinary numbers but of {tensor.dtype}")
        if not bool(torch.isfinite(tensor).all()):
            raise FileFormatError(f"{path}: {name} has values that are not finite")
    return options, tensors


def check_fit(path: str | Path, expected: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors that are not those of the model, by name and shape.

    expected: what the options in the header stand for, on the device "meta": a header that lies about the
        size of the network is found out before that much memory is taken.
    """
    trouble = [f"{name} is missing" for name in expected if name not in tensors]
    trouble += [f"{name} is not known" for name in tensors if name not in expected]
    trouble += [
        f"{name} is {tuple(tensors[name].shape)} and should be {tuple(tensor.shape)}"
        for name, tensor in expected.items()
        if name in tensors and tensors[name].shape != tensor.shape
    ]
    if trouble:
        raise FileFormatError(f"{path}: weights do not fit the options in its header: {trouble[0]}")
