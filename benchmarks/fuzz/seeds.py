"""Small valid files of every format, with which fuzzing starts."""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.fuzz import seeds_exchange as exchange
from benchmarks.fuzz.readers import RECONSTRUCTION, repair_e57

_COUNT = 12
_RANDOM_GUID = re.compile(rb"\{[0-9a-f-]{36}\}")
_LAS_FORMATS = (0, 3, 6, 7)  # compressed with and without layers, with and without colours


def make_seeds(kind: str, folder: Path) -> list[bytes]:
    """Return the contents of valid files for a reader; `folder` is for temporary files."""
    if kind in _SPECIAL:
        return _SPECIAL[kind](folder)
    return [_write(folder / f"a.{kind}", single=False), _write(folder / f"b.{kind}", single=True)]


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def _write(path: Path, single: bool) -> bytes:
    from wsdesc.cloud.files import write_points  # late, as in `readers`

    rng = _rng()
    points = rng.normal(size=(_COUNT, 3)).round(3)
    attributes = {
        "intensity": rng.integers(0, 99, _COUNT).astype(np.uint16),
        "colors": rng.integers(0, 9, (_COUNT, 3), np.uint8),
    }
    plain = path.suffix in (".npy", ".obj", ".off", ".bin")
    write_points(path, points.astype(np.float32 if single else np.float64), None if plain else attributes)
    return path.read_bytes()


def _ply(folder: Path) -> list[bytes]:
    """Return text and both byte orders, with faces of different sizes and an additional element."""
    vertices = _rng().normal(size=(5, 3)).round(2).astype(np.float32)
    faces = [[0, 1, 2], [1, 2, 3], [0, 2, 3, 4]]
    contents = [_write(folder / "a.ply", single=True)]
    for order in ("ascii", "binary_little_endian", "binary_big_endian"):
        head = (
            f"ply\nformat {order} 1.0\ncomment by code\nelement extra 2\nproperty list uchar short values\n"
            "property uchar flag\nelement vertex 5\nproperty float x\nproperty float y\nproperty float z\n"
            "element face 3\nproperty list uchar int vertex_indices\nend_header\n"
        ).encode()
        sign = ">" if order == "binary_big_endian" else "<"
        if order == "ascii":
            rows = ["2 7 8 1", "0 2", *(" ".join(map(str, v)) for v in vertices.tolist())]
            rows += [" ".join(map(str, [len(face), *face])) for face in faces]
            body = ("\n".join(rows) + "\n").encode()
        else:
            body = struct.pack(f"{sign}BhhBBB", 2, 7, 8, 1, 0, 2) + vertices.astype(f"{sign}f4").tobytes()
            body += b"".join(struct.pack(f"{sign}B{len(face)}i", len(face), *face) for face in faces)
        contents.append(head + body)
    return contents


def _pcd(folder: Path) -> list[bytes]:
    from pypcd4 import Encoding, PointCloud

    points = _rng().normal(size=(_COUNT, 3)).round(2).astype(np.float32)
    columns, types = [*points.T, np.arange(_COUNT, dtype=np.uint16)], [np.float32] * 3 + [np.uint16]
    cloud = PointCloud.from_points(columns, ["x", "y", "z", "ring"], types)
    contents = []
    for encoding in (Encoding.ASCII, Encoding.BINARY, Encoding.BINARY_COMPRESSED):
        cloud.save(folder / "a.pcd", encoding)
        contents.append((folder / "a.pcd").read_bytes())
    return contents


def _las(folder: Path, extension: str = "las") -> list[bytes]:
    import laspy

    contents = []
    for point_format in _LAS_FORMATS:
        header = laspy.LasHeader(point_format=point_format, version="1.4" if point_format > 5 else "1.2")
        header.scales, header.offsets = [0.01] * 3, [10.0, 0, 0]
        header.add_extra_dim(laspy.ExtraBytesParams("quality", np.float32))
        las = laspy.LasData(header)
        las.x, las.y, las.z = _rng().normal(size=(3, _COUNT))
        las.write(str(folder / f"a.{extension}"))
        contents.append((folder / f"a.{extension}").read_bytes())
    return contents


def _obj(folder: Path) -> list[bytes]:
    mesh = (
        "mtllib a.mtl\no part\nv 0 0 0 1 0 0\nv 1 0 0 0 1 0\nv 0 1 0 0 0 1\nv 0 0 1 1 1 1\nvt 0 0\nvn 0 0 1\n"
        "usemtl red\nf 1/1/1 2/1/1 3/1/1\ng other\nf 1//1 3//1 4//1\nf -4 -3 -2 -1\n"
    )
    return [_write(folder / "a.obj", single=False), mesh.encode()]


def _off(folder: Path) -> list[bytes]:
    mesh = "OFF\n# made by code\n4 3 0\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n3 0 1 2\n3 0 2 3\n4 0 1 2 3\n"
    return [_write(folder / "a.off", single=False), mesh.encode()]


def _stl(folder: Path) -> list[bytes]:
    corners = _rng().normal(size=(4, 12)).astype("<f4")  # a normal and three corners per triangle
    binary = bytes(80) + struct.pack("<I", 4) + b"".join(row.tobytes() + b"\0\0" for row in corners)
    text = ["solid a"]
    for row in corners.round(2).tolist():
        text += ["facet normal " + " ".join(map(str, row[:3])), "outer loop"]
        text += ["vertex " + " ".join(map(str, row[3 * k : 3 * k + 3])) for k in (1, 2, 3)]
        text += ["endloop", "endfacet"]
    return [binary, "\n".join([*text, "endsolid a", ""]).encode()]


