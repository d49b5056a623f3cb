"""Rows of a PLY element whose lists have different lengths.

Python walks from list to list; NumPy gathers the numbers of many rows at a time.
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

# A column is (rows,), or (rows, length) for lists of equal length, or ragged.
Columns = dict[str, "np.ndarray | Ragged"]

_CHUNK = 100_000  # rows
_CODES = {"i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I"}


def first_lengths(file: BinaryIO, element: Element, order: str) -> dict[str, int]:
    """Return the lengths of the lists in the first row; the position of the file stays."""
    start = file.tell()
    columns = read_rows(file, replace(element, rows=1), order)
    file.seek(start)
    return {name: int(column.lengths[0]) for name, column in columns.items() if isinstance(column, Ragged)}


def read_rows(file: BinaryIO, element: Element, order: str) -> Columns:
    """Read all columns of the element at the current position of the file."""
    parts = list(_binary_rows(file, element, order) if order else _text_rows(file, element))
    columns: Columns = {}
    for number, p in enumerate(element.properties):
        chunks = zip(*(part[number] for part in parts), strict=True)
        values, lengths = (np.concatenate(arrays) for arrays in chunks)
        columns[p.name] = Ragged(values, lengths) if p.count else values
    return columns


def skip_rows(file: BinaryIO, element: Element, order: str) -> None:
    """Skip the rows of the element at the current position of the file."""
    if not order:
        for _ in range(element.rows):
            _next_line(file, element)
        return
    for _ in _locate_lists(file, element, order):
        pass


def _binary_rows(file: BinaryIO, element: Element, order: str) -> Iterator[list[Ragged]]:
    for data, lists in _locate_lists(file, element, order):
        yield _gather_rows(data, lists, element, order)


def _locate_lists(file: BinaryIO, element: Element, order: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield per chunk of rows: the bytes of the file, and offset and length of each list (n, lists, 2)."""
    steps, before = [], 0  # bytes before the length of a list, type of the length, bytes of a value
    for p in element.properties:
        if p.count:
            steps.append((before, struct.Struct((order or "<") + _CODES[p.count]), np.dtype(p.type).itemsize))
            before = 0
        else:
            before += np.dtype(p.type).itemsize
    at = file.tell()
    data = np.memmap(file, np.uint8, "r")  # moves the position of the file
    view, end = memoryview(data), len(data)  # type: ignore[arg-type]
    counters = [(gap, length.unpack_from, length.size, size) for gap, length, size in steps]
    for start in range(0, element.rows, _CHUNK):
        located = array("q")
        append = located.append
        try:
            for _ in range(min(_CHUNK, element.rows - start)):
                for gap, unpack, width, size in counters:
                    at += gap
                    (length,) = unpack(view, at)
                    at += width
                    append(at)
                    append(length)
                    at += length * size
                    if length < 0 or at > end:
                        raise ValueError(f"a list of {length} numbers does not fit into the file")
                at += before
        except struct.error as error:
            raise ValueError(element.truncated) from error
        if at > end:
            raise ValueError(element.truncated)
        yield data, np.frombuffer(located, np.int64).reshape(-1, len(steps), 2)
    file.seek(at)


def _gather_rows(data: np.ndarray, lists: np.ndarray, element: Element, order: str) -> list[Ragged]:
    """Gather the values of every property from the bytes, with the offsets and lengths of the lists."""
    columns: list[Ragged] = []
    number = 0  # of the next list
    first = next(k for k, p in enumerate(element.properties) if p.count)
    leading = sum(np.dtype(p.type).itemsize for p in element.properties[:first])
    at = lists[:, 0, 0] - np.dtype(element.properties[first].count).itemsize - leading  # (n,)
    one = np.ones(len(lists), np.int64)
    for p in element.properties:
        size = np.dtype(p.type).itemsize
        if p.count:
            begin, lengths = lists[:, number].T
            number += 1
            before = np.repeat(np.cumsum(lengths) - lengths, lengths)
            offsets = np.repeat(begin, lengths) + (np.arange(len(before)) - before) * size
            at = begin + lengths * size
        else:
            offsets, lengths = at, one
            at = at + size
        columns.append(Ragged(_values(data, offsets, order + p.type).astype(p.type), lengths))
    return columns


def _values(data: np.ndarray, offsets: np.ndarray, kind: str) -> np.ndarray:
    """Read the numbers at the offsets (n,) of the bytes."""
    size = np.dtype(kind).itemsize
    return np.asarray(data[offsets[:, None] + np.arange(size)]).view(kind)[:, 0]


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
            Ragged(_parse(words, p), np.array(counts, np.int64))
            for words, counts, p in zip(values, lengths, element.properties, strict=True)
        ]


def _parse(words: list[bytes], p: Property) -> np.ndarray:
    """Parse word by word: an array of texts would allocate the longest for each of them."""
    with np.errstate(over="ignore"):
        return np.array(list(map(float if p.type[0] == "f" else int, words)), p.type)


def _next_line(file: BinaryIO, element: Element) -> bytes:
    for line in file:
        if not line.isspace():
            return line
    raise ValueError(element.truncated)
