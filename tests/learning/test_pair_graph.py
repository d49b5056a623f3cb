"""Overlapping scans are found from their points alone; scans of different rooms are rejected."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from wsdesc.cloud.neighbours import NeighbourGrid
from wsdesc.cloud.sampling import farthest_points, voxel_downsample
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.geometry import transform
from wsdesc.core.progress import Advance
from wsdesc.datasets.synthetic import room_scans
from wsdesc.evaluation.metrics import rotation_error_deg, translation_error
from wsdesc.learning.overlap import OverlapOptions, estimate_overlap, histogram_describe
from wsdesc.learning.pair_graph import (
    OverlappingPair,
    PairGraph,
    find_pairs,
    pairs_by_order,
    pairs_by_overlap,
)


class Rooms:
    """Two scans of each of two rooms: scans 0, 1 and 2, 3."""

    def __init__(self) -> None:
        self.scans = [scan for seed in (0, 5) for scan in room_scans(seed, 2)]
        points = [torch.from_numpy(scan.points) for scan in self.scans]
        self.clouds = {scan: voxel_downsample(p, 0.03) for scan, p in enumerate(points)}

    def T_q_p(self, p: int, q: int) -> np.ndarray:
        world = [self.scans[scan].T_world_scan for scan in (p, q)]
        return np.linalg.inv(world[1]) @ world[0]


@pytest.fixture(scope="module")
def rooms() -> Rooms:
    return Rooms()


def graph() -> PairGraph:
    pairs = (
        OverlappingPair(sequence=0, i=0, j=1, overlap=0.52, inliers=40),
        OverlappingPair(sequence=0, i=1, j=3, overlap=1.0, inliers=80, origin="overlap"),
        OverlappingPair(sequence=1, i=0, j=2),
    )
    return PairGraph(sequences=("kitchen", "flöör"), lengths=(4, 3), pairs=pairs, checked=5, dropped=3)


def indices(pairs: list[OverlappingPair]) -> list[tuple[int, int, int]]:
    return [(pair.sequence, pair.i, pair.j) for pair in pairs]


def test_pairs_by_order_are_within_the_window() -> None:
    pairs = pairs_by_order([4, 2, 0], window=2)
    assert indices(pairs) == [(0, 0, 1), (0, 0, 2), (0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 0, 1)]
    assert {(pair.origin, pair.overlap, pair.inliers) for pair in pairs} == {("order", None, None)}


def test_unreadable_scans_leave_a_gap() -> None:
    expected = [(0, 0, 1), (0, 0, 4), (0, 1, 4), (0, 1, 5), (0, 4, 5), (0, 5, 9)]
    assert indices(pairs_by_order([{0, 1, 5, 4, 9}], window=4)) == expected
    assert indices(pairs_by_order([[0, 2, 4], [], [7]], window=1)) == []
    with pytest.raises(InputError, match="window"):
        pairs_by_order([3], window=0)


@pytest.mark.slow
def test_overlap_check_accepts_overlapping_scans_only(rooms: Rooms) -> None:
    steps: dict[str, list[int]] = {}

    @contextmanager
    def watch(name: str, total: int) -> Iterator[Advance]:
        steps[name] = [total, 0]

        def advance(done: int) -> None:
            steps[name][1] += done

        yield advance

    checked = pairs_by_overlap(rooms.clouds, sequence=6, progress=watch)
    assert indices(checked.accepted) == [(6, 0, 1), (6, 2, 3)]
    assert checked.rejected == [(0, 2), (0, 3), (1, 2), (1, 3)]
    assert steps == {"describe scans": [4, 4], "check pairs": [6, 6]}
    for pair in checked.accepted:
        true = _true_overlap(rooms, pair.i, pair.j)
        assert pair.origin == "overlap"
        assert pair.overlap == pytest.approx(true, abs=0.15)
        assert pair.inliers is not None
        assert pair.inliers >= 12


def _true_overlap(rooms: Rooms, p: int, q: int) -> float:
    """Overlap under the ground-truth pose, at the distance of the check."""
    shares = []
    for a, b in ((p, q), (q, p)):
        moved = transform(rooms.clouds[a].double(), torch.from_numpy(rooms.T_q_p(a, b))).float()
        shares.append(float((NeighbourGrid.of(rooms.clouds[b]).count(moved, 0.05) > 0).float().mean()))
    return min(shares)


def test_estimate_has_the_pose_and_is_deterministic(rooms: Rooms) -> None:
    p, q = rooms.clouds[0], rooms.clouds[1]
    keys_p, keys_q = (cloud[farthest_points(cloud, 600)] for cloud in (p, q))
    features = [histogram_describe()(p, keys_p), histogram_describe()(q, keys_q)]
    first, again = (estimate_overlap(p, q, *features, keys_p, keys_q, seed=3) for _ in range(2))
    assert first.accepted
    assert first[:3] == again[:3]
    assert torch.equal(first.T_q_p, again.T_q_p)
    true = rooms.T_q_p(0, 1)
    assert rotation_error_deg(first.T_q_p, true) < 10
    assert translation_error(first.T_q_p, true) < 0.2

    scaled = [10 * t for t in (keys_p, keys_q)]  # the same in decimetres
    tenfold = estimate_overlap(10 * p, 10 * q, *features, *scaled, unit=10, seed=3)
    assert tenfold.overlap == pytest.approx(first.overlap, abs=0.01)
    with pytest.raises(InputError, match="unit"):
        estimate_overlap(p, q, *features, keys_p, keys_q, unit=0)


def test_each_scan_is_described_once(rooms: Rooms) -> None:
    described = []

    def describe(points: Tensor, keypoints: Tensor) -> Tensor:
        described.append(len(points))
        return torch.zeros(len(keypoints), 4)  # no pair can be accepted

    options = OverlapOptions(keypoints=50)
    checked = pairs_by_overlap(rooms.clouds, describe, [(1, 0), (0, 2), (0, 1)], options=options)
    assert described == [len(rooms.clouds[scan]) for scan in (0, 1, 2)]
    assert checked.accepted == []
    assert checked.rejected == [(0, 1), (0, 2)]
    assert pairs_by_overlap(rooms.clouds, describe, []) == ([], [])
    with pytest.raises(InputError, match="scan 9"):
        pairs_by_overlap(rooms.clouds, describe, [(0, 9)])


@pytest.mark.slow
def test_modes(rooms: Rooms) -> None:
    sequences = [rooms.clouds, {}]
    order = find_pairs(sequences, "order", window=1)
    assert indices(list(order.pairs)) == [(0, 0, 1), (0, 1, 2), (0, 2, 3)]
    assert (order.checked, order.dropped, order.lengths) == (0, 0, (4, 0))

    both = find_pairs(sequences, "both", window=1, names=["two rooms", "nothing"], lengths=[4, 2])
    assert indices(list(both.pairs)) == [(0, 0, 1), (0, 2, 3)]
    assert {pair.origin for pair in both.pairs} == {"order"}
    assert (both.checked, both.dropped, both.lengths) == (3, 1, (4, 2))
    assert "1 neighbours in order rejected" in both.summary()
    assert both == find_pairs(sequences, "both", window=1, names=["two rooms", "nothing"], lengths=[4, 2])

    overlap = find_pairs([{0: rooms.clouds[0], 3: rooms.clouds[2]}], "overlap")
    assert (overlap.pairs, overlap.checked, overlap.dropped) == ((), 1, 0)
    with pytest.raises(InputError, match="order, overlap or both"):
        find_pairs(sequences, "all")  # type: ignore[arg-type]


def test_clouds_of_a_few_points_are_rejected() -> None:
    checked = pairs_by_overlap({0: torch.zeros(1, 3), 1: torch.rand(5, 3), 2: torch.ones(40, 3)})
    assert checked.accepted == []
    assert len(checked.rejected) == 3


def test_saved_graph_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "pairs.json"
    graph().save(path)
    assert PairGraph.load(path) == graph()
    assert [p.name for p in tmp_path.iterdir()] == ["pairs.json"]


def test_summary_counts_pairs_by_sequence_and_overlap() -> None:
    lines = graph().summary().splitlines()
    assert lines[0] == "3 pairs of 7 scans; 5 pairs checked"
    assert "  kitchen: 4 scans, 2 pairs" in lines
    assert dict(graph().histogram()) == {
        **{f"{t / 10:.1f} … {(t + 1) / 10:.1f}": int(t in (5, 9)) for t in range(10)},
        "not checked": 1,
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"pairs": None},
        {"more": 1},
        {"lengths": [4]},
        {"lengths": [3, 3]},  # pair 1, 3 has no scan 3
        {"pairs": [{"sequence": 0, "i": 1, "j": 1}]},
        {"pairs": [{"sequence": 2, "i": 0, "j": 1}]},
        {"pairs": [{"sequence": 0, "i": -1, "j": 1}]},
        {"pairs": [{"sequence": 0, "i": "0", "j": 1}]},
        {"pairs": [{"sequence": 0, "i": 0, "j": 1, "overlap": 1.5}]},
        {"pairs": [{"sequence": 0, "i": 0, "j": 1, "overlap": float("nan")}]},
        {"pairs": [{"sequence": 0, "i": 0, "j": 1, "origin": "truth"}]},
        {"pairs": 2 * [{"sequence": 0, "i": 0, "j": 1}]},
    ],
    ids=str,
)
def test_inconsistent_file_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps({**json.loads(graph().model_dump_json()), **changes}), encoding="utf-8")
    with pytest.raises(FileFormatError, match=r"pairs\.json: not a list of scan pairs"):
        PairGraph.load(path)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe\x00", 100_000 * b"[", b"null"], ids=repr)
def test_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "pairs.json"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"pairs\.json"):
        PairGraph.load(path)
    with pytest.raises(FileFormatError, match="cannot be read"):
        PairGraph.load(tmp_path / "absent.json")
