"""Sequences of scans: order, formats, unreadable files."""

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from wsdesc.cloud.files import write_points
from wsdesc.cloud.scan_files import natural_order
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.datasets import scans as module
from wsdesc.datasets.scans import (
    ScanFile,
    ScanSequence,
    check_enough,
    find_sequences,
    read_all,
)


def cloud(seed: int, count: int = 20) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 3))


def make(folder: Path, *names: str) -> Path:
    """Create a folder of scans; scan k is `cloud(k)`."""
    folder.mkdir(parents=True, exist_ok=True)
    for k, name in enumerate(names):
        write_points(folder / name, cloud(k))
    return folder


def collection(path: Path, shapes: int, seed: int = 0) -> Path:
    path.parent.mkdir(exist_ok=True)
    with h5py.File(path, "w") as file:
        file["data"] = np.random.default_rng(seed).normal(size=(shapes, 16, 3)).astype(np.float32)
    return path


def names(sequence: ScanSequence) -> list[str]:
    return [scan.name for scan in sequence.scans]


def test_natural_order():
    shuffled = [
        "b_10.ply",
        "b_2.ply",
        "B_3.ply",
        "a.ply",
        "10.ply",
        "9.ply",
        "x².ply",
        "b_02.ply",
        "b_2b.ply",
    ]
    ordered = [p.name for p in sorted(map(Path, shuffled), key=natural_order)]
    assert ordered == [
        "9.ply",
        "10.ply",
        "a.ply",
        "b_02.ply",
        "b_2.ply",
        "b_2b.ply",
        "B_3.ply",
        "b_10.ply",
        "x².ply",
    ]


def test_a_folder_of_mixed_formats_is_one_sequence(tmp_path):
    make(tmp_path / "walk", "scan1.ply", "scan2.npy", "scan10.xyz", "scan3.PCD")
    (sequence,) = find_sequences(tmp_path / "walk")
    assert (sequence.name, sequence.objects) == ("walk", False)
    assert names(sequence) == ["walk/scan1.ply", "walk/scan2.npy", "walk/scan3.PCD", "walk/scan10.xyz"]
    clouds, problems = read_all(sequence)
    assert problems == []
    for place, seed in enumerate((0, 1, 3, 2)):
        np.testing.assert_allclose(clouds[place], cloud(seed), rtol=1e-6)
        assert clouds[place].dtype == np.float64
    check_enough([sequence])


def test_every_folder_with_scans_is_a_sequence_in_natural_order(tmp_path):
    for scene in ("scene_10/seq-01", "scene_2/seq-01", "scene_2/seq-02", ".hidden"):
        make(tmp_path / scene, "a.ply", ".b.ply")
    (tmp_path / "empty").mkdir()
    sequences = find_sequences([str(tmp_path)])
    assert [s.name for s in sequences] == ["scene_2/seq-01", "scene_2/seq-02", "scene_10/seq-01"]
    assert all(len(s.scans) == 1 for s in sequences)


def test_folders_of_the_same_name(tmp_path):
    places = [make(tmp_path / place / "scans", "a.ply", "b.ply") for place in ("one", "two")]
    sequences = find_sequences(places)
    assert [s.name for s in sequences] == ["scans", str(places[1])]


def test_no_file_is_used_twice(tmp_path):
    inner = make(tmp_path / "outer" / "inner", "a.ply", "b.ply")
    make(tmp_path / "outer", "c.ply")
    (inner / "also_a.ply").symlink_to(inner / "b.ply")
    sequences = find_sequences(
        [tmp_path / "outer", inner, inner / "a.ply", tmp_path / "outer" / ".." / "outer"]
    )
    assert [names(s) for s in sequences] == [["outer/c.ply"], ["inner/a.ply", "inner/also_a.ply"]]
    assert [names(s) for s in find_sequences([inner, tmp_path / "outer"])] == [
        ["inner/a.ply", "inner/also_a.ply"],
        ["outer/c.ply"],
    ]
    (inner / "circle").symlink_to(tmp_path / "outer")
    assert len(find_sequences(tmp_path)) == 2


def test_files_named_one_by_one_are_sequences_by_folder(tmp_path):
    one, two = (make(tmp_path / name, "s2.ply", "s10.ply", "s1.ply") for name in ("one", "two"))
    (one / "s2.info.txt").write_text("a shell's * names me, too")
    sequences = find_sequences([one / "s10.ply", two / "s1.ply", one / "s2.ply", one / "s2.info.txt"])
    assert [names(s) for s in sequences] == [["one/s2.ply", "one/s10.ply"], ["two/s1.ply"]]


def test_text_files_are_scans_only_without_other_scans(tmp_path):
    mixed = make(tmp_path / "mixed", "a.ply", "groundtruth.txt", "times.csv", "b.xyz")
    assert names(*find_sequences(mixed)) == ["mixed/a.ply", "mixed/b.xyz"]
    plain = make(tmp_path / "plain", "a.txt", "b.csv")
    assert names(*find_sequences(plain)) == ["plain/a.txt", "plain/b.csv"]