def _npy(folder: Path) -> list[bytes]:
    structured = np.zeros(_COUNT, [("x", "f4"), ("y", "f4"), ("z", "f4"), ("i", "u2")])
    file = io.BytesIO()
    np.save(file, structured)
    return [_write(folder / "a.npy", single=False), _write(folder / "b.npy", single=True), file.getvalue()]


def _npz(folder: Path) -> list[bytes]:
    file = io.BytesIO()
    columns = {axis: np.arange(_COUNT, dtype=np.int16) for axis in "xyz"}
    np.savez_compressed(file, **columns, i=np.ones(_COUNT))
    return [_write(folder / "a.npz", single=True), file.getvalue()]


def _h5(folder: Path) -> list[bytes]:
    import h5py

    shapes = _rng().normal(size=(3, 8, 3)).astype(np.float32)
    contents = []
    for options in ({}, {"chunks": (1, 8, 3), "compression": "gzip"}):
        for version in ("earliest", "latest"):
            with h5py.File(folder / "a.h5", "w", libver=version) as file:
                file.create_dataset("data", data=shapes, **options)
                file.create_dataset("label", data=np.arange(3, dtype=np.uint8)[:, None])
            contents.append((folder / "a.h5").read_bytes())
    return contents


def _poses_as_text(size: int) -> bytes:
    rows = [" ".join(map(str, row)) for row in np.eye(size).tolist()]
    return "\n".join(line for i in range(2) for line in (f"{i}\t {i + 1}\t 3", *rows)).encode()


def _description(folder: Path) -> list[bytes]:
    import torch

    from wsdesc.descriptor.description import Description

    points = torch.from_numpy(_rng().normal(size=(9, 3)))
    frames = torch.eye(3).expand(4, 3, 3)
    description = Description(
        points.float(), torch.arange(6), torch.ones(4, 8), frames, 0.1, np.eye(4), "indoor-fast"
    )
    description.save(folder / "a.npz")
    return [(folder / "a.npz").read_bytes()]


def _registration(folder: Path) -> list[bytes]:
    numbers = dict.fromkeys(("confidence", "overlap", "rmse", "inliers", "matches", "resolution"), 1)
    pose = {"T_target_source": np.eye(4).tolist(), "success": True}
    lists = {"warnings": ["a warning"], "timings": {"match": 0.5}}
    return [json.dumps({**pose, **numbers, **lists}).encode()]


def _e57(folder: Path) -> list[bytes]:
    """Replace the random identifiers, so that the files are the same each time."""
    contents = [_write(folder / "a.e57", single=False), _write(folder / "b.e57", single=True)]
    return [repair_e57(_RANDOM_GUID.sub(b"{" + b"0" * 36 + b"}", content)) for content in contents]


def _weights(folder: Path) -> list[bytes]:
    import torch

    from wsdesc.descriptor.model import WSDesc

    torch.manual_seed(0)
    WSDesc(width=0.01, resolution=4, dimension=2).save(folder / "a.safetensors")
    return [(folder / "a.safetensors").read_bytes()]


def _yaml(folder: Path) -> list[bytes]:
    from wsdesc.learning.options import PRESETS

    PRESETS["small"].save(folder / "a.yaml")
    return [(folder / "a.yaml").read_bytes(), b"steps: 12\nloss: {lambda_o: 1e-3}\nstart: ~\n"]


def _pairs(folder: Path) -> list[bytes]:
    pair = {"sequence": 0, "i": 0, "j": 1, "overlap": 0.5}
    return [json.dumps({"sequences": ["a"], "lengths": [2], "pairs": [pair]}).encode()]


def _eth(folder: Path) -> list[bytes]:
    names = ",".join(["poseId", *(f"T{row}{column}" for row in range(4) for column in range(4))])
    rows = [",".join(map(str, [k, *np.eye(4).ravel().tolist()])) for k in range(2)]
    return ["\n".join([names, *rows, ""]).encode()]


_SPECIAL: dict[str, Callable[[Path], list[bytes]]] = {
    "ply": _ply,
    "pcd": _pcd,
    "las": _las,
    "laz": lambda folder: _las(folder, "laz"),
    "obj": _obj,
    "off": _off,
    "stl": _stl,
    "npy": _npy,
    "npz": _npz,
    "e57": _e57,
    "ptx": exchange.ptx,
    "vtk": exchange.vtk,
    "vtp": exchange.vtp,
    "gltf": exchange.gltf,
    "glb": exchange.glb,
    "h5": _h5,
    "gt.log": lambda folder: [_poses_as_text(4)],
    "gt.info": lambda folder: [_poses_as_text(6)],
    "info.txt": lambda folder: [b"scene 0 1\n" + b"\n".join(_poses_as_text(4).split(b"\n")[1:5])],
    "pose.json": lambda folder: [json.dumps({"T_target_source": np.eye(4).tolist()}).encode()],
    "registration": _registration,
    "poses": lambda folder: [json.dumps(RECONSTRUCTION["poses.json"]).encode()],
    "graph": lambda folder: [json.dumps(RECONSTRUCTION["graph.json"]).encode()],
    "pose.txt": lambda folder: [b"1 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1\n"],
    "keypoints": lambda folder: [b"0\n3\n7\n", b"1.0e0\n"],
    "eth": _eth,
    "description": _description,
    "weights": _weights,
    "options": _yaml,
    "pairs": _pairs,
}
