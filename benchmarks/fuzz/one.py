"""Fuzz one reader in this process, `python -m benchmarks.fuzz.one READER SECONDS SEED FOLDER`.

Every broken promise of another kind is kept in FOLDER/found, the input beside the traceback, and the search
goes on. What ends the process is kept by the fuzzing library as FOLDER/crash-…

The reader "all" is all of them: the first byte of an input says which.
"""

from __future__ import annotations

import hashlib
import resource
import sys
import traceback
import zipfile
from pathlib import Path

import atheris

from benchmarks.fuzz.judge import bound_memory, judge
from benchmarks.fuzz.mutate import mutate
from benchmarks.fuzz.readers import READERS, WATCHED
from benchmarks.fuzz.seeds import make

_LONGEST = 65_536  # bytes of an input
_FOUND = "found"


def main(reader: str, seconds: str, seed: str, folder: str) -> None:
    names, work = list(READERS) if reader == "all" else [reader], Path(folder)
    for place in ("corpus", _FOUND, *(f"scratch/{name}" for name in names)):
        (work / place).mkdir(parents=True, exist_ok=True)
    with atheris.instrument_imports(include=WATCHED):
        for number, name in enumerate(names):
            _write_seeds(number, name, work)
    # Damage inside a member of an archive is to get past its checksum.
    zipfile.ZipExtFile._update_crc = lambda self, data: None  # type: ignore[method-assign,attr-defined]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    bound_memory()

    def one(data: bytes) -> None:
        if data:
            _try(work, names[data[0] % len(names)], data[1:])

    options = [f"-max_total_time={seconds}", f"-max_len={_LONGEST}", "-timeout=60", "-rss_limit_mb=0",
               f"-artifact_prefix={work}/", f"-seed={seed}", "-reload=0", "-print_final_stats=1"]  # fmt: skip
    atheris.Setup([sys.argv[0], *options, str(work / "corpus")], one, custom_mutator=mutate)
    atheris.Fuzz()


def _write_seeds(number: int, name: str, work: Path) -> None:
    """Good files for a reader; reading them imports, watched, what is imported late."""
    reader, scratch = READERS[name], work / "scratch" / name
    path = scratch / reader.file_name
    for count, content in enumerate(make(name, scratch)):
        (work / "corpus" / f"seed-{name}-{count}").write_bytes(bytes([number]) + content)
        path.write_bytes(content)
        reader.read(path)
        refused = judge(reader, path)
        if refused:
            raise SystemExit(f"seed {count} of {name} is not good: {refused}")


def _try(work: Path, name: str, data: bytes) -> None:
    reader = READERS[name]
    path = work / "scratch" / name / reader.file_name
    content = reader.seal(data)
    path.write_bytes(content)
    try:
        judge(reader, path)
    except Exception as error:
        _keep(work / _FOUND, name, error, content)


def _keep(folder: Path, name: str, error: Exception, content: bytes) -> None:
    """Save an input that broke a promise, unless one that did it at the same place is there."""
    places = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
    cause = error.__cause__ or error
    places += [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(cause.__traceback__)[-2:]]
    key = hashlib.sha256("\n".join([type(error).__name__, *places]).encode()).hexdigest()[:12]
    if not (folder / f"{name}-{key}.txt").exists():
        (folder / f"{name}-{key}").write_bytes(content)
        (folder / f"{name}-{key}.txt").write_text("".join(traceback.format_exception(error)))


if __name__ == "__main__":
    main(*sys.argv[1:])
