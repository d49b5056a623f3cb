"""Result of a registration."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wsdesc.alignment.covariance import PoseCovariance, largest_deviations, move_covariance
from wsdesc.alignment.evidence import Evidence
from wsdesc.alignment.information import Information
from wsdesc.cloud.viewpoint import Viewpoint
from wsdesc.core.errors import InputError
from wsdesc.core.file_parts import expand_home
from wsdesc.core.geometry import inverse, transform
from wsdesc.core.notebook import NotebookDisplay
from wsdesc.core.rotations import rotation_angle
from wsdesc.core.similarity import inverse_similarity, scaled_first, split_similarity
from wsdesc.descriptor.description import Description
from wsdesc.registration import result_file
from wsdesc.registration.alternative import PLAUSIBLE as PLAUSIBLE
from wsdesc.registration.alternative import AlternativePose as AlternativePose
from wsdesc.registration.matched import MatchedKeypoints
from wsdesc.registration.plain_values import finite_or_none, nan_if_none
from wsdesc.registration.pose import Pose as Pose
from wsdesc.registration.pose import PoseMethods
from wsdesc.registration.rigid_result import rigid_result

Viewpoints = tuple[Viewpoint | None, Viewpoint | None]  # of source and target
Files = tuple[Path | None, Path | None]  # of source and target

SUCCESS = 0.9  # lowest confidence of a success


@dataclass(frozen=True, eq=False, repr=False)
class Registration(PoseMethods, NotebookDisplay):
    """Pose of one scan in the frame of another, and its confidence.

    Attributes:
        T_target_source: (4, 4) transformation from source to target coordinates. It is rigid, or with the
            option `scale` a similarity: a rotation, a translation and a factor of lengths.
        success: True if confidence ≥ 0.9.
        confidence: Calibrated probability that the pose is right, 0 … 1.
        overlap: Share of the source's points with a partner in the target, 0 … 1.
        overlap_target: Share of the target's points with a partner in the source; None if unknown.
        rmse: Root mean square point-to-plane distance in the overlap, in the target's unit; infinite without
            overlap.
        inliers: Matches that agree with the pose.
        matches: All matches between both scans.
        resolution: Working resolution, in the target's unit.
        scale: Estimated factor from lengths of the source to lengths of the target. A pose is no success if
            it differs from the factor of `T_target_source`: 1, or the option `scale`. With
            `scale="estimate"`, both are equal.
        scale_deviation: Standard deviation of `scale`; infinite if the overlap does not determine it.
        alternatives: Other plausible poses, best first. Their probabilities and the confidence sum to at
            most 1.
        viewpoints: Viewpoints of source and target whose free space was used; None where it is not known.
        covariance: (6, 6) of the twist (v, ω) that moves this pose to the true one, if the pose is right:
            a point x of the target's frame moves to centre + v + R(ω) (x − centre). v is in target units,
            ω a rotation vector in radians. A motion that the overlap does not determine has the extent of
            the overlap as its standard deviation. None if no pose was found. See `covariance_at`.
        covariance_centre: (3,) that centre: the middle of the overlap, in target coordinates.
        warnings: Sentences about the result: why it failed, and what to try next.
        timings: Seconds of each step.
        evidence: Measurements that the confidence was computed from; None if no pose was found.
        information: Information matrix of the pose, in model metres and the local frame of the target; None
            if no pose was found.
        described: Both scans with keypoints and descriptors; None if no pose was found.
        matched: Matches between the keypoints of `described`, and which of them are inliers; None if no pose
            was found.
        tilt: Angle in degrees between `up` (or `axis`) of the source and of the target under the pose; None
            if they are not known.
        files: Files of source and target; None where the scan was not given as a file.
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
    matched: MatchedKeypoints | None = None
    files: Files = (None, None)
    tilt: float | None = None

    @property
    def displacement(self) -> float:
        """Distance by which the pose moves the middle of the source; of the origin if no scan is kept.

        It is in the target's unit, and counts from the source multiplied by its `factor`.
        """
        middle = self.described[0].T_scan_local[:3, 3] if self.described else np.zeros(3)
        return float(np.linalg.norm(transform(middle[None], self.T_target_source)[0] - self.factor * middle))

    def inverse(self) -> Registration:
        """Return the registration of the swapped scans: the pose of the target in the frame of the source.

        `overlap` then is the share of the target's points; NaN if it is unknown, as in old files.
        Warnings and timings stay those of this pair.
        """
        covariance = None
        if self.covariance is not None and self.covariance_centre is not None:
            covariance = PoseCovariance(self.covariance, self.covariance_centre)
            covariance = covariance.in_frame(*split_similarity(inverse_similarity(self.T_target_source)))
        information = self.information
        if information is not None and self.described is not None:
            information = information.seen_from_source(self._pose_of_descriptions(*self.described))
        return replace(
            self,
            T_target_source=inverse_similarity(self.T_target_source),
            rmse=self.rmse / self.factor,
            resolution=self.resolution / self.factor,
            overlap=nan_if_none(self.overlap_target),
            overlap_target=finite_or_none(self.overlap),
            scale=1 / self.scale,
            scale_deviation=self.scale_deviation / self.scale**2,
            alternatives=[pose.inverse() for pose in self.alternatives],
            viewpoints=self.viewpoints[::-1],
            covariance=covariance.matrix if covariance else None,
            covariance_centre=covariance.centre if covariance else None,
            information=information,
            described=self.described and self.described[::-1],
            matched=self.matched and self.matched.swapped(),
            files=self.files[::-1],
        )

    def of_files(self, source: Any, target: Any) -> Registration:
        """Return a copy that names the files of both scans; scans in other forms have no file."""
        first, second = (
            expand_home(scan) if isinstance(scan, str | os.PathLike) else None for scan in (source, target)
        )
        return replace(self, files=(first, second))

    def as_rigid(self) -> Registration:
        """Return the registration of the source multiplied by `factor`: its `T_target_source` is rigid.

        Tools that take only rigid poses need it: multiply the source's coordinates by `factor`, then apply
        this pose. Alternatives with another factor are left out.
        """
        return rigid_result(self)

    def _pose_of_descriptions(self, source: Description, target: Description) -> Pose:
        """Return the pose between the local frames of both descriptions, in model metres."""
        T: Pose = inverse(target.T_scan_local) @ self.T_target_source @ source.T_scan_local
        T[:3, 3] /= target.unit
        return scaled_first(T, source.unit / target.unit)

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
        return result_file.to_dict(self)

    def save(self, path: str | Path, *, all_poses: bool = False) -> None:
        """Write the result to a .json file, or only the matrix `T_target_source` to a .txt file.

        Args:
            path: File to write.
            all_poses: Append the alternatives to a .txt file, each below a line "# probability …". A .json
                file always has them.
        """
        result_file.save(self, path, all_poses=all_poses)

    @classmethod
    def load(cls, path: str | Path) -> Registration:
        """Read a .json file that `save` wrote.

        The file holds neither `evidence` and `information` nor the described scans: they are None.
        """
        return cls(**result_file.load_fields(path))

    def __bool__(self) -> NoReturn:
        """Raise an error: `if result:` could mean a success, or a result that is not None."""
        raise TypeError(
            f"the truth of a {type(self).__name__} is ambiguous: write `result.success` or "
            "`result is not None`"
        )

    def __repr__(self) -> str:
        return (
            f"Registration(success={self.success}, confidence={self.confidence:.3f}, "
            f"overlap={self.overlap:.2f}, rmse={self.rmse:.3g})"
        )

    def __str__(self) -> str:
        T = self.T_target_source
        degrees = float(np.degrees(rotation_angle(self.rotation)))
        rows = ["  " + " ".join(f"{value:12.6f}" for value in row) for row in T]
        lines = [
            f"Registration: {'success' if self.success else 'NO success'}, confidence {self.confidence:.3f}",
            f"  rotation {degrees:.2f}°, translation {self.displacement:.4g}",
            *([f"  deviation {self.deviation_text} at the overlap"] if self.covariance is not None else []),
            f"  overlap {_percent(self.overlap)} of the source, rmse {self.rmse:.3g}",
            f"  scale {self.scale:.4g} ± {self.scale_deviation:.2g}",
            f"  {self.inliers} inliers of {self.matches} matches, resolution {self.resolution:.4g}",
            f"  viewpoints: {self.viewpoints_text}",
            *([f"  {self.alternatives_text}"] if self.alternatives else []),
            *(f"  warning: {warning}" for warning in self.warnings),
            "T_target_source:",
        ]
        return "\n".join(lines + rows)


def _percent(share: float) -> str:
    return "unknown" if math.isnan(share) else f"{share:.0%}"
