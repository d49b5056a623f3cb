"""Run the jobs of a reconstruction, and keep their results in the folder of the run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

from wsdesc import __version__
from wsdesc.core.executors import Executor, Serial
from wsdesc.core.folders import locked, make_folder
from wsdesc.core.geometry import Floats
from wsdesc.core.journal import Journal, content_key
from wsdesc.core.progress import ProgressHook, no_progress
from wsdesc.reconstruction.jobs import (
    CheckJob,
    DescribedScan,
    DescribeJob,
    DescribeSettings,
    FailedScan,
    HashedScan,
    PairRegistration,
    PoseChecks,
    RegisterJob,
    Result,
    ScanSurvey,
    decode,
    encode,
)
from wsdesc.reconstruction.layout import Visibility
from wsdesc.reconstruction.options import JOURNAL
from wsdesc.reconstruction.pair_selection import RegisteredPair
from wsdesc.reconstruction.pose_graph import Pair
from wsdesc.reconstruction.tasks import check_poses, describe_scan, register_pair, survey_scan

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT", bound=Result)

CACHE = "cache"  # folder of the descriptions, in the folder of a run
_FORMAT = 9  # of results and descriptions; those of another format are computed again


class Runner:
    """Run jobs by an executor. Results that an earlier run stored in the journal are not computed again.

    Args:
        folder: Folder of the run, with its journal and its cache of descriptions.
        executor: Runs the jobs.
        progress: Hook that is entered around each step.
    """

    def __init__(self, folder: Path, executor: Executor, progress: ProgressHook) -> None:
        self.cache, self.executor, self.progress = folder / CACHE, executor, progress
        make_folder(self.cache)
        self.journal = Journal(folder / JOURNAL)

    def survey(self, files: Sequence[HashedScan]) -> list[ScanSurvey | FailedScan]:
        """Measure the scale of scans."""
        return self._run("read scans", survey_scan, files, [{"content": file.content} for file in files])

    def describe(
        self, files: Sequence[HashedScan], settings: DescribeSettings
    ) -> tuple[list[DescribeJob], list[DescribedScan | FailedScan]]:
        """Describe scans; return the jobs, which name the descriptions in the cache, and their results."""
        jobs = [self.job(file, settings) for file in files]
        return jobs, self._describe("describe scans", jobs)

    def job(self, file: HashedScan, settings: DescribeSettings) -> DescribeJob:
        """Return the job that names the description of a scan in the cache, without running it."""
        return DescribeJob(file, settings, self._cache_path(file, settings))

    def describe_more(self, jobs: Sequence[DescribeJob], keypoints: int) -> list[DescribeJob]:
        """Describe more keypoints of scans; return jobs that name the larger descriptions."""
        settings = [replace(job.settings, keypoints=keypoints) for job in jobs]
        larger = [
            DescribeJob(job.file, more, self._cache_path(job.file, more), smaller_cache_path=job.cache_path)
            for job, more in zip(jobs, settings, strict=True)
        ]
        self._describe("describe more keypoints", larger)
        return larger

    def register(
        self,
        pairs: Sequence[Pair],
        scans: Sequence[DescribeJob],
        step: str = "register pairs",
        *,
        thorough: bool = False,
    ) -> dict[Pair, RegisteredPair]:
        """Register pairs of described scans; `thorough` verifies and refines more hypotheses."""
        # The hash of the files decides which scan is the source: names and order of files do not matter.
        directed = [sorted(pair, key=lambda k: scans[k].file.content) for pair in pairs]
        jobs = [RegisterJob(scans[i], scans[j], thorough) for i, j in directed]
        identities = [
            job.source.settings.identity()
            | {"source": job.source.file.content, "target": job.target.file.content}
            | ({"thorough": True} if thorough else {})
            for job in jobs
        ]
        results: list[PairRegistration] = self._run(step, register_pair, jobs, identities)
        return {
            pair: RegisteredPair.of(i, j, result.candidates, scans[i].settings.keypoints)
            for pair, (i, j), result in zip(pairs, directed, results, strict=True)
        }

    def check(
        self, poses: Mapping[Pair, Floats], scans: Sequence[DescribeJob]
    ) -> dict[Pair, list[Visibility]]:
        """Check poses T_i_j (H, 4, 4) of pairs (i, j) by free space."""
        jobs = [
            CheckJob(scans[j], scans[i], tuple(tuple(map(tuple, T)) for T in stacked.tolist()))
            for (i, j), stacked in poses.items()
        ]
        identities = [
            job.source.settings.identity()
            | {"source": job.source.file.content, "target": job.target.file.content, "poses": job.poses}
            for job in jobs
        ]
        results: list[PoseChecks] = self._run("check layout", check_poses, jobs, identities)
        return {
            pair: list(map(Visibility, r.visible, r.violating, r.share, r.overlap))
            for pair, r in zip(poses, results, strict=True)
        }

    def _describe(self, step: str, jobs: Sequence[DescribeJob]) -> list[DescribedScan | FailedScan]:
        return self._run(step, describe_scan, jobs, [_identity(job.file, job.settings) for job in jobs])

    def _cache_path(self, file: HashedScan, settings: DescribeSettings) -> str:
        return str(self.cache / f"{content_key(_identity(file, settings), __version__, _FORMAT)}.npz")

    def _run(
        self,
        step: str,
        task: Callable[[JobT], ResultT],
        jobs: Sequence[JobT],
        identities: Sequence[Mapping[str, Any]],
    ) -> list[ResultT]:
        versioned = [{**identity, "version": __version__, "format": _FORMAT} for identity in identities]
        with self.progress(step, len(jobs)) as advance:
            back = cast(Callable[[dict[str, Any]], ResultT], decode)
            return self.journal.run(self.executor, task, jobs, versioned, advance, encode=encode, decode=back)


@contextmanager
def open_runner(
    folder: Path | None, executor: Executor | None = None, progress: ProgressHook | None = None
) -> Iterator[Runner]:
    """Yield a runner in a locked folder, or in a temporary one."""
    with tempfile.TemporaryDirectory() if folder is None else locked(folder) as temporary:
        path = Path(temporary or folder or "").absolute()
        yield Runner(path, executor or Serial(), progress or no_progress)


def _identity(file: HashedScan, settings: DescribeSettings) -> dict[str, Any]:
    """Return everything that the description of a scan depends on."""
    return settings.identity() | {"content": file.content}
