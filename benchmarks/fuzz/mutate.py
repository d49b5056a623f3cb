"""Mutation of inputs: by atheris, or by replacing one number with a critical value."""

from __future__ import annotations

import random
import re
import struct

import atheris

_WORDS = [b"0", b"-1", b"1", b"255", b"65536", b"2147483648", b"4294967295", b"1000000000000",
          b"9223372036854775808", b"1e308", b"-1e999", b"nan", b"", b"0x10", b"1.5"]  # fmt: skip
_NUMBERS = [0, 1, 127, 128, 255, 256, 65535, 2**31 - 1, 2**31, 2**32 - 1, 10**12, 2**63 - 1, 2**64 - 1]
_SIZES = {1: "B", 2: "H", 4: "I", 8: "Q"}  # bytes of a number -> its type


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Change `data`; the first byte, which selects the reader, stays."""
    rng = random.Random(seed)
    first, data = data[:1], data[1:]
    if not first:
        return b"\0"
    return first + _change(data, max_size - 1, rng)


def _change(data: bytes, max_size: int, rng: random.Random) -> bytes:
    kind = rng.randrange(4)
    if kind == 0 and (words := list(re.finditer(rb"\d+", data))):
        word = rng.choice(words)
        return (data[: word.start()] + rng.choice(_WORDS) + data[word.end() :])[:max_size]
    if kind == 1 and len(data) >= 8:
        size = rng.choice(list(_SIZES))
        at = rng.randrange(len(data) - size + 1)
        number = rng.choice(_NUMBERS) % 256**size
        return data[:at] + struct.pack(rng.choice("<>") + _SIZES[size], number) + data[at + size :]
    return bytes(atheris.Mutate(data, max_size))
