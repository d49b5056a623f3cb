"""Is a file whole? Does a folder hold what another one does?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from wsdesc import read_points

# Figures of a log that tell of the time a run took, or that are means since it was last begun; who did it.
_PASSING = {"pairs_per_second", "waiting", "loss", "orthogonality", "cycle", "gradient", "runs"}
_RUNS = "runs.json"  # a benchmark names every run that its results come from: one more after a fault


def temporary(folder: Path) -> list[str]:
    """Names of files that nobody asked for."""
    known = (".lock",)
    return [p.name for p in _files(folder) if p.name.startswith(".") and p.name not in known]


def broken(folder: Path) -> list[str]:
    """Files that cannot be read to their end, and why; of lines that are appended the last may be cut off."""
    found = []
    for path in _files(folder):
        if not path.name.startswith("."):
            try:
                _content(path)
            except Exception as error:  # whatever half a file leads to
                found.append(f"{path.name} ({type(error).__name__}: {error})")
    return found


def differences(expected: Path, found: Path) -> list[str]:
    """Files that one folder lacks, or that say something else there."""
    there, here = ({p.relative_to(f): p for p in _files(f) if p.name[0] != "."} for f in (expected, found))
    names = [str(name) for name in there.keys() ^ here.keys()]
    same = there.keys() & here.keys()
    return sorted(names + [str(n) for n in same if not _equal(_content(there[n]), _content(here[n]))])


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _content(path: Path) -> Any:
    """What a file says, in a form that can be compared."""
    match path.suffix:
        case ".json":
            content = json.loads(path.read_text())
            return _lasting(content) if path.name != _RUNS else None
        case ".jsonl":
            lines = path.read_bytes().splitlines(keepends=True)
            rows = [_lasting(json.loads(line)) for line in lines if line.endswith(b"\n")]
            return sorted(rows, key=json.dumps)
        case ".yaml":
            return yaml.safe_load(path.read_text())
        case ".npz":
            with np.load(path) as arrays:
                return {name: arrays[name] for name in arrays}
        case ".ply":
            return read_points(path)
        case ".safetensors":
            from safetensors.torch import load_file

            return {name: tensor.numpy() for name, tensor in load_file(path).items()}
        case ".png":
            from matplotlib.image import imread

            return imread(path)
        case ".md":
            return [line for line in path.read_text().splitlines() if line.startswith("|")]  # its tables
    return path.read_bytes()


def _lasting(value: Any) -> Any:
    """The same without what is different every time."""
    if isinstance(value, dict):
        return {k: _lasting(v) for k, v in value.items() if k not in _PASSING}
    return [_lasting(v) for v in value] if isinstance(value, list) else value


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[k], b[k]) for k in a)
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    return bool(a == b)
