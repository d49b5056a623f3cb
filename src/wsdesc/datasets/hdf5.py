"""Open untrusted HDF5 files, and check their datasets before reading them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wsdesc.cloud.formats.limits import check_unpacked
from wsdesc.core.errors import FileFormatError, WSDescError

_BYTES_PER_NUMBER = 8  # at most


@contextmanager
def open_hdf5(path: Path) -> Iterator[Any]:
    """Open a file for reading; every error of h5py becomes a FileFormatError."""
    import h5py

    if not path.is_file():
        raise FileFormatError(f"{path}: no such file")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except WSDescError:
        raise
    except Exception as error:
        raise FileFormatError(f"{path}: cannot be read as HDF5 ({error})") from error


def dataset(path: Path, file: Any, name: str) -> Any | None:
    """Return the dataset `name`, or None if the file has none of this name.

    Raises:
        FileFormatError: The dataset is a link to another file, or larger than the file can store.
    """
    import h5py

    if isinstance(file.get(name, getlink=True), h5py.ExternalLink):
        raise FileFormatError(f"{path}: {name!r} is a link to another file, which is not followed")
    data = file.get(name)
    if not isinstance(data, h5py.Dataset) or data.shape is None:
        return None
    if data.is_virtual or data.external or data.file.filename != file.filename:
        raise FileFormatError(f"{path}: {name!r} is a link to another file, which is not followed")
    try:
        check_unpacked(_BYTES_PER_NUMBER * data.size, path.stat().st_size)
    except ValueError as error:
        raise FileFormatError(f"{path}: {name!r}: {error}") from error
    return data
