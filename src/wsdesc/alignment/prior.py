"""What is known about a pose beforehand: it is near a guess, it is upright, the scans overlap.

All lengths are in metres of the model, all poses between the local frames of two scans. The origin of a local
frame is the middle of its scan. Limits have a margin: the right pose may be at a limit, and a pose that was
found has an error. The margin of a hypothesis is wider, so that refinement can bring it into the limits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wsdesc.alignment.information import Information
from wsdesc.alignment.refine import orthonormalise
from wsdesc.alignment.verify import PoseScore
from wsdesc.core.geometry import Floats, motion_about
from wsdesc.core.rotations import rotation_matrix

Mask = NDArray[np.bool_]

REACH = 0.2  # metres by which refinement moves a pose: its largest search distance, 8 resolutions
REACH_ANGLE = math.radians(10)  # the same of rotations
MARGIN_ANGLE = math.radians(5)  # error of a refined pose; that of its position is within REACH
MARGIN_OVERLAP, COARSE_OVERLAP = 0.9, 0.5  # shares of the least overlap: of a candidate, of a hypothesis
ROUNDING = 1e-7  # radians, of angles that are compared with limits
FRAME_ANGLE = math.radians(45)  # local frames of a right match differ from the pose by less
NARROW = 2.0  # limits up to so many times REACH and REACH_ANGLE: refined poses around the guess cover them
# Log odds that a guess with narrow limits adds to each pose. Such limits exclude nearly all wrong poses, and
# the scans hardly fit at the others. `benchmarks/guesses.py` fits 3.2. Less is used, as no set of scans there
# has guesses at an equal part of a place.
GUESS_LOG_ODDS = 1.5
WEAK = 1e-3  # share of the largest information below which levelling leaves a motion as it is


@dataclass(frozen=True, eq=False)
class Near:
    """The pose is near a guess."""

    guess: Floats  # (4, 4) T_target_source
    radius: float  # largest distance of the source's middle from where the guess puts it; may be infinite
    angle: float  # largest rotation from the guess, in radians; π allows all
    size: float  # root mean square distance of the source's points from its middle

    @property
    def narrow(self) -> bool:
        """True if the limits are so small that a few refined poses around the guess cover them."""
        return self.radius <= NARROW * REACH and self.angle <= NARROW * REACH_ANGLE

    @property
    def max_distance(self) -> float:
        """Largest distance of a refined pose."""
        return self.radius + REACH

    @property
    def max_angle(self) -> float:
        """Largest rotation of a refined pose, in radians."""
        return self.angle + MARGIN_ANGLE

    def distances(self, poses: Floats) -> Floats:
        """Return the distances (H,) of the source's middle under poses (H, 4, 4) from where it is guessed."""
        return np.asarray(np.linalg.norm(poses[:, :3, 3] - self.guess[:3, 3], axis=1))

    def angles(self, poses: Floats) -> Floats:
        """Return the rotations (H,), in radians, of poses (H, 4, 4) from the guess."""
        cosines = (np.einsum("hij,ij->h", poses[:, :3, :3], self.guess[:3, :3]) - 1) / 2
        return np.asarray(np.arccos(np.clip(cosines, -1, 1)))

    def allows(self, poses: Floats, *, refined: bool) -> Mask:
        """Return which of the poses (H, 4, 4) are within the limits: (H,)."""
        radius, angle = self.max_distance, self.max_angle
        if not refined:  # a rotation about the overlap also moves the middle of the scan
            radius, angle = radius + REACH + REACH_ANGLE * self.size, angle + REACH_ANGLE
        return (self.distances(poses) <= radius) & (self.angles(poses) <= angle)

    def possible_matches(self, source: Tensor, target: Tensor) -> Tensor:
        """Return which keypoints (K, 3) and (L, 3) an allowed pose can bring together: (K, L) bool."""
        T = torch.from_numpy(self.guess).to(source)
        turn = 2 * math.sin(min(self.max_angle, math.pi) / 2)
        limits = self.max_distance + turn * source.norm(dim=1)  # (K,)
        distances = torch.cdist(source @ T[:3, :3].T + T[:3, 3], target)
        possible: Tensor = distances <= limits[:, None]
        return possible


