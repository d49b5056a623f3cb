"""The benchmark of maps on a few scans."""

import argparse

import pytest

from benchmarks import map_fit, map_survey, maps


@pytest.mark.slow
def test_a_small_map_is_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(map_survey, "_SCANS", 4)
    options = {"points": 300_000, "queries": 2, "kinds": ("building",), "resolution": 0.12}
    options |= {"processes": 1, "cores": None, "build_cores": None, "searchers": 1, "seconds": float("inf")}
    options |= {"first_seed": map_survey.FIRST_SEED, "sensor": map_survey.SENSOR, "pose_error": 0.01}
    candidates = tmp_path / "candidates.jsonl"
    maps.main(argparse.Namespace(**options, folder=tmp_path, candidates=candidates))
    printed = capsys.readouterr().out
    for row in ("build", "size", "open", "locate", "recall", "precision", "strangers located"):
        assert f"  {row} " in printed
    groups = map_fit.read_groups(candidates)
    assert {g.pair[3] for g in groups} == {0, 1, 2}, "candidates of two scans of the map and of a stranger"
