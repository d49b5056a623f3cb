"""Save and load the result of a registration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wsdesc.cloud.viewpoint import Viewpoint
from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.file_parts import as_path, expand_home
from wsdesc.core.folders import file_of_name, relative_name
from wsdesc.core.json_file import read_object
from wsdesc.core.similarity import check_similarity
from wsdesc.registration.alternative import AlternativePose
from wsdesc.registration.plain_values import (
    array_or_none,
    finite_or_none,
    float_or_none,
    infinite_if_none,
    nan_if_none,
)
from wsdesc.registration.pose import Pose

if TYPE_CHECKING:
    from wsdesc.registration.result import Registration, Viewpoints

_LARGEST_FILE = 10 << 20  # bytes; a result has a few thousand
_INVALID = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, InputError)


def to_dict(result: Registration) -> dict[str, Any]:
    """Return plain values for JSON. Infinite values become None."""
    covariance, centre = result.covariance, result.covariance_centre
    return {
        "files": [None if file is None else str(file) for file in result.files],
        "T_target_source": result.T_target_source.tolist(),
        "success": result.success,
        "confidence": result.confidence,
        "overlap": finite_or_none(result.overlap),
        "overlap_target": result.overlap_target,
        "rmse": finite_or_none(result.rmse),
        "inliers": result.inliers,
        "matches": result.matches,
        "resolution": result.resolution,
        "scale": result.scale,
        "scale_deviation": finite_or_none(result.scale_deviation),
        "tilt": result.tilt,
        "viewpoints": [None if v is None else v.to_dict() for v in result.viewpoints],
        "covariance": None if covariance is None else covariance.tolist(),
        "covariance_centre": None if centre is None else centre.tolist(),
        "alternatives": [pose.to_dict() for pose in result.alternatives],
        "warnings": result.warnings,
        "timings": {name: round(seconds, 4) for name, seconds in result.timings.items()},
    }


def save(result: Registration, path: str | Path, *, all_poses: bool = False) -> None:
    """Write a result to a .json file, or only its matrices to a .txt file; see `Registration.save`."""
    path = as_path(path, "the file to write")
    kind = path.suffix.lower()
    if kind == ".json":
        files = [None if file is None else relative_name(file, path.parent) for file in result.files]
        text = json.dumps(result.to_dict() | {"files": files}, indent=2)
    elif kind == ".txt":
        text = _matrix_text(result.T_target_source)
        if all_poses:
            text = f"# probability {result.confidence:.3f}\n{text}"
            for pose in result.alternatives:
                text += f"\n# probability {pose.probability:.3f}\n{_matrix_text(pose.T_target_source)}"
    else:
        raise FileFormatError(f"{path}: a registration is saved as .json or .txt")
    with atomic_write(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def load_fields(path: str | Path) -> dict[str, Any]:
    """Read the fields of a `Registration` from a .json file that `save` wrote."""
    invalid = "not a registration that `Registration.save` wrote"
    values = read_object(path, largest=_LARGEST_FILE, kind="a registration", invalid=invalid)
    try:
        return _fields(values, expand_home(path).parent)
    except _INVALID as error:
        raise FileFormatError(f"{path}: {invalid}") from error


def _fields(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Convert the values of `to_dict`, from a file in `folder`, to the fields of a `Registration`."""
    source, target = (
        None if name is None else file_of_name(name, folder) for name in values.get("files", [None, None])
    )
    return {
        "T_target_source": check_similarity(values["T_target_source"], "T_target_source"),
        "success": bool(values["success"]),
        "confidence": float(values["confidence"]),
        "overlap": nan_if_none(values["overlap"]),
        "overlap_target": float_or_none(values.get("overlap_target")),
        "rmse": infinite_if_none(values["rmse"]),
        "inliers": int(values["inliers"]),
        "matches": int(values["matches"]),
        "resolution": float(values["resolution"]),
        "scale": float(values.get("scale", 1.0)),
        "scale_deviation": infinite_if_none(values.get("scale_deviation")),
        "tilt": float_or_none(values.get("tilt")),
        "viewpoints": _read_viewpoints(values.get("viewpoints", [None, None])),
        "covariance": array_or_none(values.get("covariance"), (6, 6)),
        "covariance_centre": array_or_none(values.get("covariance_centre"), (3,)),
        "alternatives": [AlternativePose.from_dict(pose) for pose in values.get("alternatives", [])],
        "warnings": [str(warning) for warning in values["warnings"]],
        "timings": {str(name): float(seconds) for name, seconds in values["timings"].items()},
        "files": (source, target),
    }


def _read_viewpoints(values: list[Any]) -> Viewpoints:
    source, target = (None if v is None else Viewpoint.read(v["position"], v["source"]) for v in values)
    return source, target


def _matrix_text(T: Pose) -> str:
    """Write four rows of four numbers, as CloudCompare reads them, with all digits."""
    return "\n".join(" ".join(f"{value!r}" for value in row) for row in (T + 0.0).tolist())
