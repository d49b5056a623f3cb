"""Messages of errors: one printable line, and an install command that matches pyproject.toml."""

import tomllib
from pathlib import Path

import pytest

from wsdesc.core.errors import EXTRAS, InputError, MissingExtraError, WSDescError, one_line

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_optional_packages_are_those_of_pyproject():
    declared = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    assert {extra: list(packages) for extra, packages in EXTRAS.items()} == {
        extra: packages for extra, packages in declared.items() if extra not in ("dev", "docs", "fuzz")
    }


def test_a_missing_package_is_named_with_its_install_command():
    error = MissingExtraError("reading E57", "e57")
    assert str(error) == 'reading E57 requires an optional package. Type: pip install "pye57>=0.4.3,<0.5"'
    assert isinstance(error, WSDescError)


def test_messages_are_one_printable_line_of_limited_length():
    text = "a\nb\t\x1b[31mred\x00  " + 10_000 * "x"
    message = str(InputError(text))
    assert message.startswith("a b \ufffd[31mred\ufffd x")
    assert message.isprintable()
    assert len(message) == 1000
    assert message.endswith("…")


@pytest.mark.parametrize("text", ["", "short", "ü … 点"])
def test_plain_text_stays(text):
    assert one_line(text) == text
