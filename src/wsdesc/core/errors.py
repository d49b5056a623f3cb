"""What a user can do wrong, as exceptions whose message says what happened, where, and what to do."""

from __future__ import annotations

_LONGEST = 1000  # signs of a message


def one_line(text: str, longest: int = _LONGEST) -> str:
    """The text as one line of bearable length. Signs that a terminal would obey, not show, become �."""
    text = " ".join(text[: 4 * longest].split())
    text = "".join(sign if sign.isprintable() else "\ufffd" for sign in text)
    return text if len(text) <= longest else text[: longest - 1] + "…"


class WSDescError(Exception):
    """Base of every error that bad input can cause; the message is meant to be read by a person.

    It is one readable line whatever stands in the file that it quotes.
    """

    def __str__(self) -> str:
        return one_line(super().__str__())


class FileFormatError(WSDescError):
    """A file that cannot be read as what it claims to be, or cannot be written."""


class InputError(WSDescError):
    """Arguments or data that make no sense together: shapes, counts, ranges."""


class MissingExtraError(WSDescError):
    """An optional dependency is needed and not installed; the message has the line to type."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f'{what} needs an optional package. Type: pip install "wsdesc[{extra}]"')
