"""Malicious files of up to a megabyte that take as much time or memory as possible, or have wrong sizes.

`python -m benchmarks.fuzz.expensive [READER …]` reads the files of all or of the given readers, with limited
memory, and exits with 1 if a guarantee was broken.
"""

from __future__ import annotations

import json
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.fuzz import expensive_binary as binary
from benchmarks.fuzz import expensive_exchange as exchange
from benchmarks.fuzz.expensive_binary import HUGE, SIZE, Case
from benchmarks.fuzz.guarantees import check_reader, limit_memory
from benchmarks.fuzz.readers import READERS
from benchmarks.fuzz.seeds import make_seeds


def cases(reader: str, folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each file for a reader; `folder` is for temporary files."""
    for kind, name, content in _MAKERS[reader](folder):
        if kind == reader:
            yield name, content


def _repeat(line: bytes, size: int = SIZE) -> bytes:
    return line * (size // len(line))


def _ply_file(order: str, elements: list[tuple[str, int, list[str]]], body: bytes) -> bytes:
    lines = ["ply", f"format {order} 1.0"]
    for name, rows, properties in elements:
        lines += [f"element {name} {rows}", *(f"property {p}" for p in properties)]
    return ("\n".join([*lines, "end_header"]) + "\n").encode() + body


def _ply(folder: Path) -> Iterator[Case]:
    xyz = ["float x", "float y", "float z"]
    point, binary = bytes(12), "binary_little_endian"
    for order in ("ascii", binary):
        for wrong in (("vertex", HUGE, xyz), ("face", HUGE, ["list uchar int vertex_indices"])):
            elements = [("vertex", 1, xyz), wrong] if wrong[0] == "face" else [wrong]
            yield (
                "ply",
                f"{HUGE} rows of {wrong[0]}, {order}",
                _ply_file(order, elements, b"0 0 0\n3 0 0 0\n"),
            )
    yield "ply", "rows without properties", _ply_file(binary, [("a", HUGE, []), ("vertex", 1, xyz)], point)
    empty = ("a", SIZE - 100, ["list uchar uchar b"])
    yield "ply", "a million empty lists", _ply_file(binary, [empty, ("vertex", 1, xyz)], bytes(SIZE))
    faces = ("face", SIZE // 3, ["list uchar uchar vertex_indices"])
    ragged = _repeat(b"\0\3\0\0\0\1")
    yield "ply", "lists of different lengths", _ply_file(binary, [("vertex", 1, xyz), faces], point + ragged)
    faces = ("face", SIZE // 10, ["list uchar uchar vertex_indices"])
    ragged = b"0 0 0\n" + _repeat(b"3 0 0 0\n0\n")
    yield "ply", "lists of different lengths as text", _ply_file("ascii", [("vertex", 1, xyz), faces], ragged)
    faces = ("face", 2, ["list uint uchar vertex_indices"])
    polygon = point + struct.pack("<I", SIZE) + bytes(SIZE) + struct.pack("<I", 0)
    yield "ply", "a polygon of a million corners", _ply_file(binary, [("vertex", 1, xyz), faces], polygon)
    words = b"0 0 0\n200000 " + b"0" * 400_000 + b" 0" * 199_999 + b"\n0\n"
    yield "ply", "a long number in a long list", _ply_file("ascii", [("vertex", 1, xyz), faces], words)
    many = [*xyz, *(f"uchar a{k}" for k in range(9000)), "list uchar uchar b"]
    yield "ply", "thousands of properties", _ply_file(binary, [("vertex", 90, many)], bytes(SIZE))


def _pcd(folder: Path) -> Iterator[Case]:
    def header(count: int, kind: str, size: int, data: str) -> bytes:
        return (
            f"VERSION .7\nFIELDS x y z\nSIZE {size} {size} {size}\nTYPE {kind} {kind} {kind}\nCOUNT 1 1 1\n"
            f"WIDTH {count}\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS {count}\nDATA {data}\n"
        ).encode()

    for data in ("ascii", "binary", "binary_compressed"):
        yield "pcd", f"{HUGE} points, {data}", header(HUGE, "F", 4, data) + b"0 0 0\n" * 9
    compressed = b"\0\0" + _repeat(b"\xe0\xff\0")  # a byte, then copies of 264 bytes each
    for kind, size in (("I", 1), ("F", 8)):
        expanded = 1 + len(compressed[2:]) // 3 * 264
        count = expanded // (3 * size)
        body = struct.pack("<II", len(compressed), count * 3 * size) + compressed
        yield "pcd", f"88 times its size, {kind}{size}", header(count, kind, size, "binary_compressed") + body
    counts = header(3, "F", 4, "binary").replace(b"COUNT 1 1 1", b"COUNT 1 1 400000000")
    yield "pcd", "400 million values per point", counts + bytes(SIZE)
    for data in ("ascii", "binary"):
        none = header(0, "F", 4, data).replace(b"COUNT 1 1 1", b"COUNT 1 1 400000000")
        yield "pcd", f"400 million values per point, without points, {data}", none + b"0 0 0\n" * 9


def _mesh(folder: Path) -> Iterator[Case]:
    vertex = b"v 0 0 0\nv 1 0 0\nv 0 1 0\n"
    for name, line in {
        "vertices": b"v 0 0 0\n",
        "faces of different sizes": b"f 1 2 3\nf 1 2 3 1\nf 1 2 3 1 2\n",
        "faces of different forms": b"f 1/1 2/1 3/1\nf 1//1 2//1 3//1\nf 1 2 3\n",
        "objects": b"o a\nf 1 2 3\n",
        "groups": b"g b\nf 1 2 3\n",
        "materials": b"usemtl m\nf 1 2 3\nusemtl n\nf 1 2 3\n",
        "libraries": b"mtllib ../../a.mtl\n",
        "continued lines": b"f 1 2 \\\n3\n",
        "spaces": b" \t",
        "textures": b"vt 0 0\nf 1/1 2/2 3/3\n",
    }.items():
        yield "obj", f"a megabyte of {name}", vertex + _repeat(line)
    yield "obj", "a face of a megabyte", vertex + b"f" + _repeat(b" 1") + b"\n"
    yield "off", f"{HUGE} vertices", f"OFF\n{HUGE} 0 0\n0 0 0\n".encode()
    yield "off", f"{HUGE} faces", f"OFF\n1 {HUGE} 0\n0 0 0\n".encode()
    lines = SIZE // 16
    yield (
        "off",
        "polygons of different sizes",
        f"OFF\n1 {2 * lines} 0\n0 0 0\n".encode() + b"3 0 0 0\n5 0 0 0 0 0\n" * lines,
    )
    yield "off", "a polygon of a megabyte", b"OFF\n1 1 0\n0 0 0\n400000" + _repeat(b" 0", 800_000) + b"\n"
    yield "off", "a megabyte of OFF", _repeat(b"OFF") + b"\n1 0 0\n0 0 0\n"
    yield "stl", "2³² triangles", bytes(80) + b"\xff" * 4 + bytes(SIZE)
    facet = b"facet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 1 0 0\nvertex 0 1 0\nendloop\nendfacet\n"
    yield "stl", "many solids", _repeat(b"solid a\n" + facet + b"endsolid a\n")
    yield "stl", "many empty solids", _repeat(b"solid\nendsolid\n")
    yield "stl", "a solid of vertices", b"solid a\n" + _repeat(b"vertex 0 0 0\n") + b"endsolid a\n"


def _text(folder: Path) -> Iterator[Case]:
    yield "xyz", "a megabyte of comments", _repeat(b"# x y z\n")
    yield "xyz", "a megabyte of short lines", _repeat(b"1\n")
    yield "xyz", "a megabyte of line ends", _repeat(b"\n") + b"1 2 3\n"
    yield "xyz", "ten lines of many columns", _repeat(b"1 " * 49_000 + b"\n")
    yield "xyz", "one line", _repeat(b"1 ")
    yield "xyz", "a long number", b"1 2 " + b"3" * SIZE
    yield "xyz", "a long number in the second line", b"1 2 3\n1 2 " + b"3" * SIZE
    yield "csv", "many names", b",".join(b"a%d" % k for k in range(12_000)) + b"\n" + b"1," * 12_000 + b"1\n"
    yield "pts", f"{HUGE} points", f"{HUGE}\n1 2 3\n".encode()
    for kind in ("gt.log", "gt.info", "info.txt", "keypoints", "pose.txt"):
        yield kind, "a megabyte of short lines", _repeat(b"1\n")
        yield kind, "one line", _repeat(b"1 ")
        yield kind, "long numbers", b"1" * (SIZE // 2) + b" 1 2\n" + b"1" * (SIZE // 2)
    names = b",".join(b"T%d%d" % (row, column) for row in range(4) for column in range(4))
    yield "eth", "many poses", names + b"\n" + _repeat(b"1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1\n")
    yield "eth", "many names", _repeat(b"T00,")


def _json(folder: Path) -> Iterator[Case]:
    pair = {"sequence": 0, "i": 0, "j": 1}
    for kind in ("pairs", "pose.json", "registration", "poses", "graph"):
        yield kind, "deep JSON", b"[" * SIZE
    yield "pose.json", "giant numbers", b"[[" + b"9" * 4000 + b"]]"
    (result,) = make_seeds("registration", folder)
    for number in (b"1e999", b"9" * 400, b"-1", b"NaN", b'"one"', b"[1]"):
        yield "registration", f"number {number[:9].decode()}", result.replace(b": 1,", b": " + number + b",")
    for kind in ("poses", "graph"):
        (content,) = make_seeds(kind, folder)
        for number in (b"1e999", b"9" * 400, b"null", b"{}"):
            yield kind, f"number {number[:9].decode()}", content.replace(b" 0.1,", b" " + number + b",")
            yield kind, f"pose of {number[:9].decode()}", content.replace(b"[1.0,", b"[" + number + b",")
    yield "registration", "giant matrix", result.replace(b"[1.0", b"[" + b"1.0, " * 200_000 + b"1.0")
    yield (
        "pairs",
        "a pair many times",
        json.dumps({"sequences": ["a"], "lengths": [2], "pairs": [pair] * 25_000}).encode(),
    )
    yield "pairs", "giant numbers", b'{"sequences": [], "lengths": [' + b"9" * SIZE + b'], "pairs": []}'


def _weights(folder: Path) -> Iterator[Case]:
    def file(header: bytes, body: bytes = b"") -> bytes:
        return struct.pack("<Q", len(header)) + header + body

    def with_options(options: str, tensors: dict[str, object] | None = None) -> bytes:
        return file(json.dumps({"__metadata__": {"wsdesc": options}, **(tensors or {})}).encode())

    yield "weights", "a header of 2**62 bytes", struct.pack("<Q", 2**62) + b"{}"
    yield "weights", "deep JSON", file(b"[" * SIZE)
    yield "weights", "deep options", with_options("[" * 400_000)
    yield "weights", "wide network", with_options('{"width": 16, "resolution": 64, "dimension": 4096}')
    yield "weights", "giant network", with_options('{"width": 1e300}')
    yield "weights", "giant number", with_options('{"dimension": ' + "9" * 4000 + "}")
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    yield "weights", "many tensors", with_options("{}", {f"t{k}": empty for k in range(14_000)})
    lie = {"dtype": "F32", "shape": [HUGE], "data_offsets": [0, 4 * HUGE]}
    yield "weights", f"{HUGE} numbers", with_options("{}", {"t": lie})


def _options(folder: Path) -> Iterator[Case]:
    aliases = "a0: &a0 [x, x]\n" + "".join(
        f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]\n" for k in range(1, 12)
    )
    merges = "a0: &a0 {x: 1}\n" + "".join(
        f"a{k}: &a{k} {{<<: [{', '.join([f'*a{k - 1}'] * 9)}]}}\n" for k in range(1, 12)
    )
    for name, text in {
        "aliases": aliases,
        "merged aliases": merges,
        "a circle": "steps: &a [*a]\n",
        "deep lists": "steps: " + "[" * 40_000,
        "deep groups": "steps: " + "{a: " * 10_000,
        "a megabyte": "steps: 1\n" + "#" * SIZE,
        "many names": "".join(f"a{k}: 1\n" for k in range(5_000)),
        "a name twice": "steps: 1\nsteps: 2\n",
        "a number of many digits": "steps: " + "9" * 40_000,
        "a hexadecimal number": "steps: 0x" + "f" * 40_000,
        "a number in minutes": "steps: " + ":".join(["59"] * 10_000),
        "infinity": "learning_rate: .inf\n",
        "an invalid date": "steps: 2001-99-99\n",
        "an object": "steps: !!python/object/apply:os.system [true]\n",
        "a list for a number": "steps: [1, 2]\n",
        "names that are numbers": "1: 2\n",
        "a group that is a number": "loss: 3\n",
        "an unknown name in an optional group": "distill: {teahcer: a}\n",
        "a list": "- steps\n",
        "a zero": "steps: 12\0\n",
    }.items():
        yield "options", name, text.encode()


_MAKERS = {
    "ply": _ply,
    "pcd": _pcd,
    **dict.fromkeys(("obj", "off", "stl"), _mesh),
    **dict.fromkeys(
        ("xyz", "csv", "pts", "gt.log", "gt.info", "info.txt", "keypoints", "pose.txt", "eth"), _text
    ),
    **dict.fromkeys(("npy", "npz", "description"), binary.arrays),
    **dict.fromkeys(("las", "laz"), binary.las),
    "e57": binary.e57,
    **dict.fromkeys(("ptx", "bin"), exchange.ptx_and_kitti),
    **dict.fromkeys(("vtk", "vtp"), exchange.vtk_and_vtp),
    **dict.fromkeys(("gltf", "glb"), exchange.gltf_and_glb),
    "h5": binary.h5,
    **dict.fromkeys(("pairs", "pose.json", "registration", "poses", "graph"), _json),
    "weights": _weights,
    "options": _options,
}


def main(readers: list[str]) -> int:
    """Read all files of the readers and print name, size, processor time and result of each."""
    broken = 0
    with TemporaryDirectory() as name:
        for kind in readers or READERS:
            folder = Path(name) / kind
            folder.mkdir()
            path = folder / READERS[kind].file_name
            for content in make_seeds(kind, folder):  # imports the modules that are imported late
                path.write_bytes(content)
                READERS[kind].read(path)
        limit_memory()
        for kind in readers or READERS:
            path = Path(name) / kind / READERS[kind].file_name
            for case, content in cases(kind, path.parent):
                path.write_bytes(content)
                print(f"{kind}: {case}, {len(content) / 1e6:.2f} MB", end=": ", flush=True)
                start = time.process_time()
                try:
                    result = check_reader(READERS[kind], path) or "read"
                except Exception as error:
                    result, broken = f"BROKEN: {type(error).__name__}: {error}", broken + 1
                print(f"{time.process_time() - start:.2f} s, {result}", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
