"""Fuzz one reader in this process: `python -m benchmarks.fuzz.worker READER SECONDS SEED FOLDER`.

Inputs that break a guarantee are stored in FOLDER/findings with their tracebacks, one per code location, and
the search continues. Inputs that abort the process are stored by atheris as FOLDER/crash-…

The reader "all" stands for all readers: the first byte of an input selects one.
"""

from __future__ import annotations

import hashlib
import resource
import sys
import traceback
import zipfile
from pathlib import Path

import atheris

from benchmarks.fuzz.guarantees import check_reader, limit_memory
from benchmarks.fuzz.mutate import mutate
from benchmarks.fuzz.readers import INSTRUMENTED, READERS
from benchmarks.fuzz.seeds import make_seeds

_MAX_INPUT = 65_536  # bytes
_FINDINGS = "findings"


def main(reader: str, seconds: str, seed: str, folder: str) -> None:
    names, work = list(READERS) if reader == "all" else [reader], Path(folder)
    for subfolder in ("corpus", _FINDINGS, *(f"scratch/{name}" for name in names)):
        (work / subfolder).mkdir(parents=True, exist_ok=True)
    with atheris.instrument_imports(include=INSTRUMENTED):
        for number, name in enumerate(names):
            _write_seeds(number, name, work)
    # Lets damage inside the members of an archive pass the checksum.
    zipfile.ZipExtFile._update_crc = lambda self, data: None  # type: ignore[method-assign,attr-defined]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit_memory()

    def test_one_input(data: bytes) -> None:
        if data:
            _read(work, names[data[0] % len(names)], data[1:])

    options = [f"-max_total_time={seconds}", f"-max_len={_MAX_INPUT}", "-timeout=60", "-rss_limit_mb=0",
               f"-artifact_prefix={work}/", f"-seed={seed}", "-reload=0", "-print_final_stats=1"]  # fmt: skip
    atheris.Setup([sys.argv[0], *options, str(work / "corpus")], test_one_input, custom_mutator=mutate)
    atheris.Fuzz()


def _write_seeds(number: int, name: str, work: Path) -> None:
    """Write valid files of a reader. Reading them imports and instruments the late modules."""
    reader, scratch = READERS[name], work / "scratch" / name
    path = scratch / reader.file_name
    for count, content in enumerate(make_seeds(name, scratch)):
        (work / "corpus" / f"seed-{name}-{count}").write_bytes(bytes([number]) + content)
        path.write_bytes(content)
        reader.read(path)
        message = check_reader(reader, path)
        if message:
            raise SystemExit(f"seed {count} of {name} is rejected: {message}")


def _read(work: Path, name: str, data: bytes) -> None:
    reader = READERS[name]
    path = work / "scratch" / name / reader.file_name
    content = reader.repair(data)
    path.write_bytes(content)
    try:
        check_reader(reader, path)
    except Exception as error:
        _store(work / _FINDINGS, name, error, content)


def _store(folder: Path, name: str, error: Exception, content: bytes) -> None:
    """Store an input that broke a guarantee, unless another one failed at the same code location."""
    cause = error.__cause__ or error
    frames = [*traceback.extract_tb(error.__traceback__), *traceback.extract_tb(cause.__traceback__)[-2:]]
    locations = [f"{frame.filename}:{frame.lineno}" for frame in frames]
    key = hashlib.sha256("\n".join([type(error).__name__, *locations]).encode()).hexdigest()[:12]
    if not (folder / f"{name}-{key}.txt").exists():
        (folder / f"{name}-{key}").write_bytes(content)
        (folder / f"{name}-{key}.txt").write_text("".join(traceback.format_exception(error)))


if __name__ == "__main__":
    main(*sys.argv[1:])