@dataclass(frozen=True, eq=False)
class Upright:
    """A direction is known in both scans, such as up: the pose maps one onto the other."""

    source: Floats  # (3,) unit vector in the source
    target: Floats  # (3,) the same direction in the target
    max_tilt: float  # largest angle between them under the pose, in radians
    exact: bool = False  # the pose leaves no tilt at all: it is removed after refinement

    @property
    def name(self) -> str:
        """Name of the option that gives the direction."""
        return "axis" if self.exact else "up"

    def tilts(self, poses: Floats) -> Floats:
        """Return the angles (H,), in radians, between both directions under poses (H, 4, 4)."""
        moved = np.einsum("hij,j->hi", poses[:, :3, :3], self.source)
        sines = np.linalg.norm(np.cross(moved, self.target), axis=1)
        return np.asarray(np.arctan2(sines, np.einsum("hi,i->h", moved, self.target)))

    def allows(self, poses: Floats, *, refined: bool) -> Mask:
        """Return which of the poses (H, 4, 4) tilt by at most the limit: (H,)."""
        return self.tilts(poses) <= self.max_tilt + (ROUNDING if refined else REACH_ANGLE)

    def possible_matches(self, source: Tensor, target: Tensor) -> Tensor:
        """Return which frames (K, 3, 3) and (L, 3, 3) have similar angles to the direction: (K, L)."""
        seen = [
            torch.from_numpy(up).to(frames) @ frames
            for up, frames in ((self.source, source), (self.target, target))
        ]
        return seen[0] @ seen[1].T >= math.cos(min(self.max_tilt + FRAME_ANGLE, math.pi))

    def level(self, T: Floats, information: Information) -> Floats:
        """Remove the tilt of a refined pose (4, 4) where that harms the fit least.

        The information matrix is the quadratic cost of small motions. The tilt determines two of them. The
        other four, a shift and a rotation about the direction, minimise the cost.
        """
        moved = T[:3, :3] @ self.source
        across = np.cross(moved, self.target)
        sine = float(np.linalg.norm(across))
        tilt = math.atan2(sine, float(moved @ self.target)) * across / sine if sine > 0 else across
        matrix, extent = information.matrix, information.extent or 1.0  # rotations are scaled by the extent
        fixed = np.concatenate([np.zeros(3), tilt * extent])
        free = np.zeros((6, 4))
        free[:3, :3], free[3:, 3] = np.eye(3), self.target
        *shift, turn = -np.linalg.pinv(free.T @ matrix @ free, rcond=WEAK) @ (free.T @ matrix @ fixed)
        turn /= extent
        R = rotation_matrix(turn * self.target) @ rotation_matrix(tilt)
        return orthonormalise(motion_about(information.centre, R, shift) @ T)


@dataclass(frozen=True, eq=False)
class PosePrior:
    """All that is known about the pose of a pair beforehand."""

    near: Near | None = None
    upright: Upright | None = None
    overlap: float = 0.0  # least overlap of the scan that overlaps more

    def possible_matches(
        self, keypoints: tuple[Tensor, Tensor], frames: tuple[Tensor, Tensor]
    ) -> Tensor | None:
        """Return which keypoints of source and target may match: (K, L) bool, None for all."""
        masks = []
        if self.near is not None:
            masks.append(self.near.possible_matches(*keypoints))
        if self.upright is not None:
            masks.append(self.upright.possible_matches(*frames))
        return torch.stack(masks).all(0) if masks else None

    @property
    def log_odds(self) -> float:
        """Log odds that what is known adds to each pose that agrees with it."""
        return GUESS_LOG_ODDS if self.near is not None and self.near.narrow else 0.0

    def tilt(self, T: Floats) -> float | None:
        """Return the tilt of a pose (4, 4) in degrees; None if no direction is known."""
        return None if self.upright is None else math.degrees(self.upright.tilts(T[None])[0])

    def allows_overlap(self, score: PoseScore, *, refined: bool) -> bool:
        """Return whether the overlap of a pose suffices."""
        share = MARGIN_OVERLAP if refined else COARSE_OVERLAP
        return max(score.overlap_source, score.overlap_target) >= share * self.overlap

    def allows(self, poses: Floats, *, refined: bool = False) -> Mask:
        """Return which of the poses T_target_source (H, 4, 4) agree with the prior: (H,)."""
        mask = np.ones(len(poses), bool)
        for part in (self.near, self.upright):
            if part is not None:
                mask &= part.allows(poses, refined=refined)
        return mask
