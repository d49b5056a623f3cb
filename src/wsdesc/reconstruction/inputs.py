"""Collect the scans of a reconstruction as files: jobs carry paths, not points."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from wsdesc.cloud.cloud import Cloud
from wsdesc.cloud.convert import Scan, as_cloud
from wsdesc.cloud.formats import arrays
from wsdesc.cloud.scan_files import find_scan_files
from wsdesc.cloud.stations import expand_stations
from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import InputError, WSDescError
from wsdesc.core.file_parts import is_several
from wsdesc.reconstruction.options import JOURNAL

_PATH = (str, os.PathLike)
_ARRAY = re.compile(r"scan \d{1,9}")  # name of a scan that is not a file
Scans = str | Path | Sequence[Scan]  # a folder; or folders and scans in any form


def find_scans(paths: Sequence[str | Path], out: Path | None = None) -> list[Path]:
    """List the scans among files and in folders, in natural order, without results of earlier runs.

    Every station of an E57 or PTX file is a scan.

    Args:
        paths: Files and folders.
        out: Folder for results. Its content is not listed.

    Raises:
        FileFormatError: A path does not exist, or is not a scan.
        InputError: A folder has no scans, or all scans are in `out`.
    """
    scans = [station for file in find_scan_files(paths) for station in _stations(file)]
    if out is not None:
        scans = [scan for scan in scans if out.resolve() not in scan.resolve().parents]
        if not scans:
            raise InputError(f"{out}: all scans are in the folder for results: choose another folder")
    # Every folder of a run has a journal.
    return [scan for scan in scans if not any((p / JOURNAL).exists() for p in scan.resolve().parents)]


def _stations(path: str | Path) -> list[Path]:
    """List the stations of a file, or the file if it cannot be read: reading it will say why."""
    try:
        return expand_stations(path)
    except WSDescError:
        return [Path(path)]


def _is_one_scan(scans: Any) -> bool:
    """Return whether this is a path, an array (N, 3), a table or an object, and no sequence of scans."""
    return not is_several(scans) or getattr(scans, "ndim", 3) < 3


def as_files(
    scans: Scans, cache: Path, out: Path | None, taken: Collection[str] = ()
) -> tuple[dict[str, Path], dict[str, str]]:
    """Return the path of each scan by name, and why other scans cannot be used.

    Scans that are not files are written into the folder `cache`, with their viewpoints and attributes.

    Args:
        scans: A folder, or folders and scans in any form.
        cache: Folder for scans that are not files.
        out: Folder for results. Its content is not listed.
        taken: Names of other scans, which are not used.
    """
    from wsdesc.cloud.clean import clean  # compiled code, which finding files does not need

    expanded: list[Any] = []
    listed: Iterable[Any] = [scans] if _is_one_scan(scans) else cast("Sequence[Any]", scans)
    for scan in listed:
        if not isinstance(scan, _PATH):
            expanded.append(scan)
            continue
        scan = os.path.expanduser(scan)  # noqa: PTH111 - a name as given, not normalized
        if Path(scan).is_dir():
            expanded += find_scans([Path(scan)], out)
        else:
            expanded += _stations(Path(scan))
    paths, failed = dict[str, Path](), dict[str, str]()
    counts = Counter(Path(scan).name for scan in expanded if isinstance(scan, _PATH))
    counts.update(list(taken))
    first = max((int(name[5:]) + 1 for name in taken if _ARRAY.fullmatch(name)), default=0)
    for number, scan in enumerate(expanded, first):
        if isinstance(scan, _PATH):
            name = Path(scan).name if counts[Path(scan).name] == 1 else str(scan)
            paths[name if name not in {*paths, *taken} else f"{name} ({number})"] = Path(scan)
            continue
        try:
            cloud = as_cloud(scan)
            path = cache / f"scan_{number}.npz"
            _write_scan(path, cloud, clean(cloud.points).index)
            paths[f"scan {number}"] = path
        except InputError as error:
            failed[f"scan {number}"] = str(error)
    return paths, failed


def _write_scan(path: Path, cloud: Cloud, index: np.ndarray) -> None:
    """Write the points (N, 3) of a cloud that `index` selects, with all that is known about them."""
    attributes = {
        name: values[index]
        for name, values in cloud.attributes.items()
        if name not in arrays.RESERVED and values.dtype.kind in "biuf"
    }
    with atomic_write(path) as temporary:
        points = np.asarray(cloud.points, np.float64)[index]
        arrays.write(temporary, points, attributes, cloud.viewpoint, cloud.sampled)
