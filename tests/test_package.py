"""The package from outside: its names, and that importing it is quick."""

from __future__ import annotations

import subprocess
import sys

import pytest

import wsdesc


def python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


def test_every_public_name_resolves() -> None:
    assert sorted(set(wsdesc.__all__)) == list(wsdesc.__all__)
    for name in wsdesc.__all__:
        value = getattr(wsdesc, name)
        assert value.__name__.rsplit(".", 1)[-1] == name
        assert callable(value)
        assert value.__doc__
        assert name in dir(wsdesc)
    assert set(wsdesc._MODULE_OF) == set(wsdesc.__all__)


def test_a_star_import_gives_exactly_the_public_names() -> None:
    names: dict[str, object] = {}
    exec("from wsdesc import *", names)
    assert set(names) - {"__builtins__"} == set(wsdesc.__all__)


def test_importing_does_not_wait_for_torch() -> None:
    heavy = "{'torch', 'numba', 'numpy', 'scipy', 'matplotlib', 'pydantic'}"
    assert python(f"import sys, wsdesc; print(sorted({heavy} & set(sys.modules)))") == "[]"


def test_an_error_can_be_named_without_torch() -> None:
    code = "import sys, wsdesc; wsdesc.WSDescError; print('torch' in sys.modules)"
    assert python(code) == "False"


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="wsdesk"):
        _ = wsdesc.wsdesk  # type: ignore[attr-defined]
    with pytest.raises(ImportError):
        exec("from wsdesc import wsdesk", {})
    assert not hasattr(wsdesc, "torch")


def test_the_version_is_that_of_the_distribution() -> None:
    from importlib.metadata import version

    assert wsdesc.__version__ == version("wsdesc")
