"""Warnings of a registration: what may be wrong with a pose, and what to try next."""

from __future__ import annotations

from typing import Any

from wsdesc.cloud.units import extent
from wsdesc.registration.candidate import SCALE_CHECKED, Candidate
from wsdesc.registration.result import SUCCESS

MUCH_LARGER = 4.0  # ratio of the extents of two scans from which on one may be an object in the other
COARSE_ROUNDING = 0.5  # resolutions to which coordinates are rounded, from which on a warning says so
VIOLATION = 0.01  # share of points in free space from which on a pose without success has a warning


def as_sentence(text: str) -> str:
    """Capitalize the first letter and end with a period."""
    return text[:1].upper() + text[1:].rstrip(".") + "."


def no_alignment_found(resolution: float) -> str:
    """Explain a registration without any pose."""
    return (
        "No alignment found. Do the scans overlap? Do they have the same unit? "
        f"Try another resolution (this one: {resolution:.4g}) or more keypoints."
    )


def suggest_find(source: Any, target: Any) -> list[str]:
    """Suggest `wsdesc find` if one of two clouds (N, 3) is much smaller than the other."""
    sizes = [extent(cloud) for cloud in (source, target)]
    ratio = max(sizes) / max(min(sizes), 1e-300)
    if ratio < MUCH_LARGER:
        return []
    small, large = ("source", "target") if sizes[0] < sizes[1] else ("target", "source")
    return [
        f"The {large} is {ratio:.0f} times as large as the {small}. If the {small} is an object in it, use "
        f"wsdesc find {small.upper()} {large.upper()}."
    ]


def coarse_coordinates(name: str, rounding: float, resolution: float) -> list[str]:
    """Explain that float32 coordinates far from the origin have lost the shape of a scan.

    Args:
        name: Which scan it is: source or target.
        rounding: Distance between neighbouring float32 coordinates.
        resolution: Working resolution, in the same unit.
    """
    if rounding < COARSE_ROUNDING * resolution:
        return []
    return [
        f"The coordinates of the {name} are rounded to multiples of {rounding:.3g}, the resolution is "
        f"{resolution:.3g}: float32 numbers have too few digits this far from the origin. Export the scan in "
        "double precision, or with coordinates near the origin."
    ]


def no_scale_found(resolution: float) -> str:
    """Explain a registration with unknown scale that found no pose."""
    return (
        "No alignment found at any scale. Do the scans overlap? Try another resolution (this one: "
        f"{resolution:.4g}, in the target's unit), or give the scale if it is known."
    )


def scale_not_determined(scale: float, deviation: float) -> str:
    """Explain that a similarity fits at many scales."""
    return (
        f"The overlap does not determine the scale ({scale:.3g} ± {deviation:.2g}), as a plane or a corner. "
        "Give the scale if it is known, or scans that share more."
    )


def scales_compete(scale: float, other: float, probability: float) -> str:
    """Explain that poses at two scales are plausible."""
    return (
        f"A pose at another scale is also plausible: {other:.3g} (probability {probability:.2f}) instead of "
        f"{scale:.3g}. Give the scale if it is known."
    )


def warnings_about(candidate: Candidate, resolution: float) -> list[str]:
    """List the warnings about a pose; a success has at most those of its degeneracy and scale."""
    scale, degeneracy = candidate.scale, candidate.degeneracy
    warnings = [as_sentence(degeneracy.warning)] if degeneracy.warning else []
    size = f"{scale.factor:.3f} ± {scale.factor * scale.deviation:.3f}"
    if candidate.confidence >= SUCCESS:
        if scale.suspicious:
            warnings.append(
                f"The scans may differ in scale: the source may be {size} times as large as it should be."
            )
        elif scale.unchecked:
            warnings.append(
                "The overlap does not show whether the scans have the same scale: check the units if the "
                "scans come from different sources."
            )
        return warnings
    if candidate.probability >= SCALE_CHECKED and scale.differs:
        warnings.append(
            f"The scans differ in scale: the source is {size} times as large as it should be. Check the "
            f'units, or give scale={1 / scale.factor:.4g} (--scale), or scale="estimate".'
        )
    violation = candidate.evidence.violation
    if violation is not None and violation > VIOLATION:
        warnings.append(
            f"{violation:.1%} of the points in view lie where the other scanner saw free "
            "space: the pose is wrong, or something moved between the scans."
        )
    if candidate.ambiguous:
        warnings.append(
            f"Another pose is also plausible (probability {candidate.rival:.2f}, see --all): the scene may "
            "be symmetric or repetitive, or the scans may not overlap."
        )
    if not warnings:
        warnings.append(
            f"The pose is uncertain (confidence {candidate.confidence:.2f}, a success needs {SUCCESS}). Do "
            f"the scans overlap? Try another resolution (this one: {resolution:.4g}) or more keypoints."
        )
    return warnings
