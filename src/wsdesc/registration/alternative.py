"""Other plausible poses of a registered pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wsdesc.core.similarity import check_similarity, inverse_similarity
from wsdesc.registration.plain_values import finite_or_none, float_or_none, infinite_if_none, nan_if_none
from wsdesc.registration.pose import Pose, PoseMethods

PLAUSIBLE = 0.01  # lowest probability of an alternative pose


@dataclass(frozen=True, eq=False)
class AlternativePose(PoseMethods):
    """Another plausible pose of a registered pair. At most one pose of a pair is right.

    Attributes:
        T_target_source: (4, 4) transformation from source to target coordinates, as in `Registration`.
        probability: Probability that this pose is the right one, 0.01 … 1.
        overlap: Share of the source's points with a partner in the target, 0 … 1.
        rmse: Root mean square point-to-plane distance in the overlap, in the target's unit.
        overlap_target: Share of the target's points with a partner in the source; None if unknown.
    """

    T_target_source: Pose
    probability: float
    overlap: float
    rmse: float
    overlap_target: float | None = None

    def __repr__(self) -> str:
        return (
            f"AlternativePose(probability={self.probability:.3f}, overlap={self.overlap:.2f}, "
            f"rmse={self.rmse:.3g})"
        )

    def inverse(self) -> AlternativePose:
        """Return the pose of the target in the frame of the source."""
        return AlternativePose(
            T_target_source=inverse_similarity(self.T_target_source),
            probability=self.probability,
            overlap=nan_if_none(self.overlap_target),
            rmse=self.rmse / self.factor,
            overlap_target=finite_or_none(self.overlap),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON. An infinite `rmse` becomes None."""
        return {
            "T_target_source": self.T_target_source.tolist(),
            "probability": self.probability,
            "overlap": finite_or_none(self.overlap),
            "overlap_target": self.overlap_target,
            "rmse": finite_or_none(self.rmse),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> AlternativePose:
        """Read the values of `to_dict`."""
        return cls(
            T_target_source=check_similarity(values["T_target_source"], "T_target_source"),
            probability=float(values["probability"]),
            overlap=nan_if_none(values["overlap"]),
            overlap_target=float_or_none(values.get("overlap_target")),
            rmse=infinite_if_none(values["rmse"]),
        )
