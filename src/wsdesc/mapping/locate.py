"""Locate a scan in a map.

describe → similar map keypoints → places → hypotheses of all places → candidates → confidence. All candidates
of all rounds compete. Lengths are in metres of the model.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from wsdesc.alignment.consensus import consensus
from wsdesc.alignment.hypotheses import Hypothesis
from wsdesc.alignment.surface import Surface, make_surface
from wsdesc.cloud.clean import Cleaned
from wsdesc.cloud.cloud import dropped_warnings
from wsdesc.cloud.convert import Scan, scan_name
from wsdesc.cloud.units import working_resolution
from wsdesc.core import kernels
from wsdesc.core.devices import choose_device
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import CELL_STEPS, Floats, cell_keys, transform
from wsdesc.core.progress import ProgressHook, StepTimer
from wsdesc.descriptor import pretrained
from wsdesc.descriptor.describe import load_model
from wsdesc.descriptor.description import Description
from wsdesc.descriptor.preparation import check_count, clean_scan, prepare_scan
from wsdesc.mapping.evidence import MapEvidence, confidences
from wsdesc.mapping.options import LocateOptions
from wsdesc.mapping.places import Place, centre_and_radius, vote
from wsdesc.mapping.result import Location
from wsdesc.mapping.store import digest_of
from wsdesc.mapping.stored_map import MapKeypoints, StoredMap
from wsdesc.registration.candidate import Candidate, distinct_candidates, ranked
from wsdesc.registration.candidates import Candidates
from wsdesc.registration.result import Registration
from wsdesc.registration.rounds import build_result, failed_result
from wsdesc.registration.verification import verify_hypotheses

_INLIER_DISTANCE = 0.075
_FEW_KEYPOINTS = 600  # with at most this many, a keypoint of the scan has two matches in a place, else one
_SECOND_WEIGHT = 0.5  # weight of a second match relative to the best one
_HYPOTHESES_PER_PLACE = 6
_PLACE_RADIUS = 1.3  # radii of the scan: map keypoints this close to the centre of a place are matched
_OVERLAP_SAMPLE = 600  # points of the scan that the overlap is measured on
_CELL = 0.5  # side of the cells that select the part of the map around a scan
_MIN_MAP_POINTS = 50  # points of the map around a hypothesis
_SAME_DISTANCE, _SAME_COSINE = 0.375, np.cos(np.radians(10.0))  # closer hypotheses are duplicates
_MAX_RESOLUTION_RATIO = 5.0  # scan and map with a larger ratio may have different units


class _MatchedPlace(NamedTuple):
    """Hypotheses of one place, and the keypoints and matches that proposed them."""

    keypoints: MapKeypoints
    pairs: torch.Tensor  # (M, 2) indices of matched keypoints of the scan and of the place
    hypotheses: list[Hypothesis]


def locate(site: StoredMap, scan: Scan, o: LocateOptions, progress: ProgressHook | None = None) -> Location:
    """Find the pose of a scan in a map; see `Map.locate`."""
    timer = StepTimer(progress)
    result: Registration | None = None
    for searched in search(site, scan, o, timer):
        result = _result(site, searched, timer)
        if result.success:
            break
    assert result is not None  # there is at least one round
    warnings = [
        *result.warnings,
        *_unit_warning(result, searched.scan.points, site.resolution),
        *dropped_warnings(scan_name(scan, "the scan"), searched.scan.dropped),
    ]
    values = {f.name: getattr(result, f.name) for f in fields(result)}
    return Location(**values | {"warnings": warnings, "files": (_file(scan), site.path)})


class MapSearch(NamedTuple):
    """A scan, and the candidates of a round and of all rounds before it, best fit first."""

    scan: Cleaned
    description: Description  # of the scan
    evidence: dict[Candidate, MapEvidence]
    places: dict[Candidate, _MatchedPlace]  # whose matches proposed the candidates

    @property
    def candidates(self) -> list[Candidate]:
        """All candidates."""
        return list(self.evidence)


def search(site: StoredMap, scan: Scan, o: LocateOptions, timer: StepTimer) -> Iterator[MapSearch]:
    """Search for a scan in a map, in rounds with more and more keypoints."""
    with timer("read"):
        cleaned = clean_scan(scan, o.viewpoint)
        file = scan_name(scan, "the scan")
        check_count(cleaned, file)
    with timer("prepare"):
        network, name = load_model(site.model, o.device)
        _check_weights(site)
        device = choose_device(o.device)
        p = prepare_scan(cleaned, site.resolution, name, o.seed, o.keypoints[0], device, file)
        surface = make_surface(p.points.cpu())
    searched = MapSearch(cleaned, p, {}, {})
    for count in o.keypoints:
        p = p.with_keypoints(count, o.seed)
        with timer("describe", p.missing(count)) as advance:
            p = p.extend(network, count, advance)
        searched = _search_round(site, searched._replace(description=p.to("cpu")), surface, o, timer)
        yield searched
        if len(p.descriptors) < count:
            break


def _search_round(
    site: StoredMap, searched: MapSearch, surface: Surface, o: LocateOptions, timer: StepTimer
) -> MapSearch:
    """Add the candidates of one round."""
    p = searched.description
    keypoints, frames = p.keypoints.double().numpy(), p.frames.double().numpy()
    with timer("search"):
        matched, similar = site.similar_keypoints(p.descriptors.numpy(), o.neighbours)
        places = vote(keypoints, frames, matched, similar.positions, similar.frames, o.places)
    with timer("match and solve"):
        radius = _PLACE_RADIUS * centre_and_radius(keypoints)[1]
        matched_places = kernels.run_each(lambda place: _match_place(site, p, place, radius), places)
    with timer("verify and refine"):
        proposed = [(place, h) for place in matched_places for h in place.hypotheses]
        hypotheses = [h for _, h in proposed]
        best = [proposed[k] for k in _best_overlaps(site, p, hypotheses, searched.candidates, o.refined)]
        parts = kernels.run_each(lambda item: _surface_around(site, p, item[1]), best)
        places_of = dict(searched.places)
        for (place, hypothesis), part in zip(best, parts, strict=True):
            if part is not None:
                images = (p.range_image, None)
                refined = verify_hypotheses([hypothesis], (surface, part), images, len(place.pairs))
                places_of |= dict.fromkeys(refined, place)
        candidates = distinct_candidates(list(places_of))
        new = [candidate for candidate in candidates if candidate not in searched.evidence]
        measured = searched.evidence | dict(zip(new, kernels.run_each(MapEvidence.of, new), strict=True))
    return searched._replace(
        evidence={candidate: measured[candidate] for candidate in candidates},
        places={candidate: places_of[candidate] for candidate in candidates},
    )


def _result(site: StoredMap, searched: MapSearch, timer: StepTimer) -> Registration:
    """Build the result of a round."""
    p = searched.description
    if not searched.evidence:
        warning = (
            "The scan was not found in the map. Is it a scan of this place, in the unit of the map? Try more "
            "keypoints."
        )
        return failed_result(p.resolution, [warning], timer, (p.viewpoint, None))
    probabilities = confidences(list(searched.evidence.values()))
    candidates = ranked(searched.candidates, probabilities)
    best_place = searched.places[searched.candidates[int(probabilities.argmax())]]
    q = _described_place(site, candidates[0], best_place)
    return build_result(Candidates(candidates, best_place.pairs), p, q, timer)


def _match_place(site: StoredMap, p: Description, place: Place, radius: float) -> _MatchedPlace:
    """Match the scan with the keypoints of a place, and solve for poses."""
    near = site.keypoints_near(place.centre, radius)
    descriptors = torch.from_numpy(near.descriptors)
    count = min(2 if len(p.descriptors) <= _FEW_KEYPOINTS else 1, len(descriptors))
    order = (p.descriptors @ descriptors.T).topk(count, dim=1).indices  # (K, count)
    source = torch.arange(len(order)).repeat_interleave(count)
    pairs = torch.stack([source, order.flatten()], dim=1)
    weights = torch.where(torch.arange(len(pairs)) % max(1, count) == 0, 1.0, _SECOND_WEIGHT)
    ends = (p.keypoints[pairs[:, 0]].double(), torch.from_numpy(near.positions)[pairs[:, 1]])
    hypotheses = consensus(
        *ends, weights=weights, threshold=_INLIER_DISTANCE, hypotheses=_HYPOTHESES_PER_PLACE
    )
    return _MatchedPlace(near, pairs, hypotheses)


def _best_overlaps(
    site: StoredMap,
    p: Description,
    hypotheses: Sequence[Hypothesis],
    earlier: Sequence[Candidate],
    count: int,
) -> list[int]:
    """Choose distinct new hypotheses with the largest overlap of scan and map; return their indices."""
    points = p.points.double().numpy()
    sample = points[:: max(1, len(points) // _OVERLAP_SAMPLE)]

    def overlap(hypothesis: Hypothesis) -> float:
        return float(site.at_surface(transform(sample, hypothesis.T_target_source.numpy())).mean())

    overlaps = np.array([overlap(hypothesis) for hypothesis in hypotheses])
    votes = np.array([h.votes for h in hypotheses])
    tried = [candidate.refined.T_target_source for candidate in earlier]
    poses = np.reshape([*(h.T_target_source.numpy() for h in hypotheses), *tried], (-1, 4, 4))
    centres = transform(sample.mean(axis=0, keepdims=True), poses)[:, 0]  # (H + tried, 3)
    kept = list(range(len(hypotheses), len(poses)))
    for k in np.argsort(-overlaps * np.sqrt(votes), kind="stable").tolist():
        near = np.linalg.norm(centres[kept] - centres[k], axis=1) < _SAME_DISTANCE
        cosine = (np.einsum("nij,ij->n", poses[kept, :3, :3], poses[k, :3, :3]) - 1) / 2
        if len(kept) < count + len(tried) and not (near & (cosine > _SAME_COSINE)).any():
            kept.append(k)
    return kept[len(tried) :]


def _surface_around(site: StoredMap, p: Description, hypothesis: Hypothesis) -> Surface | None:
    """Return the surface of the map around a scan in this pose; None with too few points."""
    points = _points_around(site, p, hypothesis.T_target_source.numpy())
    return make_surface(points) if len(points) >= _MIN_MAP_POINTS else None


def _points_around(site: StoredMap, p: Description, T_map_scan: Floats) -> Floats:
    """Return the points (N, 3) of the map in the cells of the scan's points and in adjacent cells."""
    moved = transform(p.points.double().numpy(), T_map_scan)
    low = moved.min(axis=0) - 2 * _CELL
    points = site.points_within(low, moved.max(axis=0) + 2 * _CELL)
    cells = np.unique(cell_keys(((moved - low) / _CELL).astype(np.int64)))
    steps = cell_keys(CELL_STEPS)  # the key of a sum of cells is the sum of their keys
    touched = np.unique((cells[:, None] + steps).ravel())
    keys = cell_keys(((points - low) / _CELL).astype(np.int64))
    return points[np.isin(keys, touched)]


