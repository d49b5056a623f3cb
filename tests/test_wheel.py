"""The wheel: its content, its reproducibility, and a registration from an installed copy."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

from wsdesc.cloud.files import write_points

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements-dev.lock"
EXTENSIONS = {".py", ".js", ".html", ".md", ".json", ".safetensors", ".typed"}


def build(tree: Path, out: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(out)]
    subprocess.run(command, cwd=tree, check=True, capture_output=True, timeout=120)
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.mark.slow
def test_wheel_holds_the_package_only(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        texts = b"".join(archive.read(n) for n in names if Path(n).suffix in {".py", ".md", ".json"})
        metadata = archive.read(next(n for n in names if n.endswith("METADATA"))).decode()
    code = [name for name in names if ".dist-info/" not in name]
    source = ROOT / "src"
    files = {p.relative_to(source).as_posix() for p in (source / "wsdesc").rglob("*") if p.is_file()}
    assert set(code) <= files
    assert {Path(name).suffix for name in code} <= EXTENSIONS
    shipped = (".py", ".safetensors", ".js", ".html", "py.typed")
    assert {name for name in files if name.endswith(shipped)} <= set(code)
    assert "wsdesc/py.typed" in code
    assert "wsdesc/view/assets/controls.js" in code
    assert not [name for name in names if "__pycache__" in name or ".." in name or name.startswith("/")]
    assert str(ROOT).encode() not in texts
    assert "Requires-Dist: torch" in metadata
    assert wheel.stat().st_size < 20e6


@pytest.mark.slow
def test_wheel_is_reproducible(wheel, tmp_path):
    tree = tmp_path / "copy"
    tree.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, tree)
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for path in tree.rglob("*.py"):
        os.utime(path, (1e9, 1e9))
    assert build(tree, tmp_path / "out").read_bytes() == wheel.read_bytes()


@pytest.mark.slow
def test_installed_wheel_registers_scans(wheel, tmp_path, room):
    """Install the wheel into a new environment; the dependencies are those of the current one."""
    home = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, timeout=120)
    python = home / "bin" / "python"
    install = ["--python", str(python), "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True, timeout=120)
    site = next(home.glob("lib/*/site-packages"))
    libraries = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (site / "dependencies.pth").write_text("\n".join(libraries))  # their own .pth files are ignored

    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    options = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": 300}
    imported = subprocess.run([python, "-c", "import wsdesc; print(wsdesc.__file__)"], **options)
    assert imported.stdout.startswith(str(site)), imported.stderr
    write_points(tmp_path / "a.ply", room.source)
    write_points(tmp_path / "b.ply", room.target)
    command = [home / "bin" / "wsdesc", "register", "a.ply", "b.ply", "-o", "T.json", "--save", "page.html"]
    done = subprocess.run(command, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "<html" in (tmp_path / "page.html").read_text(encoding="utf-8")
    T_target_source = np.array(json.loads((tmp_path / "T.json").read_text())["T_target_source"])
    assert np.abs(T_target_source - room.T_target_source).max() < 0.1


def requirements() -> list[Requirement]:
    """Return the requirements of the package, its tests and the fuzzing."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    return [Requirement(text) for text in (*project["dependencies"], *extras["dev"], *extras["fuzz"])]


def test_every_dependency_has_both_bounds():
    for requirement in requirements():
        operators = {part.operator for part in requirement.specifier}
        assert ">=" in operators and "<" in operators, requirement  # noqa: PT018


def test_lock_file_meets_the_requirements():
    locked = {}
    for line in LOCK.read_text().splitlines():
        if not line.startswith("#"):
            pin, _, digest = line.partition(" --hash=sha256:")
            assert len(digest) == 64, line
            name, _, version = pin.partition("==")
            locked[name] = version
    for requirement in requirements():
        name = requirement.name.lower().replace("_", "-")
        if name != "torch":
            assert name in locked, f"{name} is not locked: run `make lock`"
            assert requirement.specifier.contains(locked[name]), f"{requirement}: run `make lock`"
    assert "://" not in LOCK.read_text()
