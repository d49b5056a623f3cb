"""Checks of files, weights and devices before the work starts. They are fast: no check imports torch."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.file_parts import split_part


def check_inputs(paths: Iterable[Path], what: str = "file") -> None:
    """Refuse input files that do not exist, before the first one is read; `what` is possible beside files."""
    for path in paths:
        file, _ = split_part(path)
        try:
            exists, is_folder = file.exists(), file.is_dir()
        except OSError as error:
            raise FileFormatError(f"{path}: cannot be read: {error.strerror or error}") from error
        if not exists:
            raise FileFormatError(f"{path}: no such {what}")
        if is_folder:
            raise FileFormatError(f"{path}: is a folder, not a file")


def check_exist(paths: Iterable[Path]) -> None:
    """Refuse files and folders that do not exist."""
    for path in paths:
        if not path.exists():
            raise FileFormatError(f"{path}: no such file or folder")


def check_outputs(outputs: Mapping[Path | None, tuple[str, ...] | None], inputs: Iterable[Path]) -> None:
    """Refuse output files that cannot be written or that would replace an input or another output.

    Args:
        outputs: Allowed extensions by path; None as extensions allows all formats of point clouds, None as
            a path is skipped.
        inputs: Files that no output may replace.
    """
    from wsdesc.cloud.formats import WRITABLE

    used = {split_part(path)[0].resolve() for path in inputs}
    for path, extensions in outputs.items():
        if path is None:
            continue
        extensions = extensions or WRITABLE
        if path.suffix.lower() not in extensions:
            raise FileFormatError(f"{path}: the name must end in {' or '.join(extensions)}")
        if not path.parent.is_dir():
            raise FileFormatError(f"{path}: cannot be written: the folder {path.parent} does not exist")
        if path.is_dir():
            raise FileFormatError(f"{path}: cannot be written: it is a folder")
        _check_writable(path.parent, path)
        if path.resolve() in used:
            raise InputError(f"{path}: would replace an input or another output; choose another name")
        used.add(path.resolve())


def check_new_folder(folder: Path) -> None:
    """Refuse a folder for results that cannot be created or written, without creating it."""
    existing = next((path for path in (folder, *folder.absolute().parents) if path.exists()), folder)
    if not existing.is_dir():
        raise FileFormatError(f"{folder}: cannot be written: {existing} is no folder")
    _check_writable(existing, folder)


def check_output_folder(folder: Path) -> None:
    """Create a folder for results, and refuse one that cannot be written."""
    from wsdesc.core.folders import make_folder

    make_folder(folder)
    _check_writable(folder, folder)


def _check_writable(folder: Path, output: Path) -> None:
    """Refuse a folder in which no file can be created; `output` is named in the error."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise FileFormatError(f"{output}: cannot be written: {error.strerror or error}") from error


def check_model_and_device(model: str, device: str) -> None:
    """Refuse unknown weights and devices."""
    from wsdesc.core.devices import check_device
    from wsdesc.descriptor import pretrained

    pretrained.find(model)
    check_device(device)


def check_view(requested: bool, port: int | None = None, host: str = "localhost") -> None:
    """Refuse a page that could not be served, if one is requested."""
    if requested:
        from wsdesc.view.server import check_server

        check_server(host, port)


def read_viewpoint(text: str | None) -> str | tuple[float, ...] | None:
    """Read a position "X,Y,Z", or "none"."""
    if text is None or text.strip().lower() == "none":
        return None if text is None else "none"
    try:
        position = tuple(float(word) for word in text.split(","))
    except ValueError:
        position = ()
    if len(position) != 3 or not all(map(math.isfinite, position)):
        raise InputError(f"--viewpoint must be three numbers X,Y,Z or none, not {text!r}")
    return position


def read_directions(texts: Sequence[str] | None) -> list[str | list[str]] | None:
    """Split directions "X,Y,Z" into numbers; names of axes stay. One text is for both scans.

    The options check the directions themselves.
    """
    if not texts:
        return None
    given = [text.split(",") if "," in text else text for text in texts]
    return given * 2 if len(given) == 1 else given


def read_viewpoints(texts: Sequence[str] | None) -> dict[str, str | tuple[float, ...] | None]:
    """Read the viewpoints of source and target; one text is for both."""
    given = [read_viewpoint(text) for text in texts or ()] or [None]
    if len(given) > 2:
        raise InputError(f"--viewpoint was given {len(given)} times: once is for both scans, twice for each")
    return {"source_viewpoint": given[0], "target_viewpoint": given[-1]}
