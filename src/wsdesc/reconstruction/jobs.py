"""Jobs of a reconstruction, and their results.

Jobs hold paths, content hashes and settings instead of points: processes and cluster workers receive them
cheaply. Results convert to plain JSON values and back for the journal.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from wsdesc.alignment.information import Information
from wsdesc.core.devices import choose_device
from wsdesc.core.geometry import Floats
from wsdesc.core.journal import PlainResult


@dataclass(frozen=True)
class HashedScan:
    """A scan on disk and a hash of its content."""

    path: str  # absolute; all workers find the file there
    content: str  # hash of the file


@dataclass(frozen=True)
class DescribeSettings:
    """Settings that the descriptions of a run share."""

    model: str  # name or path of the weights
    weights: str  # hash of the weights
    resolution: float  # in the scans' unit
    keypoints: int  # per scan, described
    max_keypoints: int  # per scan, selected: a second round describes more of them
    device: str
    seed: int

    def identity(self) -> dict[str, Any]:
        """Return everything that a description depends on besides the scan."""
        values = asdict(self)
        del values["max_keypoints"]  # the first keypoints do not depend on how many are selected
        if self.device == "auto":
            values["device"] = choose_device("auto")
        return values


@dataclass(frozen=True)
class DescribeJob:
    """Describe a scan, or find its description in the cache."""

    file: HashedScan
    settings: DescribeSettings
    cache_path: str  # of the description
    smaller_cache_path: str | None = None  # of a description of the same scan with fewer keypoints


@dataclass(frozen=True)
class RegisterJob:
    """Register two described scans."""

    source: DescribeJob
    target: DescribeJob
    thorough: bool = False  # verify and refine more hypotheses


@dataclass(frozen=True)
class FailedScan:
    """A scan that cannot be read or described, and why."""

    error: str


@dataclass(frozen=True)
class ScanSurvey:
    """Scale of a readable scan, in its unit."""

    spacing: float  # between neighbouring points
    extent: float  # of the scanned surface


@dataclass(frozen=True)
class DescribedScan:
    """Frame and size of a scan whose description is in the cache."""

    T_scan_local: tuple[tuple[float, ...], ...]  # (4, 4) from the description's frame to file coordinates
    radius: float  # root mean square distance of the points from the local origin, in model metres


@dataclass(frozen=True, eq=False)
class CandidatePose:
    """One candidate of a pair, in model metres, between the local frames of the descriptions."""

    T_target_source: Floats  # (4, 4)
    confidence: float
    ambiguous: bool  # another candidate of the pair is also plausible
    overlap: float  # share of the source's points with a partner in the target
    rmse: float | None  # in the overlap; None without overlap
    information: Information
    visible: int = 0  # points of both scans that the other scanner could see
    violating: int = 0  # of these, in space that it saw through
    patch_gap: float | None = None  # between patches of both scans; None if unknown

    def to_plain(self) -> PlainResult:
        """Return JSON values."""
        information = {name: np.asarray(value).tolist() for name, value in self.information._asdict().items()}
        return {**vars(self), "T_target_source": self.T_target_source.tolist(), "information": information}

    @classmethod
    def from_plain(cls, plain: PlainResult) -> CandidatePose:
        """Read what `to_plain` returned; the numbers keep their bits."""
        values: dict[str, Any] = {
            name: np.array(value) if isinstance(value, list) else value
            for name, value in plain["information"].items()
        }
        poses: dict[str, Any] = {
            "T_target_source": np.array(plain["T_target_source"]),
            "information": Information(**values),
        }
        return cls(**{**plain, **poses})


@dataclass(frozen=True, eq=False)
class PairRegistration:
    """Candidates of a pair that differ from each other, best first; none if the scans do not fit."""

    candidates: tuple[CandidatePose, ...]


@dataclass(frozen=True)
class CheckJob:
    """Check relative poses of two described scans by free space."""

    source: DescribeJob
    target: DescribeJob
    poses: tuple[tuple[tuple[float, ...], ...], ...]  # T_target_source (H, 4, 4), in model metres


@dataclass(frozen=True)
class PoseChecks:
    """Points of two scans that the other scanner could see, at each of some poses; (H,) each."""

    visible: tuple[int, ...]  # at the other scan's surface, or in its free space
    violating: tuple[int, ...]  # of these, in its free space
    share: tuple[float, ...]  # of visible points that violate, 0 … 1
    overlap: tuple[float, ...]  # of the scan where it is smaller, within four resolutions


Result = FailedScan | ScanSurvey | DescribedScan | PairRegistration | PoseChecks


def encode(result: Result) -> PlainResult:
    """Convert a result to JSON values."""
    if isinstance(result, PairRegistration):
        return {"candidates": [candidate.to_plain() for candidate in result.candidates]}
    return asdict(result)


def decode(plain: PlainResult) -> Result:
    """Convert JSON values back to a result."""
    if "candidates" in plain:
        return PairRegistration(tuple(map(CandidatePose.from_plain, plain["candidates"])))
    if "violating" in plain:
        return PoseChecks(**{name: tuple(values) for name, values in plain.items()})
    if "T_scan_local" in plain:
        return DescribedScan(tuple(map(tuple, plain["T_scan_local"])), plain["radius"])
    return FailedScan(**plain) if "error" in plain else ScanSurvey(**plain)
