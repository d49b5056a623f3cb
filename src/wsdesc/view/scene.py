"""Scenes: drawn scans, lines and texts, independent of the output.

`build` makes scenes of scans, `results` makes scenes of results. `page` writes a scene as HTML, `server`
shows it in a browser, `snapshot` makes a picture of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.geometry import Floats
from wsdesc.view.colours import Colour, OwnColours
from wsdesc.view.distances import Distances
from wsdesc.view.frame import SceneFrame
from wsdesc.view.geometry import QuaternionPose

MAX_POINTS = 120_000  # points of all scans together: a browser rotates so many without delay


class MatchLines(NamedTuple):
    """Matched keypoints, drawn as lines."""

    source: Floats  # (M, 3)
    target: Floats  # (M, 3)
    inlier: NDArray[np.bool_]  # (M,) whether the match agrees with the pose


class Supports(NamedTuple):
    """Voxel grids that the descriptors of keypoints are computed from."""

    keypoints: Floats  # (K, 3)
    axes: Floats  # (K, 3, 3) frames, in columns
    sides: Floats  # (K,) side lengths of the grids
    grids: NDArray[np.uint8]  # (K, h, h, h) occupancy, 255 = full; the first index follows the first axis


class EdgeView(NamedTuple):
    """A registered pair of a reconstruction, drawn as a line."""

    source: int  # index into `SceneView.scans`
    target: int
    confidence: float
    accepted: bool


class PoseChoice(NamedTuple):
    """A pose that a user can choose for a scan."""

    name: str
    pose: QuaternionPose
    probability: float | None = None  # probability that the pose is right


@dataclass(frozen=True, eq=False)
class ScanView:
    """A scan as it is drawn: reduced points relative to its centre, and its pose before and after."""

    name: str
    colour: Colour
    points: Floats  # (N, 3)
    normals: Floats  # (N, 3), of arbitrary sign
    total: int  # points of the whole scan
    start: QuaternionPose
    end: QuaternionPose
    supports: Supports | None = None
    choices: tuple[PoseChoice, ...] = ()  # poses that can replace `end`, which is the first of them
    own_colours: OwnColours | None = None
    distances: tuple[Distances, ...] = ()  # to the other scans: at `end`, or at each of the choices
    viewpoint: Floats | None = None  # (3,) position of the scanner

    def __repr__(self) -> str:
        return f"ScanView({self.name!r}: {len(self.points):,} of {self.total:,} points)"


@dataclass(frozen=True, eq=False)
class SceneView:
    """Scans, matches between the first two scans, and edges between any."""

    title: str
    scans: list[ScanView]
    spacing: float  # median distance between neighbouring points
    frame: SceneFrame
    unit: str = ""  # name of the unit of length; empty if it is not known
    success: bool | None = None  # None for scans without a result
    verdict: str = ""  # the result in a few words
    matches: MatchLines | None = None  # relative to the centres of the first two scans
    match_counts: tuple[int, int] = (0, 0)  # inliers and outliers, including those that are not drawn
    edges: list[EdgeView] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)  # lines of text beside the picture
    warnings: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"SceneView({self.title!r}: {', '.join(scan.name for scan in self.scans)}; {self.point_count})"

    @property
    def moves(self) -> bool:
        """Whether the pose of a scan differs between start and end."""
        return any(not scan.start.is_close(scan.end) for scan in self.scans)

    @property
    def point_count(self) -> str:
        """Text with the numbers of drawn points and of all points."""
        shown, total = sum(len(s.points) for s in self.scans), sum(s.total for s in self.scans)
        if shown == total:
            return f"all {total:,} points shown" if total > 1 else "its only point is shown"
        return f"{shown:,} of {total:,} points shown"
