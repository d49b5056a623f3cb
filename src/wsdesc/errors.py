"""What a user can do wrong, as exceptions whose message says what happened, where, and what to do."""

from __future__ import annotations


class WSDescError(Exception):
    """Base of every error that bad input can cause; the message is meant to be read by a person."""


class FileFormatError(WSDescError):
    """A file that cannot be read as what it claims to be, or cannot be written."""


class InputError(WSDescError):
    """Arguments or data that make no sense together: shapes, counts, ranges."""


class MissingExtraError(WSDescError):
    """An optional dependency is needed and not installed; the message has the line to type."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f'{what} needs an optional package. Type: pip install "wsdesc[{extra}]"')
