"""The package `wsdesc`: its public names, and what importing it loads."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

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


def test_star_import_gives_the_public_names() -> None:
    names: dict[str, object] = {}
    exec("from wsdesc import *", names)
    assert set(names) - {"__builtins__"} == set(wsdesc.__all__)


def test_import_loads_no_heavy_library() -> None:
    heavy = "{'torch', 'numba', 'numpy', 'scipy', 'matplotlib', 'pydantic'}"
    assert python(f"import sys, wsdesc; print(sorted({heavy} & set(sys.modules)))") == "[]"


def test_error_type_is_available_without_torch() -> None:
    code = "import sys, wsdesc; wsdesc.WSDescError; print('torch' in sys.modules)"
    assert python(code) == "False"


def test_packages_are_available_after_import() -> None:
    code = "import wsdesc; print(wsdesc.alignment.ransac.__name__, wsdesc.matching.mutual_matches.__name__)"
    assert python(code) == "ransac mutual_matches"


def test_package_is_typed() -> None:
    from importlib.resources import files

    assert files("wsdesc").joinpath("py.typed").is_file()


@pytest.mark.parametrize(
    ("page", "package"), [("python", "wsdesc"), ("blocks", "wsdesc.alignment"), ("blocks", "wsdesc.matching")]
)
def test_reference_lists_every_public_name_once(page: str, package: str) -> None:
    text = (Path(__file__).parents[1] / "docs" / "reference" / f"{page}.md").read_text(encoding="utf-8")
    entries = Counter(re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE))
    for block, members in re.findall(r"^::: ([\w.]+)\n(?: .*\n)*? +members: \[([^]]*)\]", text, re.MULTILINE):
        entries.update(f"{block}.{name.strip()}" for name in members.split(","))
    for name in import_module(package).__all__:
        # A module of the same name hides a function: `wsdesc.alignment.refine.refine`.
        assert entries[f"{package}.{name}"] + entries[f"{package}.{name}.{name}"] == 1, name


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="wsdesk"):
        _ = wsdesc.wsdesk  # type: ignore[attr-defined]
    with pytest.raises(ImportError):
        exec("from wsdesc import wsdesk", {})
    assert not hasattr(wsdesc, "torch")


def test_version_is_that_of_the_distribution() -> None:
    from importlib.metadata import version

    assert wsdesc.__version__ == version("wsdesc")
