"""Degeneracy: motions that an overlap does not determine, such as the sliding of a plane."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wsdesc.alignment.information.matrix import MIN_PAIRS, Information
from wsdesc.core.geometry import Floats, check_length

# A twist is undetermined if the mean square motion along the normals is below this: the noise of normals in
# M pairs of scans whose noise is half the resolution (a third of it was measured).
UNDETERMINED, UNDETERMINED_NOISE = 0.002, 0.08  # UNDETERMINED + UNDETERMINED_NOISE / √M
THIN = 2.0  # overlap distances between parallel planes above which they count as several
_MAX_PITCH = 0.3  # extents per radian up to which a twist counts as a rotation, not as a screw
_MIN_ROTATION = 0.35  # least rotation part of a unit twist that counts: noise turns shifts a little

_WARNINGS = {
    "empty": "the scans do not overlap: nothing determines the pose",
    "plane": "the overlap is one plane: the scans can slide along it and rotate on it",
    "parallel planes": "the overlap is parallel planes: the scans can slide along them and rotate on them",
    "corridor": "the overlap leaves one direction open, as in a corridor: the scans can slide along it",
    "cylinder": "the overlap is a cylinder: the scans can slide along its axis and rotate about it",
    "sphere": "the overlap is a sphere: the scans can rotate about its centre",
    "revolution": "the overlap is rotationally symmetric: the scans can rotate about its axis",
    "screw": "the overlap has a screw symmetry: the scans can rotate and slide along its axis",
    "other": "the overlap leaves several motions undetermined",
}


class Degeneracy(NamedTuple):
    """Motions that the geometry of an overlap does not determine."""

    kind: str | None  # shape of the overlap; None where the pose is determined
    conditioning: float  # least over greatest eigenvalue of the information, 0 … 1
    twists: Floats  # (F, 6) undetermined twists, in the units of `Information`
    warning: str | None  # a sentence for the user


def find_degeneracy(information: Information, distance: float) -> Degeneracy:
    """Name the motions that are not determined; `distance` is that of the information."""
    check_length(distance, "distance")
    values, vectors = np.linalg.eigh(information.matrix)  # ascending
    if information.pairs < MIN_PAIRS or information.extent < distance:
        return Degeneracy("empty", 0.0, np.eye(6), _WARNINGS["empty"])
    noise = UNDETERMINED + UNDETERMINED_NOISE / np.sqrt(information.pairs)
    twists = vectors[:, values < noise].T  # (F, 6)
    kind = _name_shape(twists, information.height, distance) if len(twists) else None
    conditioning = float(np.clip(values[0] / values[-1], 0.0, 1.0))
    return Degeneracy(kind, conditioning, twists, _WARNINGS[kind] if kind else None)


def _name_shape(twists: Floats, height: float, distance: float) -> str:
    """Name the shape that these twists (F, 6), F ≥ 1, leave unchanged; there are no other such shapes."""
    shifts = len(twists) - _rank(twists[:, 3:])  # combinations without rotation
    match len(twists), shifts:
        case (1, 1):
            return "corridor"
        case (1, 0):
            shift, rotation = twists[0, :3], twists[0, 3:]
            pitch = abs(shift @ rotation) / (rotation @ rotation)  # extents per radian
            return "revolution" if pitch < _MAX_PITCH else "screw"
        case (2, 1):
            return "cylinder"
        case (2 | 3, 2):
            return "parallel planes" if height > THIN * distance else "plane"
        case (3, 0):
            return "sphere"
        case _:
            return "other"


def _rank(rotations: Floats) -> int:
    """Count the independent rotations among the rotation parts (F, 3) of unit twists."""
    return int((np.linalg.svd(rotations, compute_uv=False) > _MIN_ROTATION).sum())
