"""What `reconstruct` does with single scans and with pairs: jobs that can be done anywhere.

A job holds plain values: paths of files that all workers see, hashes of what they hold, and settings. What is
large, the description of a scan, lies in a cache on the disk, under a hash of all that it depends on.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from wsdesc.alignment.surface import Surface
from wsdesc.cloud.files import read_points
from wsdesc.cloud.units import extent, spacing
from wsdesc.core.errors import InputError, WSDescError
from wsdesc.core.executors import Job, Result
from wsdesc.core.journal import content_of
from wsdesc.descriptor.description import Description, cleaned_points, load_model, prepare_scan
from wsdesc.registration.candidates import find_candidates

_KEPT = 64  # described scans in memory: with all pairs each of many is needed again and again


def survey_scan(job: Job) -> Result:
    """Whether a scan can be read, and its scale."""
    try:
        points = read_points(job["path"], nonfinite="drop")
        return {"spacing": spacing(points), "extent": extent(points)}
    except WSDescError as error:
        return {"error": str(error)}


def describe_scan(job: Job) -> Result:
    """Have the description of a scan in the cache; where the scan is, and how large."""
    try:
        found = described(job)
    except Unusable as error:
        return {"error": f"{job['path']}: {error}"}
    radius = float(found.points.double().square().sum(1).mean().sqrt())
    return {"offset": found.offset.tolist(), "radius": radius}


def register_pair(job: Job) -> Result:
    """Poses of one described scan in another, in metres of the model about the middles of both, best first.

    The confidence of each knows of the others.
    """
    (p, source), (q, target) = (_ready(tuple(sorted(job[end].items()))) for end in ("source", "target"))
    found = find_candidates(p, q, (source, target), distinct=True, seed=job["source"]["seed"])
    poses: list[Result] = []
    for candidate in found.ranked:
        held = candidate.refined.information
        poses.append(
            {
                "T_target_source": candidate.refined.T_target_source.tolist(),
                "confidence": candidate.confidence,
                "alike": candidate.evidence.repeats or candidate.evidence.ambiguous,
                "overlap": candidate.refined.agreement.overlap_source,
                "rmse": candidate.refined.rmse if held.places else None,
                "information": [x.tolist() if isinstance(x, np.ndarray) else x for x in held],
            }
        )
    return {"poses": poses}


class Unusable(InputError):
    """A scan that can be read but not described."""


def described(job: Job) -> Description:
    """A description from the cache; what is not there, or was cut off, is made anew.

    Where it has fewer keypoints than `more` asks for, a second entry holds those that were added.
    """
    entry = Path(job["entry"])
    with suppress(Exception):  # whatever half a file leads to
        return Description.load(entry)
    if content_of(job["path"]) != job["content"]:
        raise InputError(f"{job['path']}: was changed while it was worked on: start again")
    try:
        model, name = load_model(job["model"], job["device"])
        found = None
        if "begun" in job:
            with suppress(Exception):
                found = Description.load(job["begun"])
        if found is None:
            found = prepare_scan(
                cleaned_points(job["path"]), job["resolution"], name, job["seed"], job["most"]
            )
        found = found.extend(model, job["keypoints"])
    except WSDescError as error:
        raise Unusable(str(error)) from error
    found.save(entry)
    return Description.load(entry)


@lru_cache(maxsize=_KEPT)
def _ready(items: tuple[tuple[str, Any], ...]) -> tuple[Description, Surface]:
    found = described(dict(items))
    return found, Surface.of(found.points.numpy())
