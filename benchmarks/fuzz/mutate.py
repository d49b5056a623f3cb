"""How inputs are changed: as the fuzzing library does it, or one number becomes one that hurts."""

from __future__ import annotations

import random
import re
import struct

import atheris

_WORDS = [b"0", b"-1", b"1", b"255", b"65536", b"2147483648", b"4294967295", b"1000000000000",
          b"9223372036854775808", b"1e308", b"-1e999", b"nan", b"", b"0x10", b"1.5"]  # fmt: skip
_NUMBERS = [0, 1, 127, 128, 255, 256, 65535, 2**31 - 1, 2**31, 2**32 - 1, 10**12, 2**63 - 1, 2**64 - 1]
_SIZES = {1: "B", 2: "H", 4: "I", 8: "Q"}


def mutate(data: bytes, longest: int, seed: int) -> bytes:
    """Another input made of `data`; the same for the same seed, as far as the library keeps that."""
    chance = random.Random(seed)
    first, data = data[:1], data[1:]  # which reader it is for
    if not first:
        return b"\0"
    return first + _changed(data, longest - 1, chance)


def _changed(data: bytes, longest: int, chance: random.Random) -> bytes:
    kind = chance.randrange(4)
    if kind == 0 and (words := list(re.finditer(rb"\d+", data))):
        word = chance.choice(words)
        return (data[: word.start()] + chance.choice(_WORDS) + data[word.end() :])[:longest]
    if kind == 1 and len(data) >= 8:
        size = chance.choice(list(_SIZES))
        at = chance.randrange(len(data) - size + 1)
        number = chance.choice(_NUMBERS) % 256**size
        return data[:at] + struct.pack(chance.choice("<>") + _SIZES[size], number) + data[at + size :]
    return bytes(atheris.Mutate(data, longest))
