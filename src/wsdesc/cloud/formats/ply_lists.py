"""Rows of a PLY element whose lists have several lengths, so that each row must be looked at.

Python only counts its way from list to list; the numbers are gathered by numpy, some rows at a time.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO

import numpy as np

from wsdesc.cloud.formats.faces import Ragged
from wsdesc.cloud.formats.ply_header import Element, Property

# A column is (rows,), or (rows, length) for lists of one length, or ragged for lists of several.
Columns = dict[str, "np.ndarray | Ragged"]

_CHUNK = 100_000  # rows
_CODES = {"i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I"}


def first_lengths(file: BinaryIO, element: Element, order: str) -> dict[str, int]:
    """The lengths of the lists of the first row; the file stays where it is."""
    start = file.tell()
    columns = read_rows(file, replace(element, rows=1), order)
    file.seek(start)
    return {name: int(column.lengths[0]) for name, column in columns.items() if isinstance(column, Ragged)}


def read_rows(file: BinaryIO, element: Element, order: str) -> Columns:
    """All columns of an element with lists; leaves the file behind its last row."""
    parts = list(_binary_rows(file, element, order) if order else _text_rows(file, element))
    columns: Columns = {}
    for number, p in enumerate(element.properties):
        values, lengths = (np.concatenate(arrays) for arrays in zip(*(q[number] for q in parts), strict=True))
        columns[p.name] = Ragged(values, lengths) if p.count else values
    return columns


def skip_rows(file: BinaryIO, element: Element, order: str) -> None:
    """Leave the file behind the last row of an element with lists."""
    if not order:
        for _ in range(element.rows):
            _next_line(file, element)
        return
    for _ in _places(file, element, order):
        pass


def _binary_rows(file: BinaryIO, element: Element, order: str) -> Iterator[list[Ragged]]:
    for data, places in _places(file, element, order):
        yield _gather_rows(data, places, element, order)


def _places(file: BinaryIO, element: Element, order: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For some rows at a time: the bytes of the file, and where in them each list begins and how long it is,
    (n, lists, 2). Leaves the file behind the last row.
    """
    steps, before = [], 0  # bytes in front of the length of a list, how to read the length, bytes of a value
    for p in element.properties:
        if p.count:
            steps.append((before, struct.Struct((order or "<") + _CODES[p.count]), np.dtype(p.type).itemsize))
            before = 0
        else:
            before += np.dtype(p.type).itemsize
    at = file.tell()
    data = np.memmap(file, np.uint8, "r")  # which moves the file's position
    view, end = memoryview(data), len(data)  # type: ignore[arg-type]
    counters = [(gap, length.unpack_from, length.size, size) for gap, length, size in steps]
    for start in range(0, element.rows, _CHUNK):
        found = array("q")
        note = found.append
        try:
            for _ in range(min(_CHUNK, element.rows - start)):
                for gap, unpack, width, size in counters:
                    at += gap
                    (length,) = unpack(view, at)
                    at += width
                    note(at)
                    note(length)
                    at += length * size
                    if length < 0 or at > end:
                        raise ValueError(
                            f"it has a list of {length} numbers, which does not fit into the file"
                        )
                at += before
        except struct.error as error:
            raise ValueError(f"it is cut off among its {element.rows} rows of {element.name}") from error
        if at > end:
            raise ValueError(f"it is cut off among its {element.rows} rows of {element.name}")
        yield data, np.frombuffer(found, np.int64).reshape(-1, len(steps), 2)
    file.seek(at)


def _gather_rows(data: np.ndarray, places: np.ndarray, element: Element, order: str) -> list[Ragged]:
    """The values of every property in some rows."""
    columns: list[Ragged] = []
    lists = 0
    first = next(k for k, p in enumerate(element.properties) if p.count)
    leading = sum(np.dtype(p.type).itemsize for p in element.properties[:first])
    at = places[:, 0, 0] - np.dtype(element.properties[first].count).itemsize - leading  # (n,)
    one = np.ones(len(places), np.int64)
    for p in element.properties:
        size = np.dtype(p.type).itemsize
        if p.count:
            begin, lengths = places[:, lists].T
            lists += 1
            before = np.repeat(np.cumsum(lengths) - lengths, lengths)
            where = np.repeat(begin, lengths) + (np.arange(len(before)) - before) * size
            at = begin + lengths * size
        else:
            where, lengths = at, one
            at = at + size
        columns.append(Ragged(_values(data, where, order + p.type).astype(p.type), lengths))
    return columns


def _values(data: np.ndarray, where: np.ndarray, kind: str) -> np.ndarray:
    """The numbers that begin at the places (n,) of the bytes."""
    size = np.dtype(kind).itemsize
    return np.asarray(data[where[:, None] + np.arange(size)]).view(kind)[:, 0]


def _text_rows(file: BinaryIO, element: Element) -> Iterator[list[Ragged]]:
    for start in range(0, element.rows, _CHUNK):
        values: list[list[bytes]] = [[] for _ in element.properties]
        lengths: list[list[int]] = [[] for _ in element.properties]
        for _ in range(min(_CHUNK, element.rows - start)):
            words, at = _next_line(file, element).split(), 0
            for number, p in enumerate(element.properties):
                length = 1
                if p.count and at < len(words):
                    length = int(words[at])
                    at += 1
                if not 0 <= length <= len(words) - at:
                    raise ValueError(f"a line of {element.name} has too few numbers")
                values[number] += words[at : at + length]
                lengths[number].append(length)
                at += length
            if at < len(words):
                raise ValueError(f"a line of {element.name} has too many numbers")
        yield [
            Ragged(_parsed(words, p), np.array(some, np.int64))
            for words, some, p in zip(values, lengths, element.properties, strict=True)
        ]


def _parsed(words: list[bytes], p: Property) -> np.ndarray:
    """Word by word: an array of texts would give all of them the room of the longest."""
    with np.errstate(over="ignore"):
        return np.array(list(map(float if p.type[0] == "f" else int, words)), p.type)


def _next_line(file: BinaryIO, element: Element) -> bytes:
    for line in file:
        if not line.isspace():
            return line
    raise ValueError(f"it is cut off among its {element.rows} rows of {element.name}")
