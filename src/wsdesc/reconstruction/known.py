"""What is known about the poses of scans beforehand: poses, control points, up, a reference scan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.file_parts import expand_home
from wsdesc.core.geometry import Floats, check_rigid, inverse
from wsdesc.core.json_file import read_object
from wsdesc.reconstruction.control import ControlPoint, Vector, read_control, read_up
from wsdesc.reconstruction.options import KnownOptions
from wsdesc.reconstruction.station_priors import station_priors
from wsdesc.registration.prior_options import read_direction

Kind = Literal["pose", "control", "up"]
_LARGEST_FILE = 1 << 28  # bytes of a file of poses


class PosePrior(NamedTuple):
    """An approximate pose of a scan in the world."""

    T_world_scan: Floats  # (4, 4), in the scan's coordinates
    station: Floats | None = None  # (3,) position of the scanner in the scan's coordinates, where it is known


@dataclass(frozen=True, eq=False)
class Known:
    """What is known beforehand, by the names of scans.

    Attributes:
        poses: Approximate poses.
        control: Control points.
        up: (3,) unit vectors in the coordinates of the scans.
        reference: Scan whose coordinates are those of the result; None: the first of each component.
        options: Standard deviations.
    """

    poses: dict[str, PosePrior] = field(default_factory=dict)
    control: list[ControlPoint] = field(default_factory=list)
    up: dict[str, Vector] = field(default_factory=dict)
    reference: str | None = None
    options: KnownOptions = field(default_factory=KnownOptions)

    @property
    def empty(self) -> bool:
        """True if nothing is known."""
        return not (self.poses or self.control or self.up or self.reference)


@dataclass(frozen=True)
class KnownResult:
    """Something known beforehand, and whether the final poses agree with it.

    Attributes:
        kind: "pose", "control" or "up".
        scan: Name of the scan.
        name: Name of a control point; empty if it has none.
        distance: From the final poses, in the scans' unit; for "up" 0. None if the scan was not placed.
        angle: From the final poses, in degrees; for "control" 0. None if the scan was not placed.
        deviation: The same in standard deviations.
        rejection: Why it was left out; None if it was used.
    """

    kind: Kind
    scan: str
    name: str
    distance: float | None
    angle: float | None
    deviation: float | None
    rejection: str | None

    @property
    def accepted(self) -> bool:
        """True if the pose graph uses it."""
        return self.rejection is None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**asdict(self), "accepted": self.accepted}

    def __str__(self) -> str:
        what = {"pose": "known pose", "control": "control point", "up": "up"}[self.kind]
        text = f"{what} {self.name or ''} of {self.scan}".replace("  ", " ")
        return f"{text}: {self.rejection}" if self.rejection else text


def read_known(
    paths: Mapping[str, Path],
    *,
    priors: bool | str | Path | Mapping[str, Any] = False,
    control: str | Path | Sequence[ControlPoint] | None = None,
    up: Any = None,
    reference: str | None = None,
    options: KnownOptions,
) -> Known:
    """Collect what is known about scans.

    Args:
        paths: Files of the scans, by name.
        priors: True for the poses of stations in E57 and PTX files; or poses T_world_scan (4, 4) by name, or
            a JSON file of such poses, as poses.json.
        control: Control points, or a CSV file of them.
        up: Direction for all scans, directions by name, or a CSV file with the columns scan, x, y, z.
        reference: Name of the scan whose coordinates are those of the result.
        options: Standard deviations.

    Raises:
        FileFormatError: A file cannot be read.
        InputError: A name is not that of a scan, or a value is invalid.
    """
    names = _Names(paths)
    if isinstance(priors, str | Path):
        priors = _read_poses(expand_home(priors))
    if isinstance(priors, Mapping):
        poses = {names[n]: PosePrior(check_rigid(T, f"priors: {n}")) for n, T in priors.items()}
    else:
        stations = station_priors(paths) if priors else {}
        poses = {name: PosePrior(np.eye(4), position) for name, position in stations.items()}
    if reference is not None and poses:
        poses = _relative_to(names[reference], poses)
    points = read_control(control) if isinstance(control, str | Path) else list(control or ())
    known = Known(
        poses=poses,
        control=[point._replace(scan=names[point.scan]) for point in map(_check_control, points)],
        up=_read_up(up, paths, names),
        reference=None if reference is None else names[reference],
        options=options,
    )
    if known.reference is not None and known.control:
        raise InputError("reference and control both define the frame of the result: use one of them")
    return known


class _Names:
    """Names of scans as users write them: the name itself, the file's name, or its stem if it is unique."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._names: dict[str, str | None] = {}
        for short in (lambda path: path.stem, lambda path: path.name, str):
            keys = [short(path) for path in paths.values()]
            counts = Counter(keys)
            self._names |= {k: n if counts[k] == 1 else None for k, n in zip(keys, paths, strict=True)}
        self._names |= {name: name for name in paths}

    def __getitem__(self, name: str) -> str:
        full = self._names.get(str(name))
        if full is None:
            reason = "several scans have this name" if str(name) in self._names else "no scan has this name"
            examples = ", ".join(sorted(set(filter(None, self._names.values())))[:3])
            raise InputError(f"{name}: {reason}; names are, for example, {examples}")
        return full


def _relative_to(reference: str, poses: dict[str, PosePrior]) -> dict[str, PosePrior]:
    """Express known poses in the coordinates of the reference scan."""
    if reference not in poses:
        raise InputError(f"reference: {reference} has no known pose; choose a scan that has, or omit it")
    T_reference_world = inverse(poses[reference].T_world_scan)
    return {
        name: prior._replace(T_world_scan=T_reference_world @ prior.T_world_scan)
        for name, prior in poses.items()
    }


def _check_control(point: ControlPoint) -> ControlPoint:
    values = np.array([*point.point, *point.world, point.sigma or 1.0], dtype=np.float64)
    if values.shape != (7,) or not np.isfinite(values).all() or values[6] <= 0:
        raise InputError(f"control point of {point.scan}: finite coordinates and a positive sigma are needed")
    return point


def _read_up(up: Any, paths: Mapping[str, Path], names: _Names) -> dict[str, Vector]:
    if up is None:
        return {}
    if isinstance(up, Path) or (isinstance(up, str) and up.lower().endswith(".csv")):
        up = read_up(up)
    if isinstance(up, str) and "," in up:
        up = up.split(",")
    directions = {names[n]: v for n, v in up.items()} if isinstance(up, Mapping) else dict.fromkeys(paths, up)
    try:
        return {name: read_direction(direction) for name, direction in directions.items()}
    except ValueError as error:
        raise InputError(f"up: {error}") from error


def _read_poses(path: Path) -> dict[str, Any]:
    """Read poses by name from poses.json, or from an object of matrices."""
    invalid = "not a file of poses: an object of 4 × 4 matrices by scan, or poses.json of a reconstruction"
    values = read_object(path, largest=_LARGEST_FILE, kind="a file of poses", invalid=invalid)
    scans = values.get("scans", values)
    try:
        return {str(n): v["T_world_scan"] if isinstance(v, dict) else v for n, v in scans.items()}
    except (KeyError, AttributeError) as error:
        raise FileFormatError(f"{path}: {invalid}") from error


def with_defaults(known: Known, resolution: float) -> Known:
    """Fill in standard deviations that depend on the working resolution."""
    options = known.options.model_copy(
        update={
            "prior_sigma": known.options.prior_sigma or 20 * resolution,
            "control_sigma": known.options.control_sigma or 0.2 * resolution,
        }
    )
    return replace(known, options=options)
