"""HDF5 files that may come from anybody: opened, and their datasets looked at before they are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wsdesc.cloud.formats.limits import check_unpacked
from wsdesc.core.errors import FileFormatError, WSDescError

_NUMBER = 8  # bytes, at most, that each takes in memory


@contextmanager
def open_hdf5(path: Path) -> Iterator[Any]:
    """The file for a while. What h5py raises for a damaged one, nearly anything, becomes FileFormatError."""
    import h5py

    if not path.is_file():
        raise FileFormatError(f"{path}: there is no such file")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except WSDescError:
        raise
    except Exception as error:
        raise FileFormatError(f"{path}: cannot be read as HDF5 ({error})") from error


def dataset(path: Path, file: Any, name: str) -> Any | None:
    """The dataset of that name, None if there is none, once all of it can be in this file.

    Refused are links that would open other files, and sizes that nothing was stored for.
    """
    import h5py

    if isinstance(file.get(name, getlink=True), h5py.ExternalLink):
        raise FileFormatError(f"{path}: {name!r} leads to another file, which is not followed")
    data = file.get(name)
    if not isinstance(data, h5py.Dataset) or data.shape is None:
        return None
    if data.is_virtual or data.external or data.file.filename != file.filename:
        raise FileFormatError(f"{path}: {name!r} leads to another file, which is not followed")
    try:
        check_unpacked(_NUMBER * data.size, path.stat().st_size)
    except ValueError as error:
        raise FileFormatError(f"{path}: {name!r}: {error}") from error
    return data
