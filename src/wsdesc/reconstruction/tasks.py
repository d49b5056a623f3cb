"""Tasks of a reconstruction: what a worker does with one job.

Descriptions are large. They stay in a cache on the disk, under a hash of everything they depend on.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import numpy as np

from wsdesc.alignment.free_space import FreeSpace, measure_free_space
from wsdesc.alignment.surface import Surface, make_surface
from wsdesc.alignment.verify import verify
from wsdesc.cloud.units import INDOOR_RESOLUTION, extent, spacing
from wsdesc.core.devices import choose_device
from wsdesc.core.errors import InputError, WSDescError
from wsdesc.core.journal import file_key
from wsdesc.core.kernels import single_threaded_torch
from wsdesc.descriptor.describe import load_model
from wsdesc.descriptor.description import Description
from wsdesc.descriptor.preparation import clean_scan, prepare_scan
from wsdesc.reconstruction.disambiguation import MIN_CANDIDATE_CONFIDENCE
from wsdesc.reconstruction.jobs import (
    CandidatePose,
    CheckJob,
    DescribedScan,
    DescribeJob,
    FailedScan,
    HashedScan,
    PairRegistration,
    PoseChecks,
    RegisterJob,
    ScanSurvey,
)
from wsdesc.registration.candidate import Candidate
from wsdesc.registration.candidates import find_candidates

_SCANS_IN_MEMORY = 64  # described scans that a worker keeps: each one is part of several pairs

# Hypotheses that are proposed and refined. In repetitive structure, few hypotheses miss the right pose.
_QUICK, _THOROUGH = (12, 4), (60, 12)
_CHECK_DISTANCE = 4 * INDOOR_RESOLUTION  # of an overlap at poses that are not refined


class _CannotDescribe(InputError):
    """A scan that can be read but not described."""


@single_threaded_torch()
def survey_scan(file: HashedScan) -> ScanSurvey | FailedScan:
    """Read a scan and measure its scale."""
    try:
        # In the local frame, the scale does not depend on the pose.
        points = clean_scan(file.path, "none").points
        return ScanSurvey(spacing(points), extent(points))
    except WSDescError as error:
        return FailedScan(str(error))


@single_threaded_torch()
def describe_scan(job: DescribeJob) -> DescribedScan | FailedScan:
    """Put the description of a scan into the cache."""
    try:
        description = load_description(job)
    except _CannotDescribe as error:
        return FailedScan(str(error))
    T_scan_local = tuple(map(tuple, description.T_scan_local.tolist()))
    return DescribedScan(T_scan_local, float(description.points.double().square().sum(1).mean().sqrt()))


@single_threaded_torch()
def register_pair(job: RegisterJob) -> PairRegistration:
    """Register two described scans; keep all candidates that differ from each other."""
    (p, source), (q, target) = _with_surface(job.source), _with_surface(job.target)
    hypotheses, refined = _THOROUGH if job.thorough else _QUICK
    candidates = find_candidates(
        p,
        q,
        (source, target),
        hypotheses=hypotheses,
        refined=refined,
        seed=job.source.settings.seed,
    )
    poses = [
        CandidatePose(
            T_target_source=candidate.refined.T_target_source,
            confidence=candidate.confidence,
            ambiguous=candidate.ambiguous,
            overlap=candidate.refined.score.overlap_source,
            rmse=candidate.refined.rmse if candidate.refined.information.pairs else None,
            information=candidate.refined.information,
            visible=free.visible,
            violating=free.violating,
            patch_gap=_patch_gap(candidate),
        )
        for candidate in candidates.ranked
        for free in [candidate.dense_free_space or FreeSpace()]
    ]
    return PairRegistration(tuple(poses))


def _patch_gap(candidate: Candidate) -> float | None:
    """Measure the gap of a candidate that is considered; None for others and for too little overlap."""
    gap = candidate.measure_patch_gap() if candidate.confidence >= MIN_CANDIDATE_CONFIDENCE else None
    return gap.distance if gap else None


@single_threaded_torch()
def check_poses(job: CheckJob) -> PoseChecks:
    """Measure the overlap of two scans, and their points in each other's free space, for each pose.

    No point counts without any viewpoint, or if a scan of an earlier model is not there any more.
    """
    measured = [FreeSpace()] * len(job.poses)
    overlaps = [0.0] * len(job.poses)
    poses = np.array(job.poses)
    with suppress(InputError):
        (p, source), (q, target) = _with_surface(job.source), _with_surface(job.target)
        scores = verify(source, target, poses, _CHECK_DISTANCE, coarse=True)
        overlaps = [min(score.overlap_source, score.overlap_target) for score in scores]
        images = p.range_image, q.range_image
        if any(image is not None for image in images):
            measured = list(measure_free_space(source, target, images, poses, dense=True))
    return PoseChecks(
        tuple(free.visible for free in measured),
        tuple(free.violating for free in measured),
        tuple(free.violation for free in measured),
        tuple(overlaps),
    )


def load_description(job: DescribeJob) -> Description:
    """Read a description from the cache; one that is absent or damaged is made again."""
    with suppress(Exception):  # a file that was cut off raises many kinds of errors
        return Description.load(job.cache_path)
    content = file_key(job.file.path)
    if content != job.file.content:
        what = "was moved or deleted" if content.startswith("unreadable") else "changed"
        raise InputError(f"{job.file.path}: the file {what} during the run: start again")
    settings = job.settings
    try:
        model, name = load_model(settings.model, settings.device)
        description = None
        if job.smaller_cache_path is not None:
            with suppress(Exception):
                description = Description.load(job.smaller_cache_path)
        if description is None:
            cleaned = clean_scan(job.file.path, search=True)
            count, device = settings.max_keypoints, choose_device(settings.device)
            description = prepare_scan(cleaned, settings.resolution, name, settings.seed, count, device)
        description = description.with_keypoints(settings.keypoints, settings.seed)
        description = description.extend(model, settings.keypoints)
    except WSDescError as error:
        raise _CannotDescribe(str(error)) from error
    description.save(Path(job.cache_path))
    return Description.load(job.cache_path)


@lru_cache(maxsize=_SCANS_IN_MEMORY)
def _with_surface(job: DescribeJob) -> tuple[Description, Surface]:
    description = load_description(job).to(choose_device(job.settings.device))
    return description, make_surface(description.points)
