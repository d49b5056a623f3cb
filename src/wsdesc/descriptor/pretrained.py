"""Find, read and write weights: safetensors files with the descriptor's options in the header.

No pickle is ever loaded. `available` and `find` import neither torch nor safetensors, so that commands can
report an unknown model at once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.file_parts import as_path

if TYPE_CHECKING:
    from torch import Tensor

    from wsdesc.descriptor.options import DescriptorOptions

RUN_WEIGHTS = "model.safetensors"  # file of a training run's folder that holds the trained weights

_HEADER = "wsdesc"
_FOLDER = Path(__file__).parent / "weights"
_DTYPES = ("float32", "float64", "float16", "bfloat16", "int64")


def available() -> list[str]:
    """List the names of the weights that are shipped with the package."""
    return sorted(path.stem for path in _FOLDER.glob("*.safetensors"))


def find(name_or_path: str | Path) -> Path:
    """Find the weights file of a model.

    Args:
        name_or_path: Shipped name, path of a .safetensors file, or folder of a training run.

    Raises:
        FileFormatError: No such weights exist; the message lists the shipped names.
    """
    if str(name_or_path) in available():
        return _FOLDER / f"{name_or_path}.safetensors"
    path = as_path(name_or_path, "model")
    # os.path does not raise for a folder without permission, pathlib does.
    if os.path.isdir(path):  # noqa: PTH112
        if os.path.isfile(path / RUN_WEIGHTS):  # noqa: PTH113
            return path / RUN_WEIGHTS
        raise FileFormatError(
            f"{path}: the folder has no {RUN_WEIGHTS}, which a training writes when it is finished; "
            f"name the folder of a finished training, a .safetensors file, or {_shipped()}"
        )
    if not os.path.isfile(path):  # noqa: PTH113
        raise FileFormatError(
            f"{name_or_path}: unknown model; use {_shipped()}, the path of a .safetensors file, "
            "or the folder of a training run"
        )
    return path


def _shipped() -> str:
    return f"a shipped model ({', '.join(available()) or 'none in this installation'})"


def save(path: str | Path, options: DescriptorOptions, tensors: dict[str, Tensor]) -> None:
    """Write weights and options to `path` atomically."""
    save_tensors(path, tensors, {_HEADER: options.model_dump_json()})


def save_tensors(path: str | Path, tensors: dict[str, Tensor], header: dict[str, str]) -> None:
    """Write tensors and header texts as a safetensors file, atomically."""
    from safetensors.torch import save as to_bytes

    from wsdesc.core.atomic import atomic_write

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # safetensors' `save_file` leaves a temporary file behind when killed, and its result is readable only
    # by its owner.
    content = to_bytes(tensors, header)
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


def load(path: str | Path) -> tuple[DescriptorOptions, dict[str, Tensor]]:
    """Read options and weights.

    Raises:
        FileFormatError: The file is not a safetensors file, its header has no valid options, or a tensor has
            an unsupported type or values that are not finite.
    """
    import torch
    from safetensors import SafetensorError, safe_open

    from wsdesc.descriptor.options import DescriptorOptions

    try:
        with safe_open(str(path), framework="pt") as file:
            header = (file.metadata() or {}).get(_HEADER)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RuntimeError, AttributeError) as error:
        # RuntimeError and AttributeError: number types that this version of torch does not have.
        raise FileFormatError(f"{path}: not a safetensors file ({error}); pickles are not loaded") from error
    if header is None:
        raise FileFormatError(
            f"{path}: its header does not describe a WSDesc model; name weights that wsdesc train or "
            "WSDesc.save wrote"
        )
    try:
        options = DescriptorOptions.read(json.loads(header))
    except (ValueError, TypeError, InputError, RecursionError) as error:
        raise FileFormatError(f"{path}: its header cannot be read ({error})") from error
    dtypes = [getattr(torch, name) for name in _DTYPES]
    for name, tensor in tensors.items():
        if tensor.dtype not in dtypes:
            raise FileFormatError(f"{path}: {name} has the unsupported number type {tensor.dtype}")
        if not bool(torch.isfinite(tensor).all()):
            raise FileFormatError(f"{path}: {name} has values that are not finite")
    return options, tensors


def check_fit(path: str | Path, expected: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Check names and shapes of the tensors against those of the model.

    Args:
        path: The file, for the error message.
        expected: The tensors of a model with the options in the header, on the device "meta". A header with a
            wrong network size is therefore rejected before that much memory is allocated.
        tensors: The tensors of the file.

    Raises:
        FileFormatError: A tensor is missing, unexpected, or has a different shape.
    """
    problems = [f"{name} is missing" for name in expected if name not in tensors]
    problems += [f"{name} is unexpected" for name in tensors if name not in expected]
    problems += [
        f"{name} has the shape {tuple(tensors[name].shape)}, expected {tuple(tensor.shape)}"
        for name, tensor in expected.items()
        if name in tensors and tensors[name].shape != tensor.shape
    ]
    if problems:
        raise FileFormatError(f"{path}: weights do not fit the options in its header: {problems[0]}")
