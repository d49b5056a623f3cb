"""Write requirements-dev.lock: version and hash of each development package.

Run `python .ci/lock.py TORCH` with the Python of the environment. The installed packages set the versions.
torch is not in the file: its build is the user's choice. The hashes hold for this platform and Python only.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements-dev.lock"
HEAD = """\
# Development packages, written by `make lock` for Linux on x86-64 with Python 3.11.
# Install your torch first, then: pip install --no-deps --require-hashes -r requirements-dev.lock
"""


def main(torch: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        installed, report = Path(name) / "installed.txt", Path(name) / "report.json"
        installed.write_bytes(_pip(sys.executable, "freeze", "--exclude-editable"))
        # A new pip reads the metadata of a package; older ones download the whole package.
        subprocess.run([sys.executable, "-m", "venv", f"{name}/new"], check=True)
        python = f"{name}/new/bin/python"
        _pip(python, "install", "--quiet", "--upgrade", "pip")
        _pip(python, "install", "--quiet", "--dry-run", "--ignore-installed", "--report", str(report),
             "--constraint", str(installed), torch, f"{ROOT}[dev,fuzz]")  # fmt: skip
        packages = json.loads(report.read_text())["install"]
    lines = sorted(filter(None, map(_line, packages)), key=str.lower)
    LOCK.write_text(HEAD + "".join(lines))
    print(f"{len(lines)} packages: {LOCK.name}")


def _pip(python: str, *arguments: str) -> bytes:
    return subprocess.run([python, "-m", "pip", *arguments], check=True, stdout=subprocess.PIPE).stdout


def _line(package: dict) -> str | None:
    """A package pinned by version and hash; None for this project and for torch."""
    name = re.sub(r"[-_.]+", "-", package["metadata"]["name"]).lower()
    if name in ("wsdesc", "torch"):
        return None
    digest = package["download_info"]["archive_info"]["hashes"]["sha256"]
    return f"{name}=={package['metadata']['version']} --hash=sha256:{digest}\n"


if __name__ == "__main__":
    main(sys.argv[1])
