"""All functions of WSDesc that read files of unknown origin.

They are imported when they are first called: atheris instruments only modules imported after its start.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wsdesc.core.errors import InputError

# Modules whose coverage guides the search. Compiled libraries are not instrumented.
INSTRUMENTED = [
    *("wsdesc.cloud", "wsdesc.datasets.threedmatch", "wsdesc.datasets.modelnet40", "wsdesc.datasets.hdf5"),
    *("wsdesc.core.options", "wsdesc.core.plain_yaml"),
    *("wsdesc.learning.options", "wsdesc.learning.pair_graph"),
    *("wsdesc.descriptor.description_file", "wsdesc.descriptor.pretrained"),
    *("wsdesc.evaluation.eth", "wsdesc.evaluation.scenes", "wsdesc.registration.pose_file"),
    *("wsdesc.registration.result", "wsdesc.reconstruction.export", "wsdesc.reconstruction.result"),
    *("laspy", "pypcd4", "pye57", "yaml"),
]


_POSE = np.eye(4).tolist()
_EDGE = {
    "source": "a",
    "target": "b",
    "T_target_source": _POSE,
    "confidence": 0.9,
    "overlap": 0.1,
    "rank": 0,
    "keypoints": 600,
    "rejection": None,
    "deviation": 0.5,
    "accepted": True,
}
RECONSTRUCTION = {  # valid files of a reconstruction
    "poses.json": {
        "complete": True,
        "resolution": 0.1,
        "frames": [{"reference": "a", "scans": ["a", "b"]}],
        "scans": {name: {"file": f"{name}.ply", "frame": 0, "T_world_scan": _POSE} for name in ("a", "b")},
        "not_placed": {"c": "no overlap"},
        "files": {name: f"{name}.ply" for name in ("a", "b", "c")},
    },
    "graph.json": {"scans": ["a", "b", "c"], "edges": [_EDGE]},
}


@dataclass(frozen=True)
class Reader:
    """A function that reads one kind of file."""

    file_name: str  # that the file must have
    read: Callable[[Path], object]
    repair: Callable[[bytes], bytes] = bytes  # corrects checksums, so that damage passes them


def _points(path: Path) -> None:
    from wsdesc.cloud.files import read_cloud

    cloud = read_cloud(path, nonfinite="drop")
    assert cloud.points.dtype == np.float64, cloud.points.dtype
    assert len(cloud.points) > 0, "neither points nor an error"
    assert np.isfinite(cloud.points).all(), "the points are not finite"
    assert all(len(values) == len(cloud.points) for values in cloud.attributes.values()), (
        "attributes of another length"
    )


def _mesh(path: Path) -> None:
    from wsdesc.cloud.files import read_cloud

    _points(path)
    with suppress(InputError):  # no faces
        points = read_cloud(path, sample=20, nonfinite="drop").points
        assert np.isfinite(points).all(), "the samples are not finite"


def _shapes(path: Path) -> None:
    from wsdesc.datasets.modelnet40 import read_split

    shapes = read_split(path.parent).points
    assert shapes.ndim == 3, shapes.shape
    assert shapes.shape[2] == 3, shapes.shape


def _log(path: Path) -> None:
    from wsdesc.datasets.threedmatch import read_log

    read_log(path)


def _info(path: Path) -> None:
    from wsdesc.datasets.threedmatch import read_info

    read_info(path)


def _pose(path: Path) -> None:
    from wsdesc.datasets.threedmatch import read_pose

    read_pose(path)


def _pose_file(path: Path) -> None:
    from wsdesc.registration.pose_file import read_pose

    read_pose(path)


def _registration(path: Path) -> None:
    from wsdesc.registration.result import Registration

    Registration.load(path)


def _reconstruction(path: Path) -> None:
    """Read a folder with the file and a valid partner."""
    from wsdesc.reconstruction.result import Reconstruction

    for name, content in RECONSTRUCTION.items():
        if name != path.name:
            (path.parent / name).write_text(json.dumps(content))
    Reconstruction.load(path.parent)


def _keypoints(path: Path) -> None:
    from wsdesc.evaluation.scenes import read_keypoints

    read_keypoints(path, 10)


def _eth(path: Path) -> None:
    """Read a scene of two scans with the file as their poses."""
    from wsdesc.evaluation.eth import read_eth_scenes

    for name in ("Hokuyo_0.csv", "Hokuyo_1.csv"):
        (path.parent / name).touch()
    (path.parent / "overlap.csv").write_text("1,0.5\n0.5,1\n")
    read_eth_scenes(path.parent)


def _description(path: Path) -> None:
    from wsdesc.descriptor.description import Description

    Description.load(path)


def _weights(path: Path) -> None:
    from wsdesc.descriptor.model import WSDesc

    WSDesc.from_pretrained(path)


def _options(path: Path) -> None:
    from wsdesc.learning.options import TrainOptions

    TrainOptions.load(path)


def _pairs(path: Path) -> None:
    from wsdesc.learning.pair_graph import PairGraph

    PairGraph.load(path)


_PAGE = 1024  # bytes of a page of an E57 file; the last four are a checksum


def _crc32c_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_CRC32C = _crc32c_table()


def repair_e57(content: bytes) -> bytes:
    """Correct the checksum of every complete page."""
    pages = [content[start : start + _PAGE] for start in range(0, len(content), _PAGE)]
    for number, page in enumerate(pages):
        if len(page) == _PAGE:
            crc = 0xFFFFFFFF
            for byte in page[:-4]:
                crc = _CRC32C[(crc ^ byte) & 255] ^ crc >> 8
            pages[number] = page[:-4] + struct.pack(">I", crc ^ 0xFFFFFFFF)
    return b"".join(pages)


READERS = {
    **{
        kind: Reader(f"a.{kind}", _mesh) for kind in ("ply", "obj", "off", "stl", "vtk", "vtp", "gltf", "glb")
    },
    **{kind: Reader(f"a.{kind}", _points) for kind in ("pcd", "las", "laz", "npy", "npz", "ptx", "bin")},
    **{kind: Reader(f"a.{kind}", _points) for kind in ("xyz", "csv", "pts")},
    "e57": Reader("a.e57", _points, repair_e57),
    "h5": Reader("ply_data_train0.h5", _shapes),
    "gt.log": Reader("gt.log", _log),
    "gt.info": Reader("gt.info", _info),
    "info.txt": Reader("cloud_bin_0.info.txt", _pose),
    "pose.json": Reader("pose.json", _pose_file),
    "registration": Reader("registration.json", _registration),
    "poses": Reader("poses.json", _reconstruction),
    "graph": Reader("graph.json", _reconstruction),
    "pose.txt": Reader("pose.txt", _pose_file),
    "keypoints": Reader("cloud_bin_0Keypoints.txt", _keypoints),
    "eth": Reader("pose_scanner_leica.csv", _eth),
    "description": Reader("a.npz", _description),
    "weights": Reader("a.safetensors", _weights),
    "options": Reader("a.yaml", _options),
    "pairs": Reader("pairs.json", _pairs),
}
