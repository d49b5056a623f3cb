"""The reliability diagram is written as PNG."""

from pathlib import Path

from benchmarks.report.reliability_diagram import draw_reliability


def test_diagram_is_a_png(tmp_path: Path) -> None:
    draw_reliability([0.1, 0.9, 0.95], [False, True, True], tmp_path / "r.png", "title")
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
