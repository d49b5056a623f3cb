"""The weights that an adaptation starts from: a full network and the fast one beside it, or one network."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from wsdesc.adaptation.options import FULL_WEIGHTS
from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import FileFormatError
from wsdesc.descriptor import pretrained
from wsdesc.descriptor.model import WSDesc
from wsdesc.descriptor.options import DescriptorOptions

_FAST = "-fast"  # suffix of the name of a shipped fast network


class WeightFiles(NamedTuple):
    """Files of weights."""

    fast: Path  # weights that commands use
    full: Path | None  # teacher of the fast network; None if there is only one network

    def to_teach(self, distil: bool) -> Path:
        """Return the network that learns matches: the full one if the fast one is distilled from it."""
        return self.full if distil and self.full is not None else self.fast


def find_start(name_or_path: str) -> WeightFiles:
    """Find the weights to start from, and check that this version can read them.

    Args:
        name_or_path: Shipped name, folder of an adaptation or of a training run, or file.

    Raises:
        FileFormatError: The weights do not exist, or cannot be read.
    """
    name = name_or_path.removesuffix(_FAST)
    shipped = pretrained.available()
    if name in shipped and name + _FAST in shipped:
        files = WeightFiles(pretrained.find(name + _FAST), pretrained.find(name))
    else:
        fast = pretrained.find(name_or_path)
        full = Path(name_or_path) / FULL_WEIGHTS
        files = WeightFiles(fast.absolute(), full.absolute() if full.is_file() else None)
    for path in files:
        if path is not None:
            WSDesc.from_pretrained(path)
    return files


def with_orientation(files: WeightFiles, radius: float, folder: Path) -> WeightFiles:
    """Write copies of weights into a folder, for frames with another orientation radius."""

    def copy(source: Path, name: str) -> Path:
        options, tensors = pretrained.load(source)
        values = options.model_dump() | {"orientation_radius": radius}
        pretrained.save(folder / name, DescriptorOptions.read(values), tensors)
        return folder / name

    full = None if files.full is None else copy(files.full, "start_full.safetensors")
    return WeightFiles(copy(files.fast, "start.safetensors"), full)


def copy_weights(source: Path, target: Path) -> None:
    """Copy a file of weights atomically."""
    try:
        content = source.read_bytes()
    except OSError as error:
        raise FileFormatError(f"{source}: cannot be read: {error.strerror or error}") from error
    with atomic_write(target) as temporary:
        temporary.write_bytes(content)
