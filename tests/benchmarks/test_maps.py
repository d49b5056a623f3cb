"""The benchmark of maps on a few scans."""

import argparse

import pytest

from benchmarks import map_survey, maps


@pytest.mark.slow
def test_a_small_map_is_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(map_survey, "_SCANS", 4)
    options = {"points": 300_000, "queries": 2, "kinds": ("building",), "resolution": 0.12}
    options |= {"processes": 1, "cores": None, "build_cores": None, "searchers": 1, "seconds": float("inf")}
    maps.main(argparse.Namespace(**options, folder=tmp_path))
    printed = capsys.readouterr().out
    for row in ("build", "size", "open", "locate", "recall", "precision", "strangers located"):
        assert f"  {row} " in printed
