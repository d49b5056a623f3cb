"""`wsdesc info`: versions, devices, optional packages, weights."""

from __future__ import annotations

import re
from importlib import metadata

from wsdesc import __version__
from wsdesc.cli.output import Rows, print_table
from wsdesc.core.errors import EXTRAS, install_command

_PACKAGES = ("torch", "triton", "numba", "numpy", "scipy")


def info() -> None:
    """Print versions, devices, optional packages and weights."""
    sections = {"versions": _versions, "devices": _devices, "extras": _extras, "files": _files}
    for title, rows in sections.items():
        print_table(title, rows())


def _versions() -> Rows:
    import platform

    own = [("wsdesc", __version__), ("python", platform.python_version())]
    return own + [(name, _version(name) or "not installed") for name in _PACKAGES]


def _devices() -> Rows:
    import torch

    from wsdesc.core.devices import default_backend

    backend = default_backend(torch.device("cpu"))
    rows = [("cpu", f"{torch.get_num_threads()} threads, voxelization by {backend}")]
    for index in range(torch.cuda.device_count()):
        device = torch.device("cuda", index)
        name = torch.cuda.get_device_name(device)
        rows.append((str(device), f"{name}, voxelization by {default_backend(device)}"))
    if len(rows) == 1:
        rows.append(("cuda", "no device"))
    return rows


def _extras() -> Rows:
    """List the groups of optional packages."""
    rows = []
    for extra, requirements in EXTRAS.items():
        versions = {name: _version(name) for name in (re.split(r"[<>=]", r)[0] for r in requirements)}
        if all(versions.values()):
            rows.append((extra, ", ".join(f"{name} {version}" for name, version in versions.items())))
        else:
            missing = ", ".join(name for name, version in versions.items() if not version)
            rows.append((extra, f"not installed: {missing}; type: {install_command(extra)}"))
    return rows


def _files() -> Rows:
    from wsdesc.core.kernel_cache import cache_folder
    from wsdesc.descriptor import pretrained

    folder = cache_folder()
    return [
        ("compiled kernels", str(folder) if folder else "not kept: no folder is writable"),
        ("weights", ", ".join(pretrained.available()) or "none"),
    ]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