@pytest.mark.parametrize("poses", ["right", "garbled", "a folder", "none"])
def test_poses_are_never_opened(tmp_path, monkeypatch, poses):
    scene = make(tmp_path / "train" / "scene", *(f"cloud_bin_{k}.ply" for k in range(11)))
    for k in range(11):
        info = scene / f"cloud_bin_{k}.info.txt"
        if poses == "right":
            info.write_text("scene\t seq-01\t 0\n" + "\n".join(" ".join(map(str, row)) for row in np.eye(4)))
        elif poses == "garbled":
            info.write_bytes(bytes(range(256)))
        elif poses == "a folder":
            info.mkdir()

    opened = []
    unhooked = Path.open
    monkeypatch.setattr(
        Path, "open", lambda path, *a, **k: (opened.append(path.name), unhooked(path, *a, **k))[1]
    )
    (sequence,) = find_sequences([tmp_path / "train"])
    clouds, problems = read_all(sequence)
    assert names(sequence) == [f"scene/cloud_bin_{k}.ply" for k in range(11)]
    assert problems == []
    assert opened == [f"cloud_bin_{k}.ply" for k in range(11)]
    for k in range(11):
        np.testing.assert_array_equal(clouds[k], cloud(k))


def test_unreadable_scans_are_skipped_and_reported(tmp_path):
    folder = make(tmp_path / "walk", *(f"s{k}.ply" for k in range(6)))
    (folder / "s1.ply").write_bytes(b"")
    (folder / "s3.ply").write_bytes((folder / "s3.ply").read_bytes()[:-7])
    (folder / "s4.ply").write_text("not a ply")
    (sequence,) = find_sequences(folder)
    done: list[ScanFile] = []
    clouds, problems = read_all(sequence, progress=done.append)
    assert list(clouds) == [0, 2, 5]
    assert done == sequence.scans
    assert len(problems) == 3
    for problem, name in zip(problems, ("s1", "s3", "s4"), strict=True):
        assert str(folder / f"{name}.ply") in problem
    check_enough([sequence], [(clouds, problems)])


def test_points_that_are_not_finite_are_dropped(tmp_path):
    points = cloud(0)
    points[3, 1] = np.nan
    np.save(tmp_path / "a.npy", points)
    clouds, problems = read_all(*find_sequences(tmp_path))
    assert problems == []
    np.testing.assert_array_equal(clouds[0], np.delete(points, 3, axis=0))


def test_folders_without_scans(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "picture.jpg").write_bytes(b"0")
    with pytest.raises(InputError, match=r"no scans in this folder; readable formats: \.ply"):
        find_sequences(tmp_path)
    with pytest.raises(FileFormatError, match="nowhere: no such"):
        find_sequences([tmp_path / "nowhere"])
    with pytest.raises(FileFormatError, match=r"picture\.jpg: not a scan"):
        find_sequences([tmp_path / "picture.jpg"])
    with pytest.raises(InputError, match="no folder"):
        find_sequences([])


def test_a_folder_without_permission(tmp_path, request):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    request.getfixturevalue("ordinary_user")
    with pytest.raises(FileFormatError, match="closed: the folder cannot be read"):
        find_sequences(closed)


def test_too_few_scans(tmp_path):
    one = make(tmp_path / "one", "a.ply")
    alone = find_sequences(one)
    with pytest.raises(InputError, match="one: only one scan; at least two"):
        check_enough(alone)
    with pytest.raises(InputError, match="only one scan"):  # two scans, but of different folders
        check_enough(alone + find_sequences(make(tmp_path / "other", "a.ply")))
    two = find_sequences(make(tmp_path / "two", "a.ply", "b.ply"))
    check_enough(alone + two)
    with pytest.raises(InputError, match="no scans were given"):
        check_enough([])

    write_points(tmp_path / "two" / "a.ply", np.ones((5, 3)))
    with pytest.raises(InputError, match=r"1 of 2 cannot be read.*a\.ply: all its points are equal"):
        check_enough(two, map(read_all, two))
    (tmp_path / "two" / "a.ply").write_text("damaged")
    with pytest.raises(
        InputError, match=r"two: only one readable scan \(1 of 2 cannot be read, the first: .*a\.ply"
    ):
        check_enough(two, map(read_all, two))
    (tmp_path / "two" / "b.ply").write_text("damaged")
    with pytest.raises(FileFormatError, match=r"two: no readable scan \(2 of 2 cannot.*a\.ply"):
        check_enough(two, map(read_all, two))


