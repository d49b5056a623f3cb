"""Scenes are read with their ground truth, and errors name the file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.evaluation.scenes import read_scenes


def test_scenes_have_pairs_with_ground_truth(scene_root: Path) -> None:
    (scene,) = read_scenes(scene_root)
    assert (scene.name, len(scene.pairs), scene.pairs_left_out) == ("room", 6, 0)
    assert scene.note() is None
    assert all(pair.information is not None for pair in scene.pairs)
    (alone,) = read_scenes(scene_root / "room")
    assert alone.digest == scene.digest


def test_low_overlap_pairs_have_their_own_folder(scene_root: Path) -> None:
    with pytest.raises(FileFormatError, match=r"room-evaluation-lo.gt\.log"):
        read_scenes(scene_root, low_overlap=True)
    folder = scene_root / "room-evaluation-lo"
    folder.mkdir()
    text = (scene_root / "room-evaluation" / "gt.log").read_text().splitlines()
    (folder / "gt.log").write_text("\n".join(text[:5]))
    (scene,) = read_scenes(scene_root, low_overlap=True)
    assert len(scene.pairs) == 1
    assert scene.pairs[0].information is None  # no gt.info: R1 is not evaluated


@pytest.mark.parametrize("place", ["", ".."])
def test_low_overlap_pairs_in_the_published_layout(scene_root: Path, place: str) -> None:
    folder = scene_root / place / "3DLoMatch" / "room"
    folder.mkdir(parents=True)
    text = (scene_root / "room-evaluation" / "gt.log").read_text().splitlines()
    (folder / "gt.log").write_text("\n".join(text[5:15]))
    (scene,) = read_scenes(scene_root, low_overlap=True)
    assert [(pair.i, pair.j) for pair in scene.pairs] == [(0, 2), (0, 3)]
    (usual,) = read_scenes(scene_root)
    assert len(usual.pairs) == 6


def test_folder_without_scenes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no scene found"):
        read_scenes(tmp_path)
    with pytest.raises(FileFormatError, match="no such folder"):
        read_scenes(tmp_path / "nowhere")


def test_scene_without_ground_truth_is_refused(scene_root: Path) -> None:
    (scene_root / "room-evaluation" / "gt.log").unlink()
    with pytest.raises(FileFormatError, match=r"no ground truth; expected .*gt\.log"):
        read_scenes(scene_root)


@pytest.mark.parametrize(("line", "text"), [(1, "0 one 4"), (3, "1 2 3"), (12, "nan 0 0 0")])
def test_malformed_log_names_the_line(scene_root: Path, line: int, text: str) -> None:
    path = scene_root / "room-evaluation" / "gt.log"
    lines = path.read_text().splitlines()
    lines[line - 1] = text
    path.write_text("\n".join(lines))
    with pytest.raises(FileFormatError, match=rf"gt\.log, line {line}:"):
        read_scenes(scene_root)


def test_pair_without_information_is_refused(scene_root: Path) -> None:
    path = scene_root / "room-evaluation" / "gt.info"
    path.write_text("\n".join(path.read_text().splitlines()[:-7]))
    with pytest.raises(FileFormatError, match="lacks the pair 2 3"):
        read_scenes(scene_root)


def test_pairs_of_missing_scans_are_left_out_and_named(scene_root: Path) -> None:
    (whole,) = read_scenes(scene_root)
    (scene_root / "room" / "cloud_bin_2.ply").unlink()
    (scene,) = read_scenes(scene_root)
    assert [(pair.i, pair.j) for pair in scene.pairs] == [(0, 1), (0, 3), (1, 3)]
    assert scene.note() == "room: scan is missing (cloud_bin_2.ply); 3 pairs left out"
    assert scene.digest == whole.digest  # the run continues once the file exists
    for number in (0, 1):
        (scene_root / "room" / f"cloud_bin_{number}.ply").unlink()
    with pytest.raises(FileFormatError, match="no pair whose two scans exist"):
        read_scenes(scene_root)
