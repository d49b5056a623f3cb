"""Tables of `benchmarks.find` and the fit of `benchmarks.find_fit`, on made-up searches."""

import json

import numpy as np
import pytest
from benchmarks.find import Pose, Search, print_table, read
from benchmarks.find_fit import fit, read_poses

from wsdesc.finding.evidence import Evidence


def evidence(good):
    """Evidence of a pose that fits well or badly."""
    share = 0.9 if good else 0.2
    figures = dict.fromkeys(Evidence._fields, share)
    figures |= {"conditioning": 0.1, "continued": 1 - share, "violation": None, "shown": None}
    return Evidence(**figures)._asdict()


def search(number, present, poses):
    return Search(number, 5, 3, "surface", present, 0.6, 1.0, poses)


@pytest.fixture(scope="module")
def searches(tmp_path_factory):
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("find") / "searches.jsonl"
    with path.open("w") as file:
        for number in range(40):
            right = Pose(0.01, 0.5, evidence(True), 0, [0, 1])
            same = Pose(0.02, 0.5, evidence(True), 1, [0, 1])
            wrong = [Pose(rng.uniform(0.2, 3), 0.5, evidence(False), k, [k]) for k in (2, 3)]
            for present in (True, False):
                poses = [right, same, *wrong] if present else [w._replace(error=np.inf) for w in wrong]
                row = search(number, present, [pose._asdict() for pose in poses])
                file.write(json.dumps(row._asdict()) + "\n")
    return path


def test_candidates_of_one_place_are_one_instance():
    poses = [Pose(0.01, 0.99, {}, 0, [0, 1]), Pose(0.3, 0.98, {}, 1, [0, 1]), Pose(0.4, 0.5, {}, 2, [2])]
    present = search(0, True, poses)
    assert [pose.number for pose in present.instances] == [0]
    assert present.recalled
    assert not present._replace(poses=poses[1:]).recalled


def test_fitted_confidence_separates_right_from_wrong(searches):
    poses = read_poses([searches])
    score = fit(poses).score(poses.x)
    assert score[poses.error < 0.05].min() > 1.5
    assert score[poses.error > 0.1].max() < -1.5


def test_table_counts_searches(searches, capsys):
    print_table(read(searches))
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("all"))
    assert row.split()[1] == "40"
    assert row.split()[3] == "100.0"  # each present shape has a right candidate
