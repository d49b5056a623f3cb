"""Errors that a user can cause. Each message states what is wrong, where, and what to do."""

from __future__ import annotations

_MAX_LENGTH = 1000  # characters of a message

EXTRAS = {
    "peers": ("open3d>=0.20,<0.21", "kiss-matcher>=1.0,<1.1"),
    "e57": ("pye57>=0.4.3,<0.5",),
    "logs": ("tensorboard>=2.16,<3",),
    "map": ("voyager>=2.1,<3",),
    "dask": ("distributed>=2024.1,<2027",),
}
"""Optional packages by the name of their group in pyproject.toml."""


def one_line(text: str, max_length: int = _MAX_LENGTH) -> str:
    """Return the text as one line of limited length; control characters become �."""
    text = " ".join(text[: 4 * max_length].split())
    text = "".join(character if character.isprintable() else "\ufffd" for character in text)
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def install_command(extra: str) -> str:
    """Return the command that installs a group of optional packages.

    It names the packages, not `wsdesc[extra]`, so that it also works for a checkout or a wheel file.
    """
    return "pip install " + " ".join(f'"{package}"' for package in EXTRAS[extra])


class WSDescError(Exception):
    """Base class of all errors caused by input; `str(error)` is one printable line."""

    def __str__(self) -> str:
        return one_line(super().__str__())


class FileFormatError(WSDescError):
    """A file cannot be read, cannot be written, or does not have the expected format."""


class InputError(WSDescError):
    """Arguments or data are invalid: shapes, counts, ranges, or names."""


class MissingExtraError(WSDescError):
    """An optional package is required and not installed.

    Args:
        what: The feature that requires it.
        extra: Name of the group in `EXTRAS`.
    """

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} requires an optional package. Type: {install_command(extra)}")
