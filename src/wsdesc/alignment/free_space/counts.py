"""Counts of points in the free space of another scan, and the constants of both backends."""

from __future__ import annotations

from typing import NamedTuple

_PRIOR = 30  # points at the surface that are added, so that few points are no evidence


class Limits(NamedTuple):
    """When a point in front of a surface violates free space."""

    margin: float  # working resolutions that it must be in front of the surface,
    relative_margin: float  # plus this share of the range: noise and errors of rotation grow with it
    neighbours: int  # of its 4 neighbours that must violate free space, too: single points are stray or thin


LIMITS = Limits(margin=4.0, relative_margin=0.05, neighbours=2)
# Small things, such as a bicycle at a wall, are closer to the surface behind them, and have many points.
DENSE_LIMITS = Limits(margin=1.5, relative_margin=0.02, neighbours=4)


class ViewCounts(NamedTuple):
    """Sample points of one scan, as the scanner of the other scan would have seen them."""

    in_view: int = 0  # in directions in which the other scan knows its free space
    at_surface: int = 0  # of these, at the end of the free space: the scanner saw a surface there
    violating: int = 0  # of these, within the free space: the scanner saw through them


class FreeSpace(NamedTuple):
    """Agreement of one pose with the free space of both scans. All counts are 0 without any viewpoint."""

    source: ViewCounts = ViewCounts()  # the source's sample, seen from the target's viewpoint
    target: ViewCounts = ViewCounts()  # the target's sample, seen from the source's viewpoint

    @property
    def in_view(self) -> int:
        """Points in directions with known free space, of both scans."""
        return self.source.in_view + self.target.in_view

    @property
    def visible(self) -> int:
        """Points that are not hidden behind the surfaces of the other scan: they tell something."""
        return sum(side.at_surface + side.violating for side in self)

    @property
    def violating(self) -> int:
        """Points in space that a scanner saw through, of both scans."""
        return self.source.violating + self.target.violating

    @property
    def violation(self) -> float:
        """Share of the visible points that violate free space, 0 … 1; small if few points are visible."""
        return self.violating / (self.visible + _PRIOR)
