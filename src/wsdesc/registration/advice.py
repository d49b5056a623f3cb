"""Warnings of a registration: what may be wrong with a pose, and what to try next."""

from __future__ import annotations

from collections.abc import Sequence

from wsdesc.alignment.confidence import Evidence
from wsdesc.alignment.information import Degeneracy
from wsdesc.alignment.scale import RelativeScale
from wsdesc.registration.result import SUCCESS, AlternativePose


def as_sentence(text: str) -> str:
    """Capitalize the first letter and end with a period."""
    return text[:1].upper() + text[1:].rstrip(".") + "."


def no_alignment_found(resolution: float) -> str:
    """Explain a registration without any pose."""
    return (
        "No alignment found. Do the scans overlap? Do they have the same unit? "
        f"Try another resolution (this one: {resolution:.4g}) or more keypoints."
    )


def warnings_about(
    degeneracy: Degeneracy,
    evidence: Evidence,
    confidence: float,
    resolution: float,
    scale: RelativeScale | None = None,
    alternatives: Sequence[AlternativePose] = (),
) -> list[str]:
    """List the warnings about a pose; a success has at most those of its degeneracy and scale."""
    warnings = [as_sentence(degeneracy.warning)] if degeneracy.warning else []
    size = f"{scale.factor:.3f} ± {scale.factor * scale.deviation:.3f}" if scale is not None else ""
    if confidence >= SUCCESS:
        if scale is not None and scale.suspicious:
            warnings.append(f"The scans may differ in scale: the source may be {size} times too large.")
        return warnings
    if scale is not None and scale.differs:
        warnings.append(
            f"The scans differ in scale: the source is {size} times as large as it should be. Check the "
            f"units, or divide its coordinates by {scale.factor:.3f}."
        )
    if evidence.ambiguous:
        warnings.append(
            f"A second pose fits nearly as well{_probability(alternatives)}: the scene may be symmetric, or "
            "the scans may not overlap."
        )
    elif evidence.repetitive:
        warnings.append(
            f"A second pose is also plausible{_probability(alternatives)}: the scene may contain repetitive "
            "structure."
        )
    if not warnings:
        warnings.append(
            f"The pose is uncertain (confidence {confidence:.2f}, a success needs {SUCCESS}). Do the scans "
            f"overlap? Try another resolution (this one: {resolution:.4g}) or more keypoints."
        )
    return warnings


def _probability(alternatives: Sequence[AlternativePose]) -> str:
    """Say how probable the second pose is, and how to see it."""
    return f" (probability {alternatives[0].probability:.2f}, see --all)" if alternatives else ""
