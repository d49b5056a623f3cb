"""Malicious PTX, KITTI, VTK and glTF files for `expensive`."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.fuzz.expensive_binary import HUGE, SIZE, Case
from benchmarks.fuzz.seeds_exchange import glb_file, gltf_document, ptx, vtk, vtp_file


def ptx_and_kitti(folder: Path) -> Iterator[Case]:
    (seed, *_) = ptx(folder)
    yield "ptx", f"{HUGE} columns", seed.replace(b"2\n", b"%d\n" % HUGE, 1)
    yield "ptx", f"{HUGE} columns without rows", seed.replace(b"2\n3\n", b"%d\n0\n" % HUGE, 1)
    empty = seed[: seed.index(b"0 0 0 0.5")].replace(b"2\n3\n", b"0\n0\n", 1)
    yield "ptx", "many empty stations", empty * (SIZE // len(empty))
    one = seed.replace(b"2\n3\n", b"1\n1\n", 1)
    one = one[: one.index(b"0 0 0 0.5")] + b"1 2 3 4\n"
    yield "ptx", "many stations", one * (SIZE // len(one))
    yield "ptx", "one line", seed[: seed.index(b"0 0 0 0.5")] + b"1 " * (SIZE // 2)
    yield "bin", "a megabyte of zeros", bytes(SIZE)
    yield "bin", "a megabyte of points", np.full((SIZE // 16, 4), 0.5, "<f4").tobytes()


def vtk_and_vtp(folder: Path) -> Iterator[Case]:
    text, binary, late = vtk(folder)
    for name, seed in (("text", text), ("binary", binary), ("offsets", late)):
        yield "vtk", f"{HUGE} points, {name}", seed.replace(b"POINTS 5", b"POINTS %d" % HUGE)
        yield "vtk", f"{HUGE} rows, {name}", seed.replace(b"POINT_DATA 5", b"POINT_DATA %d" % HUGE)
        yield "vtk", f"{HUGE} polygons, {name}", seed.replace(b"POLYGONS ", b"POLYGONS %d" % HUGE)
    yield "vtk", "many empty sections", text + b"SCALARS a float\n" * (SIZE // 16)
    yield "vtk", "many fields", text + b"FIELD f 50000\n" + b"a 0 0 int\n" * (SIZE // 12)
    yield "vtk", f"{HUGE} components", text + b"FIELD f 1\na %d 0 int\n" % HUGE
    polygons = SIZE // 2
    head = binary[: binary.index(b"POLYGONS")]
    ragged = np.zeros(polygons, ">i4").tobytes()
    yield "vtk", "many empty polygons", head + b"POLYGONS %d %d\n" % (polygons // 2, polygons // 2) + ragged
    numbers = b"POINTS 80000 float\n" + b"1 2 3\n" * 80_000
    yield "vtk", "a megabyte of numbers", text[: text.index(b"POINTS")] + numbers
    yield "vtk", "a long number", text[: text.index(b"POINTS")] + b"POINTS 1 float\n1 2 " + b"3" * SIZE
    plain = vtp_file("ascii")
    yield "vtp", f"{HUGE} points", plain.replace(b'NumberOfPoints="5"', b'NumberOfPoints="%d"' % HUGE)
    yield "vtp", "deep XML", plain.replace(b"<Points>", b"<a>" * (SIZE // 4) + b"<Points>")
    entities = b'<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><VTKFile'
    yield "vtp", "entities", plain.replace(b"<VTKFile", entities)
    piece = plain[plain.index(b"<Piece") : plain.index(b"</PolyData>")]
    yield "vtp", "many pieces", plain.replace(piece, piece * (SIZE // len(piece)))
    array = plain[plain.index(b"<DataArray") : plain.index(b"</DataArray>") + 12]
    yield "vtp", "many arrays", plain.replace(array, array * (SIZE // len(array)))
    for blocks in ([2**32 - 1] * 4, [1, 2**32 - 1, 0, 10], [2**32 - 1, 0, 0, 0], [1, 0, 0, 0]):
        yield "vtp", f"blocks {blocks}", vtp_file("zlib", blocks)
    zeros = zlib.compress(bytes(120_000_000), 9)
    lengths = np.array([1, 120_000_000, 0, len(zeros)], "<u4").tobytes()
    bomb = base64.b64encode(lengths) + base64.b64encode(zeros)
    seed = vtp_file("zlib").replace(b'Points="5"', b'Points="10000000"')
    start = seed.index(b'format="binary">', seed.index(b"<Points>")) + 16
    end = seed.index(b"</DataArray>", start)
    yield "vtp", "ten million points of zeros", seed[:start] + bomb + seed[end:]


def gltf_and_glb(folder: Path) -> Iterator[Case]:
    def both(name: str, changed: dict[str, object]) -> Iterator[Case]:
        yield "glb", name, glb_file(document | changed, content)
        uri = "data:;base64," + base64.b64encode(content).decode()
        text = document | changed | {"buffers": [{"byteLength": len(content), "uri": uri}]}
        yield "gltf", name, json.dumps(text).encode()

    document, content = gltf_document()
    text = json.dumps(document)
    for number in (HUGE, -1, 1.5, 10**30, None, "x", [], True):
        for key in ("count", "byteOffset", "byteLength", "bufferView", "componentType", "mesh", "POSITION"):
            changed = json.loads(text, object_hook=lambda d, k=key, n=number: d | ({k: n} if k in d else {}))
            yield from both(f"{key} {str(number)[:20]}", changed)
    doubling = [{"children": [k + 1, k + 1]} for k in range(60)] + [{"mesh": 0}]
    yield from both("nodes that double", {"nodes": doubling})
    yield from both("a circle of nodes", {"nodes": [{"children": [0], "mesh": 0}]})
    yield from both("many nodes", {"nodes": [{"mesh": 0}], "scenes": [{"nodes": [0] * 300_000}]})
    primitive = document["meshes"][0]["primitives"][0]  # type: ignore[index]
    many = {"meshes": [{"primitives": [primitive] * 10_000}]}
    yield from both("many primitives", many)
    yield from both("many primitives of many nodes", many | {"scenes": [{"nodes": [1] * 9000}]})
    for uri in (
        "../../../etc/passwd",
        "/etc/passwd",
        "file:///etc/passwd",
        "http://x/a.bin",
        "a.gltf",
        "data:,x",
    ):
        yield (
            "gltf",
            f"buffer {uri}",
            json.dumps(document | {"buffers": [{"byteLength": 1, "uri": uri}]}).encode(),
        )
    yield "gltf", "deep JSON", b"[" * SIZE
    yield (
        "glb",
        "a chunk of 2³² bytes",
        glb_file(document, content).replace(b"JSON", b"JSO\0", 1)[:16] + b"\xff" * 99,
    )