def test_published_modelnet40(tmp_path, monkeypatch):
    folder = tmp_path / "modelnet40_ply_hdf5_2048"
    for k, shapes in enumerate((3, 2)):
        collection(folder / f"ply_data_train{k}.h5", shapes, seed=k)
    collection(folder / "ply_data_test0.h5", 5)
    (folder / "shape_names.txt").write_text("airplane\nbathtub\n")
    expected = ["ply_data_train0.h5#0", "ply_data_train0.h5#1", "ply_data_train0.h5#2"]
    expected += ["ply_data_train1.h5#0", "ply_data_train1.h5#1"]
    for listed in (None, [0, 1], [1]):  # which files train_files.txt lists
        if listed is not None:
            lines = [f"data/modelnet40_ply_hdf5_2048/ply_data_train{k}.h5\n" for k in listed]
            (folder / "train_files.txt").write_text("".join(lines))
        (sequence,) = find_sequences(tmp_path)
        assert sequence.objects
        assert [name.split("/")[1] for name in names(sequence)] == (
            expected[3:] if listed == [1] else expected
        )

    reads = []
    unhooked = module.read_shapes
    monkeypatch.setattr(
        module, "read_shapes", lambda path, *row: (reads.append(path), unhooked(path, *row))[1]
    )
    clouds, problems = read_all(sequence)
    assert (len(clouds), problems, len(reads)) == (2, [], 1)  # decompressed once, not for each shape
    for place, scan in enumerate(sequence.scans):
        np.testing.assert_array_equal(clouds[place], scan.read())
        assert clouds[place].shape == (16, 3)
        assert clouds[place].dtype == np.float64
    check_enough([ScanSequence("one shape", sequence.scans[:1], objects=True)])


def test_unreadable_collections_are_reported(tmp_path):
    good = collection(tmp_path / "ply_data_train0.h5", 3)
    with h5py.File(good, "a") as file:
        file["data"][1] = np.nan
        file["data"][2, :4] = np.inf
    (tmp_path / "ply_data_train1.h5").write_bytes(b"not HDF5")
    with h5py.File(tmp_path / "ply_data_train2.h5", "w") as file:
        file["points"] = np.zeros((2, 16, 3))
    with h5py.File(tmp_path / "ply_data_train3.h5", "w") as file:
        file["data"] = np.zeros((2, 16))
    listed = "".join(f"ply_data_train{k}.h5\n" for k in range(5))
    (tmp_path / "train_files.txt").write_text(listed)
    clouds, problems = read_all(*find_sequences(tmp_path))
    assert [len(points) for points in clouds.values()] == [16, 12]
    reasons = [
        "train0.h5#1: none of its points",
        "train1.h5: cannot be read as HDF5",
        "no dataset 'data'",
    ]
    reasons += ["must be numbers of shape", "train4.h5: no such file"]
    assert len(problems) == len(reasons)
    for problem, reason in zip(problems, reasons, strict=True):
        assert reason in problem


def test_a_damaged_collection_is_reported_once(tmp_path):
    with h5py.File(tmp_path / "shapes.h5", "w") as file:
        data = np.random.default_rng(0).normal(size=(50, 64, 3))
        file.create_dataset("data", data=data, chunks=(10, 64, 3), compression="gzip")
    damaged = bytearray((tmp_path / "shapes.h5").read_bytes())
    damaged[len(damaged) // 2 : len(damaged) // 2 + 4000] = bytes(4000)
    (tmp_path / "shapes.h5").write_bytes(damaged)
    (sequence,) = find_sequences(tmp_path)
    clouds, problems = read_all(sequence)
    assert (len(sequence.scans), len(clouds), len(problems)) == (50, 0, 1)
    with pytest.raises(FileFormatError, match="50 of 50 cannot be read"):
        check_enough([sequence], [(clouds, problems)])


def test_training_scans_of_the_data_folder(data_folder, tmp_path):
    sequences = find_sequences(data_folder / "indoor" / "train")
    assert {s.name: len(s.scans) for s in sequences} == {
        "hololens_000": 25,
        "tum_fr1_desk": 20,
        "tum_fr1_rpy": 24,
        "tum_fr1_xyz": 16,
    }
    assert names(sequences[0])[:3] == [f"hololens_000/cloud_bin_{k}.ply" for k in range(3)]
    check_enough(sequences)
    for name in names(sequences[1])[:2]:
        shutil.copy(data_folder / "indoor" / "train" / name, tmp_path)
    without_poses, _ = read_all(*find_sequences(tmp_path))
    for place, points in without_poses.items():
        np.testing.assert_array_equal(points, sequences[1].scans[place].read())


def test_shapes_of_the_data_folder(data_folder):
    folder = data_folder / "modelnet40_ply_hdf5_2048"
    if not folder.is_dir():
        pytest.skip("the data folder has no modelnet40_ply_hdf5_2048")
    (sequence,) = find_sequences(folder)
    assert (len(sequence.scans), sequence.objects) == (9724, True)
    assert sequence.scans[-1].read().shape == (1024, 3)