def _described_place(site: StoredMap, candidate: Candidate, place: _MatchedPlace) -> Description:
    """Describe the part of the map around a candidate as a scan whose frame is that of the map."""
    T_map_local = np.eye(4)
    T_map_local[:3, 3] = site.origin
    keypoints = place.keypoints
    points = np.concatenate([keypoints.positions, candidate.surfaces[1].points])
    return Description(
        torch.from_numpy(points).float(),
        torch.arange(len(keypoints.positions)),
        torch.from_numpy(keypoints.descriptors),
        torch.from_numpy(keypoints.frames).float(),
        site.resolution,
        T_map_local,
        site.model,
    )


def _check_weights(site: StoredMap) -> None:
    """Raise an error if the weights changed since the map was built."""
    path = pretrained.find(site.model)
    if _digest(str(path), path.stat().st_mtime_ns) != site.model_digest:
        raise InputError(
            f"{site.path}: the weights {site.model} changed since the map was built: build it again"
        )


@lru_cache(maxsize=8)
def _digest(path: str, modified: int) -> str:
    """Return the SHA-256 of a file; `modified` makes the cache read a changed file again."""
    return digest_of(Path(path))


def _unit_warning(result: Registration, points: np.ndarray, resolution: float) -> list[str]:
    """Return a warning if the location failed and the scan seems to have another unit than the map."""
    if result.success:
        return []
    ratio = working_resolution(points) / resolution
    if 1 / _MAX_RESOLUTION_RATIO < ratio < _MAX_RESOLUTION_RATIO:
        return []
    return [
        f"The scan suits a resolution of {ratio * resolution:.3g}, that of the map is {resolution:.3g}: "
        "check that both have the same unit."
    ]


def _file(scan: Scan) -> Path | None:
    return Path(scan) if isinstance(scan, str | os.PathLike) else None
