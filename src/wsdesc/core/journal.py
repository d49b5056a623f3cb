"""Keep the results of finished jobs on disk, so that a stopped run continues where it stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from wsdesc.core.atomic import append_line
from wsdesc.core.errors import FileFormatError
from wsdesc.core.executors import Executor
from wsdesc.core.file_parts import split_part
from wsdesc.core.progress import Advance

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")
PlainResult = dict[str, Any]
"""A result as JSON stores it. The key "error" marks the result of a job that failed."""


class Journal:
    """A file with one line of JSON per result, each under a hash of everything the result depends on.

    Failed jobs are not stored, so the next run tries them again. Damaged lines, such as a line that was cut
    off by a power failure, are ignored: their jobs run again.

    Args:
        path: The file, created with the first result.

    Raises:
        FileFormatError: The file exists and cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._results: dict[str, PlainResult] = {}
        try:
            data = path.read_bytes() if path.exists() else b""
            if data and not data.endswith(b"\n"):
                with path.open("ab") as file:
                    file.write(b"\n")  # end the cut-off line: the next result starts a new one
        except OSError as error:
            raise FileFormatError(f"{path}: cannot be read: {error.strerror or error}") from error
        for line in data.splitlines():
            try:
                entry = json.loads(line)
                self._results[entry["key"]] = dict(entry["result"])
            except (ValueError, TypeError, KeyError, RecursionError):
                continue

    def run(
        self,
        executor: Executor,
        task: Callable[[JobT], ResultT],
        jobs: Sequence[JobT],
        identities: Sequence[Mapping[str, Any]],
        advance: Advance = lambda items: None,
        *,
        encode: Callable[[ResultT], PlainResult],
        decode: Callable[[PlainResult], ResultT],
    ) -> list[ResultT]:
        """Return the results of all jobs in order, and run only jobs whose result is not stored.

        Args:
            executor: Runs the jobs.
            task: Function of a module that computes the result of one job.
            jobs: Arguments of the task.
            identities: Per job, everything its result depends on, as plain values; content hashes instead of
                paths. Jobs with equal identities run once.
            advance: Called with the number of jobs finished since its last call.
            encode: Turns a result into plain JSON values. The key "error" marks a failed job.
            decode: Turns plain values back into a result. A stored line counts as damaged if this raises
                ValueError, TypeError or KeyError.
        """
        keys = [content_key(task.__name__, identity) for identity in identities]
        results: dict[str, ResultT] = {}
        for key in set(keys) & self._results.keys():
            try:
                results[key] = decode(self._results[key])
            except (ValueError, TypeError, KeyError):
                continue
        first = {key: number for number, key in reversed(list(enumerate(keys))) if key not in results}
        numbers = sorted(first.values())
        advance(len(jobs) - len(numbers))
        for position, result in executor.run(task, [jobs[number] for number in numbers]):
            key = keys[numbers[position]]
            results[key] = decode(self._store(key, encode(result)))
            advance(1)
        return [results[key] for key in keys]

    def _store(self, key: str, plain: PlainResult) -> PlainResult:
        """Append a result to the file; return it as it would be read back."""
        line = json.dumps({"key": key, "result": plain}, allow_nan=False)
        self._results[key] = json.loads(line)["result"]  # a resumed run must compute with the same values
        if "error" not in plain:
            append_line(self.path, line)
        return self._results[key]


def content_key(*parts: Any) -> str:
    """Hash plain values; equal values have equal hashes on every machine."""
    text = json.dumps(parts, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def file_key(path: str | Path) -> str:
    """Hash a file's bytes and append its extension, which selects the reader, and the part of the file.

    A file that cannot be read gets a text that no hash equals.
    """
    whole, _ = split_part(path)
    try:
        with whole.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() + Path(path).suffix.lower()
    except OSError:
        return f"unreadable {path}"
