"""Malicious files of binary formats for `expensive`: wrong sizes, and extreme compression."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.fuzz.readers import repair_e57
from benchmarks.fuzz.seeds import make_seeds

SIZE = 1_000_000  # bytes of most files
HUGE = 10**12  # a wrong count
_BLOCK = 2**20
Case = tuple[str, str, bytes]  # reader, name, content


def _npy_head(shape: str, kind: str = "<f8") -> bytes:
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (63 - (len(header) + 10) % 64) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header


def _zip(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def arrays(folder: Path) -> Iterator[Case]:
    for shape in (f"({HUGE}, 3)", "(-1, 3)", f"({2**62}, 4)", f"(0, {HUGE})", f"({HUGE}, 0)"):
        yield "npy", f"shape {shape}", _npy_head(shape) + bytes(240)
        yield "npz", f"shape {shape}", _zip({"points.npy": _npy_head(shape) + bytes(240)})
    for kind in ("npy", "npz"):
        head = b"\x93NUMPY\2\0" + struct.pack("<I", 2**32 - 16) + bytes(240)
        yield (
            kind,
            "a header of 2³² bytes",
            head if kind == "npy" else _zip({"points.npy": head}),
        )
    yield "npy", "a million columns", _npy_head(f"(1, {SIZE})", "|i1") + bytes(SIZE)
    yield "npy", "an object", _npy_head("(3, 3)", "|O") + bytes(72)
    yield "npz", "many arrays", _zip({f"{k}.npy": _npy_head("(1,)") + bytes(8) for k in range(3500)})
    for kind, width in (("|i1", 1), ("<f8", 8)):
        for rows in (5_000_000, 300_000_000):
            count = rows // width
            bomb = _deflated(_npy_head(f"({count}, 3)", kind), 3 * count * width)
            yield "npz", f"{rows} rows of zeros, {kind}", bomb
            yield "description", f"{rows} rows of zeros, {kind}", bomb
    small = bytearray(_deflated(_npy_head("(1, 3)", "|i1"), 900_000_000))
    at = small.rfind(b"PK\1\2")
    small[at + 24 : at + 28] = struct.pack("<I", len(_npy_head("(1, 3)", "|i1")) + 3)
    yield "npz", "more than the directory says", bytes(small)
    plain = _npy_head("(1000000, 3)", "|i1")
    yield "npz", "bzip2", _zip({"points.npy": plain + bytes(3_000_000)}, zipfile.ZIP_BZIP2)


def _deflated(head: bytes, zeros: int) -> bytes:
    """Return an archive of one array, the head and so many zeros, without allocating them."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    start = compressor.compress(head + bytes(zeros % _BLOCK)) + compressor.flush(zlib.Z_FULL_FLUSH)
    block = compressor.compress(bytes(_BLOCK)) + compressor.flush(zlib.Z_FULL_FLUSH)  # can be repeated
    body = start + block * (zeros // _BLOCK) + compressor.flush()
    crc = (
        zlib.crc32(head + bytes(zeros)) if zeros < 10**8 else 0
    )  # wrong: readers notice that only at the end
    name = b"points.npy"
    sizes = struct.pack("<III", crc, len(body), len(head) + zeros)
    local = (
        b"PK\3\4" + struct.pack("<HHHHH", 20, 0, 8, 0, 33) + sizes + struct.pack("<HH", len(name), 0) + name
    )
    entry = b"PK\1\2" + struct.pack("<HHHHHH", 20, 20, 0, 8, 0, 33) + sizes
    entry += struct.pack("<HHHHHII", len(name), 0, 0, 0, 0, 0, 0) + name
    end = b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(entry), len(local) + len(body), 0)
    return local + body + entry + end


