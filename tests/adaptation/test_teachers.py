"""Teachers: right poses teach, wrong ones are kept out."""

from __future__ import annotations

import numpy as np
import torch

from adaptation.conftest import reconstruction_of
from wsdesc.adaptation.keep_out import checked_pairs, choose_kept_out
from wsdesc.adaptation.scans import load_scans
from wsdesc.adaptation.sources import matches_at_pose
from wsdesc.adaptation.teachers import confirmed_groups, find_teachers, with_wrong_poses
from wsdesc.core.geometry import inverse


def test_relative_poses_are_those_of_the_scans(scans, reconstruction, room_of_six):
    teachers = find_teachers(scans, reconstruction)
    assert len(teachers.pairs) >= 5
    for pair in teachers.pairs:
        p, q = (scans[k].local_pose(room_of_six[k].T_world_scan) for k in (pair.p, pair.q))
        np.testing.assert_allclose(pair.T_q_p, inverse(q) @ p, atol=1e-6)
        assert pair.overlap >= 0.05


def test_matches_coincide_under_the_pose(scans, reconstruction):
    pair = max(find_teachers(scans, reconstruction).pairs, key=lambda pair: pair.overlap)
    p, q = scans[pair.p].points, scans[pair.q].points
    matches = matches_at_pose(scans[pair.p], scans[pair.q], pair)
    T = torch.from_numpy(pair.T_q_p)
    moved = p[matches[:, 0]].double() @ T[:3, :3].T + T[:3, 3]
    assert len(matches) >= 64
    assert float((moved - q[matches[:, 1]]).norm(dim=1).max()) < 0.1


def test_wrong_poses_are_left_out(scans, reconstruction):
    trusting = find_teachers(scans, reconstruction, wrong=0.2, check=False)
    careful = find_teachers(scans, reconstruction, wrong=0.2, check=True)
    assert sum(pair.wrong for pair in trusting.pairs) == round(0.2 * len(trusting.pairs)) > 0
    assert sum(pair.wrong for pair in careful.pairs) < sum(pair.wrong for pair in trusting.pairs)
    assert careful.left_out["contradicts triangles of other pairs"] > 0
    wrong = with_wrong_poses(trusting.pairs, scans, 0.5, seed=0)
    assert sum(pair.wrong for pair in wrong) == round(0.5 * len(wrong))


def test_an_edge_that_no_triangle_confirms_joins_no_groups(folder, room_of_six):
    whole = reconstruction_of(folder, room_of_six)
    assert len(set(confirmed_groups(whole).values())) == 1
    chain = [e for e in whole.edges if abs(int(e.source[5]) - int(e.target[5])) == 1]
    lone = type(whole)(**{**vars(whole), "edges": chain})
    assert len(set(confirmed_groups(lone).values())) == 6


def test_unplaced_scans_have_likely_neighbours(scans, folder, room_of_six):
    partial = reconstruction_of(folder, room_of_six, [f"scan_{k}.ply" for k in range(5)])
    teachers = find_teachers(scans, partial)
    assert teachers.placed == [0, 1, 2, 3, 4]
    assert teachers.neighbours == [(4, 5)]


def test_kept_out_scans_occur_in_no_teaching_pair(scans, reconstruction):
    teachers = find_teachers(scans, reconstruction)
    kept_out = choose_kept_out(teachers, 0.34, seed=0)
    assert len(kept_out) == 2
    assert not any({pair.p, pair.q} & kept_out for pair in teachers.without(kept_out).pairs)
    assert all({pair.p, pair.q} & kept_out for pair in checked_pairs(teachers, kept_out, 0))


def test_pairs_of_two_frames_do_not_teach(scans, reconstruction):
    names = reconstruction.components[0]
    frames = type(reconstruction)(**{**vars(reconstruction), "components": [names[:3], names[3:]]})
    pairs = find_teachers(scans, frames).pairs
    assert pairs
    assert all((pair.p < 3) == (pair.q < 3) for pair in pairs)


def test_a_file_that_is_no_scan_is_left_out(folder, tmp_path):
    bad = tmp_path / "notes.ply"
    bad.write_text("no scan")
    loaded = load_scans({"good": folder / "scan_0.ply", "bad": bad}, 0.06)
    assert [scan.name for scan in loaded] == ["good"]
