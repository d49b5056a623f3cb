"""Result of a registration."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.transform import Rotation

from wsdesc.alignment.covariance import PoseCovariance, largest_deviations, move_covariance
from wsdesc.alignment.evidence import Evidence
from wsdesc.alignment.information import Information
from wsdesc.cloud.viewpoint import Viewpoint
from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.geometry import check_rigid, inverse, transform
from wsdesc.core.notebook import NotebookDisplay
from wsdesc.descriptor.description import Description
from wsdesc.registration.pose import Pose as Pose
from wsdesc.registration.pose import PoseMethods

Viewpoints = tuple[Viewpoint | None, Viewpoint | None]  # of source and target

SUCCESS = 0.9  # lowest confidence of a success
PLAUSIBLE = 0.01  # lowest probability of an alternative pose
_LARGEST_FILE = 10 << 20  # bytes; a result has a few thousand


@dataclass(frozen=True, eq=False)
class AlternativePose(PoseMethods):
    """Another plausible pose of a registered pair. At most one pose of a pair is right.

    Attributes:
        T_target_source: (4, 4) rigid transformation from source to target coordinates, in the scans' unit.
        probability: Probability that this pose is the right one, 0.01 … 1.
        overlap: Share of the source's points with a partner in the target, 0 … 1.
        rmse: Root mean square point-to-plane distance in the overlap, in the scans' unit.
        overlap_target: Share of the target's points with a partner in the source; None if unknown.
    """

    T_target_source: Pose
    probability: float
    overlap: float
    rmse: float
    overlap_target: float | None = None

    def inverse(self) -> AlternativePose:
        """Return the pose of the target in the frame of the source."""
        return AlternativePose(
            T_target_source=inverse(self.T_target_source),
            probability=self.probability,
            overlap=_nan_if_none(self.overlap_target),
            rmse=self.rmse,
            overlap_target=_finite_or_none(self.overlap),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON. An infinite `rmse` becomes None."""
        return {
            "T_target_source": self.T_target_source.tolist(),
            "probability": self.probability,
            "overlap": _finite_or_none(self.overlap),
            "overlap_target": self.overlap_target,
            "rmse": _finite_or_none(self.rmse),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> AlternativePose:
        """Read the values of `to_dict`."""
        return cls(
            T_target_source=check_rigid(values["T_target_source"], "T_target_source"),
            probability=float(values["probability"]),
            overlap=_nan_if_none(values["overlap"]),
            overlap_target=_float_or_none(values.get("overlap_target")),
            rmse=_infinite_if_none(values["rmse"]),
        )


@dataclass(frozen=True, eq=False, repr=False)
class Registration(PoseMethods, NotebookDisplay):
    """Pose of one scan in the frame of another, and its confidence.

    Attributes:
        T_target_source: (4, 4) rigid transformation from source to target coordinates, in the scans' unit.
        success: True if confidence ≥ 0.9.
        confidence: Calibrated probability that the pose is right, 0 … 1.
        overlap: Share of the source's points with a partner in the target, 0 … 1.
        overlap_target: Share of the target's points with a partner in the source; None if unknown.
        rmse: Root mean square point-to-plane distance in the overlap, in the scans' unit; infinite without
            overlap.
        inliers: Matches that agree with the pose.
        matches: All matches between both scans.
        resolution: Working resolution, in the scans' unit.
        scale: Estimated size of the source relative to the target. A pose is no success if it differs from 1.
        scale_deviation: Standard deviation of `scale`; infinite if the overlap does not determine it.
        alternatives: Other plausible poses, best first. Their probabilities and the confidence sum to at
            most 1.
        viewpoints: Viewpoints of source and target whose free space was used; None where it is not known.
        covariance: (6, 6) of the twist (v, ω) that moves this pose to the true one, if the pose is right:
            a point x of the target's frame moves to centre + v + R(ω) (x − centre). v is in the scans' unit,
            ω a rotation vector in radians. A motion that the overlap does not determine has the extent of
            the overlap as its standard deviation. None if no pose was found. See `covariance_at`.
        covariance_centre: (3,) that centre: the middle of the overlap, in target coordinates.
        warnings: Sentences about the result: why it failed, and what to try next.
        timings: Seconds of each step.
        evidence: Measurements that the confidence was computed from; None if no pose was found.
        information: Information matrix of the pose, in model metres and the local frame of the target; None
            if no pose was found.
        described: Both scans with keypoints and descriptors; None if no pose was found.
    """

    T_target_source: Pose
    success: bool
    confidence: float
    overlap: float
    rmse: float
    inliers: int
    matches: int
    resolution: float
    warnings: list[str] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)
    scale: float = 1.0
    scale_deviation: float = math.inf
    alternatives: list[AlternativePose] = field(default_factory=list)
    overlap_target: float | None = None
    viewpoints: Viewpoints = (None, None)
    covariance: NDArray[np.float64] | None = None
    covariance_centre: NDArray[np.float64] | None = None
    evidence: Evidence | None = None
    information: Information | None = None
    described: tuple[Description, Description] | None = None

    @property
    def displacement(self) -> float:
        """Distance by which the pose moves the middle of the source; of the origin if no scan is kept."""
        middle = self.described[0].T_scan_local[:3, 3] if self.described else np.zeros(3)
        return float(np.linalg.norm(transform(middle[None], self.T_target_source)[0] - middle))

    def inverse(self) -> Registration:
        """Return the registration of the swapped scans: the pose of the target in the frame of the source.

        `overlap` then is the share of the target's points; NaN if it is unknown, as in old files.
        Warnings and timings stay those of this pair.
        """
        covariance = None
        if self.covariance is not None and self.covariance_centre is not None:
            covariance = PoseCovariance(self.covariance, self.covariance_centre)
            covariance = covariance.in_frame(inverse(self.T_target_source))
        information = self.information
        if information is not None and self.described is not None:
            information = information.seen_from_source(self._pose_of_descriptions(*self.described))
        return replace(
            self,
            T_target_source=inverse(self.T_target_source),
            overlap=_nan_if_none(self.overlap_target),
            overlap_target=_finite_or_none(self.overlap),
            scale=1 / self.scale,
            scale_deviation=self.scale_deviation / self.scale**2,
            alternatives=[pose.inverse() for pose in self.alternatives],
            viewpoints=self.viewpoints[::-1],
            covariance=covariance.matrix if covariance else None,
            covariance_centre=covariance.centre if covariance else None,
            information=information,
            described=self.described and self.described[::-1],
        )

    def _pose_of_descriptions(self, source: Description, target: Description) -> Pose:
        """Return the pose between the local frames of both descriptions, in model metres."""
        T: Pose = inverse(target.T_scan_local) @ self.T_target_source @ source.T_scan_local
        T[:3, 3] /= target.unit
        return T

    def covariance_at(self, point: ArrayLike) -> NDArray[np.float64]:
        """Return the covariance (6, 6) of the twist (v, ω) about another point.

        Args:
            point: (3,) in target coordinates. v is the error of its position. At `T_target_source[:3, 3]`, v
                is the error of the matrix's last column. At the origin, exp((v, ω)) T_target_source is the
                true pose to first order. Far from the overlap, v is large: a rotation moves such points far.

        Raises:
            InputError: The registration has no covariance, or `point` is not three finite numbers.
        """
        if self.covariance is None or self.covariance_centre is None:
            raise InputError("the registration has no covariance: no pose was found")
        point = np.asarray(point, dtype=np.float64)
        if point.shape != (3,) or not np.isfinite(point).all():
            raise InputError(f"point must be three finite numbers, not {point}")
        return move_covariance(self.covariance, point - self.covariance_centre)

    @property
    def deviation_text(self) -> str:
        """Standard deviations of the pose in its least certain directions, such as "± 0.03°, ± 0.0012"."""
        if self.covariance is None:
            return "unknown"
        length, angle = largest_deviations(self.covariance)
        return f"± {math.degrees(angle):.2g}°, ± {length:.2g}"

    @property
    def alternatives_text(self) -> str:
        """Number and probabilities of the alternatives, such as "2 other plausible poses: 0.31, 0.05"."""
        count = len(self.alternatives)
        if not count:
            return "no other plausible pose"
        probabilities = ", ".join(f"{pose.probability:.2f}" for pose in self.alternatives)
        return f"{count} other plausible pose{'s' if count > 1 else ''}: {probabilities}"

    @property
    def viewpoints_text(self) -> str:
        """Viewpoints of both scans, such as "source: detected at the origin; target: unknown"."""
        names = zip(("source", "target"), self.viewpoints, strict=True)
        return "; ".join(f"{name}: {'unknown' if v is None else v}" for name, v in names)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON. Infinite values become None."""
        return {
            "T_target_source": self.T_target_source.tolist(),
            "success": self.success,
            "confidence": self.confidence,
            "overlap": _finite_or_none(self.overlap),
            "overlap_target": self.overlap_target,
            "rmse": _finite_or_none(self.rmse),
            "inliers": self.inliers,
            "matches": self.matches,
            "resolution": self.resolution,
            "scale": self.scale,
            "scale_deviation": _finite_or_none(self.scale_deviation),
            "viewpoints": [None if v is None else v.to_dict() for v in self.viewpoints],
            "covariance": None if self.covariance is None else self.covariance.tolist(),
            "covariance_centre": None if self.covariance_centre is None else self.covariance_centre.tolist(),
            "alternatives": [pose.to_dict() for pose in self.alternatives],
            "warnings": self.warnings,
            "timings": {name: round(seconds, 4) for name, seconds in self.timings.items()},
        }

    def save(self, path: str | Path, *, all_poses: bool = False) -> None:
        """Write the result to a .json file, or only the matrix `T_target_source` to a .txt file.

        Args:
            path: File to write.
            all_poses: Append the alternatives to a .txt file, each below a line "# probability …". A .json
                file always has them.
        """
        kind = Path(path).suffix.lower()
        if kind == ".json":
            text = json.dumps(self.to_dict(), indent=2)
        elif kind == ".txt":
            text = _matrix_text(self.T_target_source)
            if all_poses:
                text = f"# probability {self.confidence:.3f}\n{text}"
                for pose in self.alternatives:
                    text += f"\n# probability {pose.probability:.3f}\n{_matrix_text(pose.T_target_source)}"
        else:
            raise FileFormatError(f"{path}: a registration is saved as .json or .txt")
        with atomic_write(path) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Registration:
        """Read a .json file that `save` wrote.

        The file holds neither `evidence` and `information` nor the described scans: they are None.
        """
        try:
            if Path(path).stat().st_size > _LARGEST_FILE:
                raise FileFormatError(f"{path}: too large for a registration")
            values = json.loads(Path(path).read_text(encoding="utf-8"))
            return cls._from_dict(values)
        except OSError as error:
            raise FileFormatError(f"{path}: cannot be read: {error.strerror or error}") from error
        except (
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            OverflowError,
            RecursionError,
            InputError,
        ) as error:
            raise FileFormatError(f"{path}: not a registration that `Registration.save` wrote") from error

    @classmethod
    def _from_dict(cls, values: dict[str, Any]) -> Registration:
        return cls(
            T_target_source=check_rigid(values["T_target_source"], "T_target_source"),
            success=bool(values["success"]),
            confidence=float(values["confidence"]),
            overlap=_nan_if_none(values["overlap"]),
            overlap_target=_float_or_none(values.get("overlap_target")),
            rmse=_infinite_if_none(values["rmse"]),
            inliers=int(values["inliers"]),
            matches=int(values["matches"]),
            resolution=float(values["resolution"]),
            scale=float(values.get("scale", 1.0)),
            scale_deviation=_infinite_if_none(values.get("scale_deviation")),
            viewpoints=_read_viewpoints(values.get("viewpoints", [None, None])),
            covariance=_array_or_none(values.get("covariance"), (6, 6)),
            covariance_centre=_array_or_none(values.get("covariance_centre"), (3,)),
            alternatives=[AlternativePose.from_dict(pose) for pose in values.get("alternatives", [])],
            warnings=[str(warning) for warning in values["warnings"]],
            timings={str(name): float(seconds) for name, seconds in values["timings"].items()},
        )

    def __repr__(self) -> str:
        return (
            f"Registration(success={self.success}, confidence={self.confidence:.3f}, "
            f"overlap={self.overlap:.2f}, rmse={self.rmse:.3g})"
        )

    def __str__(self) -> str:
        T = self.T_target_source
        degrees = float(np.degrees(Rotation.from_matrix(T[:3, :3]).magnitude()))
        rows = ["  " + " ".join(f"{value:12.6f}" for value in row) for row in T]
        lines = [
            f"Registration: {'success' if self.success else 'NO success'}, confidence {self.confidence:.3f}",
            f"  rotation {degrees:.2f}°, translation {self.displacement:.4g}",
            *([f"  deviation {self.deviation_text} at the overlap"] if self.covariance is not None else []),
            f"  overlap {_percent(self.overlap)} of the source, rmse {self.rmse:.3g}",
            f"  scale {self.scale:.3f} ± {self.scale_deviation:.3f}",
            f"  {self.inliers} inliers of {self.matches} matches, resolution {self.resolution:.4g}",
            f"  viewpoints: {self.viewpoints_text}",
            *([f"  {self.alternatives_text}"] if self.alternatives else []),
            *(f"  warning: {warning}" for warning in self.warnings),
            "T_target_source:",
        ]
        return "\n".join(lines + rows)


def _read_viewpoints(values: list[Any]) -> Viewpoints:
    source, target = (None if v is None else Viewpoint.read(v["position"], v["source"]) for v in values)
    return source, target


def _matrix_text(T: Pose) -> str:
    """Write four rows of four numbers, as CloudCompare reads them, with all digits."""
    return "\n".join(" ".join(f"{value!r}" for value in row) for row in (T + 0.0).tolist())


def _float_or_none(value: Any) -> float | None:
    return None if value is None else float(value)


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _infinite_if_none(value: Any) -> float:
    return math.inf if value is None else float(value)


def _nan_if_none(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _percent(share: float) -> str:
    return "unknown" if math.isnan(share) else f"{share:.0%}"


def _array_or_none(values: Any, shape: tuple[int, ...]) -> NDArray[np.float64] | None:
    if values is None:
        return None
    array = np.asarray(values, dtype=np.float64)
    if array.shape != shape or not np.isfinite(array).all():
        raise ValueError(f"expected finite numbers of shape {shape}")
    return array
