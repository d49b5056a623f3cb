"""State of a registered pair in the result of a reconstruction."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from wsdesc.core.geometry import Floats
from wsdesc.registration.result import Pose

MAY_REPEAT = "the place may repeat"  # begins the reasons of the checks for repetitive structure


@dataclass(frozen=True, eq=False)
class EdgeResult:
    """A registered pair of scans, and its state in the pose graph.

    Attributes:
        source: Name of the source scan.
        target: Name of the target scan.
        T_target_source: (4, 4) pose, in file coordinates; None if registration found none.
        confidence: Probability that the pose is right, 0 … 1.
        overlap: Share of the source's points with a partner in the target, 0 … 1.
        rank: Rank of this pose among the candidates of the pair: 0 fits best, others agree better with the
            other edges.
        keypoints: Keypoints per scan that the pair was registered with.
        rejection: Why the edge was rejected; None if it was accepted.
        deviation: Distance between this pose and the final poses of both scans, in standard deviations of
            the edge; None if it was rejected.
        rmse: Root mean square distance of the overlap, point to plane, in the scans' unit; None if there is
            no pose.
        information: (6, 6) inverse covariance of a small motion (translation, rotation vector) that is
            applied to the source in its own coordinates; None if the edge was rejected.
    """

    source: str
    target: str
    T_target_source: Pose | None
    confidence: float
    overlap: float
    rank: int
    keypoints: int
    rejection: str | None
    deviation: float | None
    rmse: float | None = None
    information: Floats | None = None

    def __repr__(self) -> str:
        return (
            f"EdgeResult({self.source!r}, {self.target!r}, accepted={self.accepted}, "
            f"confidence={self.confidence:.3f}, overlap={self.overlap:.2f})"
        )

    @property
    def accepted(self) -> bool:
        """True if the pose graph uses this edge."""
        return self.rejection is None

    @property
    def may_repeat(self) -> bool:
        """True if a check for repetitive structure rejected this edge."""
        return self.rejection is not None and self.rejection.startswith(MAY_REPEAT)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        T = None if self.T_target_source is None else self.T_target_source.tolist()
        information = None if self.information is None else self.information.tolist()
        matrices = {"T_target_source": T, "information": information}
        return {**asdict(self), **matrices, "accepted": self.accepted}
