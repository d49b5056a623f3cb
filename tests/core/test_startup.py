"""Torch's library is loaded before torch is imported, and imported objects are never searched for garbage."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from wsdesc.core import startup


def test_torch_is_imported_after_or_during_the_load() -> None:
    lines = (
        "import sys",
        "from wsdesc.core.startup import preload_torch",
        "preload_torch()",
        "assert 'torch' not in sys.modules",
        "import torch",
        "print(int(torch.ones(3).sum()))",
    )
    run = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert run.stdout == "3\n"


@pytest.mark.parametrize("found", [None, type("Spec", (), {"submodule_search_locations": ["/missing"]})()])
def test_a_missing_library_is_no_error(found: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "find_spec", lambda name: found)
    startup._load_library()


def test_garbage_is_collected_again_after_a_failed_import() -> None:
    def fail() -> None:
        assert not gc.isenabled()
        raise ImportError

    with pytest.raises(ImportError), startup.frozen_imports():
        fail()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
    gc.unfreeze()