def las(folder: Path) -> Iterator[Case]:
    import laspy

    for extension in ("las", "laz"):
        for seed in make_seeds(extension, folder):
            changed = bytearray(seed)
            changed[107:111] = b"\xff" * 4
            if seed[25] == 4:
                changed[247:255] = struct.pack("<Q", HUGE)
            yield extension, f"too many points, format {seed[104] & 63}", bytes(changed)
            changed = bytearray(seed)
            changed[100:104] = b"\xff" * 4
            yield extension, f"too many records, format {seed[104] & 63}", bytes(changed)
    evlr = bytearray(make_seeds("las", folder)[2])
    evlr[235:247] = struct.pack("<QI", len(evlr), 1)
    yield (
        "las",
        "a record of 2**60 bytes after the points",
        bytes(evlr) + bytes(20) + struct.pack("<Q", 2**60) + bytes(32),
    )
    for point_format, count in ((0, 2_900_000), (6, 2_200_000), (0, 9_000_000)):
        header = laspy.LasHeader(point_format=point_format, version="1.4")
        las = laspy.LasData(header)
        las.x = np.zeros(count)
        las.write(str(folder / "large.laz"))
        yield (
            "laz",
            f"{count} equal points, format {point_format}",
            (folder / "large.laz").read_bytes(),
        )
    layered = make_seeds("laz", folder)[2]
    start = int.from_bytes(layered[96:100], "little")
    row = int.from_bytes(layered[105:107], "little")
    for layer in range(9):
        changed = bytearray(layered)
        at = start + 8 + row + 4 + 4 * layer
        changed[at : at + 4] = b"\xf0\xff\xff\xff"
        yield "laz", f"layer {layer} of 2³² bytes", bytes(changed)
    changed[layered.index(b"laszip encoded") + 52] = 1  # type of the compressor: without layers
    yield "laz", "a layer of 2³² bytes in a file without layers", bytes(changed)
    for offset in (len(layered), 2**55, -2):
        changed = bytearray(layered)
        changed[start : start + 8] = struct.pack("<q", offset)
        yield "laz", f"a chunk table at {offset}", bytes(changed)


def e57(folder: Path) -> Iterator[Case]:
    seed = make_seeds("e57", folder)[0]
    start, length = struct.unpack_from("<QQ", seed, 24)
    content = b"".join(seed[at : at + 1020] for at in range(0, len(seed), 1024))
    begin = start // 1024 * 1020 + start % 1024
    xml = content[begin : begin + length]
    first, last = xml.index(b"<vectorChild"), xml.index(b"</vectorChild>") + len(b"</vectorChild>")
    scan, end = xml[first:last], b"</e57Root>"
    count = b'recordCount="12"'
    entities = b"".join(b'<!ENTITY e%d "%s">' % (k, b"&e%d;" % (k - 1) * 10) for k in range(1, 10))
    doctype = b'<!DOCTYPE e57Root [<!ENTITY e0 "e">' + entities + b"]><e57Root"
    for name, other in {
        f"{HUGE} points": xml.replace(count, b'recordCount="%d"' % HUGE),
        "a million points": xml.replace(count, b'recordCount="1000000"'),
        "many scans": xml.replace(scan, scan * (SIZE // len(scan))),
        "many scans of many points": xml.replace(scan, scan.replace(count, b'recordCount="100000"') * 200),
        "deep XML": xml.replace(end, b'<a type="Structure">' * 35_000 + b"</a>" * 35_000 + end),
        "wide XML": xml.replace(end, b"".join(b'<a%d type="Integer"/>' % k for k in range(40_000)) + end),
        "entities": xml.replace(b"<e57Root", doctype, 1).replace(b"<![CDATA[Scan 0]]>", b"&e9;"),
        "another file as entity": xml.replace(b"<e57Root", b'<!DOCTYPE a SYSTEM "/etc/passwd"><e57Root', 1),
        "an invalid rotation": xml.replace(b'<w type="Float">1</w>', b'<w type="Float">0</w>'),
    }.items():
        whole = content[:begin] + other
        whole += bytes(-len(whole) % 1020)
        paged = bytearray(b"".join(whole[at : at + 1020] + bytes(4) for at in range(0, len(whole), 1020)))
        struct.pack_into("<QQQ", paged, 16, len(paged), start, len(other))
        yield "e57", name, repair_e57(bytes(paged))


def h5(folder: Path) -> Iterator[Case]:
    import h5py

    path = folder / "large.h5"

    def content(name: str, **options: object) -> Case:
        with h5py.File(path, "w") as file:
            file.create_dataset("data", **options)
        return "h5", name, path.read_bytes()

    yield content("nothing stored", shape=(10**6, 10**6, 3), dtype="f4", chunks=(1, 1024, 3))
    yield content("all zeros", data=np.zeros((5000, 1000, 3), "i1"), compression="gzip", compression_opts=9)
    yield content("all zeros, more of them", data=np.zeros((40000, 1000, 3), "i1"), compression="gzip")
    yield content("external data", shape=(1, 4, 3), dtype="u1", external=[("/etc/passwd", 0, 12)])
    with h5py.File(path, "w") as file:
        file["data"] = h5py.ExternalLink("/etc/passwd", "data")
    yield "h5", "a link to another file", path.read_bytes()
    with h5py.File(path, "w") as file:
        file["data"] = h5py.SoftLink("/data")
    yield "h5", "a link to itself", path.read_bytes()
    with h5py.File(path, "w") as file:
        layout = h5py.VirtualLayout((1, 4, 3), "f4")
        layout[0] = h5py.VirtualSource("/etc/passwd", "data", (4, 3))
        file.create_virtual_dataset("data", layout)
    yield "h5", "virtual", path.read_bytes()
