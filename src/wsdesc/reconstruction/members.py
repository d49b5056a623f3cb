"""Members of a model: hash, check and describe its scans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from wsdesc.cloud.units import Scale
from wsdesc.core.errors import InputError
from wsdesc.core.file_parts import split_part
from wsdesc.core.journal import file_key
from wsdesc.descriptor import pretrained
from wsdesc.reconstruction.assembly import Member
from wsdesc.reconstruction.jobs import DescribeSettings, FailedScan, HashedScan, ScanSurvey
from wsdesc.reconstruction.options import ReconstructOptions
from wsdesc.reconstruction.runner import Runner

U = TypeVar("U")

_NAMED = 3  # scans that an error names


def hash_scans(paths: Mapping[str, Path]) -> dict[str, HashedScan]:
    """Hash the files of scans, by name."""
    return {name: HashedScan(str(path.absolute()), file_key(path)) for name, path in paths.items()}


def separate_duplicates(
    files: Mapping[str, HashedScan], existing: Mapping[str, str] | None = None
) -> tuple[dict[str, HashedScan], dict[str, str]]:
    """Separate scans whose file has the same content as another one.

    Args:
        files: Scans, by name.
        existing: Names of other scans, by the hash of their content.

    Returns:
        The first scan of each content, and the other names with the name of that scan.
    """
    first = dict(existing or {})
    unique, duplicates = {}, {}
    for name, file in files.items():
        other = first.setdefault(file.content, name)
        if other == name:
            unique[name] = file
        else:
            duplicates[name] = other
    return unique, duplicates


def describe_settings(o: ReconstructOptions, resolution: float, weights: str) -> DescribeSettings:
    """Return the settings that all descriptions of a model share; `weights` is the hash of the weights."""
    return DescribeSettings(
        model=o.model,
        weights=weights,
        resolution=resolution,
        keypoints=o.keypoints,
        max_keypoints=max(o.keypoints, o.more_keypoints),
        device=o.device,
        seed=o.seed,
    )


def weights_of(o: ReconstructOptions) -> str:
    """Return the hash of the weights."""
    return file_key(pretrained.find(o.model))


def readable_scans(
    files: Mapping[str, HashedScan], runner: Runner, failed: dict[str, str]
) -> tuple[dict[str, HashedScan], list[ScanSurvey]]:
    """Read all scans; add those that cannot be read to `failed`, with reasons.

    Returns:
        The other scans, and their scales.
    """
    return _without_failed(files, runner.survey(list(files.values())), failed)


def common_resolution(surveys: Sequence[ScanSurvey]) -> float:
    """Derive the working resolution of scans, in their unit."""
    scale = Scale.combine([scan.spacing for scan in surveys], [scan.extent for scan in surveys])
    return scale.resolution


def describe_members(
    files: Mapping[str, HashedScan], settings: DescribeSettings, runner: Runner, failed: dict[str, str]
) -> list[Member]:
    """Describe scans; add those that cannot be described to `failed`, with reasons."""
    jobs, scans = runner.describe(list(files.values()), settings)
    job_of = dict(zip(files, jobs, strict=True))
    usable, described = _without_failed(files, scans, failed)
    return [
        Member(name, Path(file.path), job_of[name], scan)
        for (name, file), scan in zip(usable.items(), described, strict=True)
    ]


def check_count(count: int, failed: Mapping[str, str], duplicates: Mapping[str, str]) -> None:
    """Refuse fewer than two scans.

    Raises:
        InputError: There are fewer; the error names scans that were left out.
    """
    if count >= 2:
        return
    reasons = {**failed} | {name: f"a duplicate of {other}" for name, other in duplicates.items()}
    left_out = "".join(f"; {name} was left out: {reason}" for name, reason in list(reasons.items())[:_NAMED])
    raise InputError(f"at least two readable scans are required, found {count}{left_out}")


def check_files(paths: Mapping[str, Path], contents: Mapping[str, str]) -> dict[str, HashedScan]:
    """Check that the files of a model's scans are where they were, and unchanged; return them hashed.

    Raises:
        InputError: A file was moved, deleted or changed.
    """
    files = hash_scans({name: paths[name] for name in contents})
    for name, file in files.items():
        if file.content != contents[name]:
            missing = file.content.startswith("unreadable")
            what = "was moved or deleted" if missing else "changed since it was added to the model"
            advice = "put it back" if missing else "put the old file back"
            raise InputError(
                f"{file.path}: the file of the scan {name} {what}: {advice}, or remove the scan from the "
                "model with `wsdesc remove`"
            )
    return files


def _without_failed(
    files: Mapping[str, HashedScan], results: Sequence[U | FailedScan], failed: dict[str, str]
) -> tuple[dict[str, HashedScan], list[U]]:
    """Drop failed scans, and add them to `failed`, with reasons that do not repeat the file."""
    usable, kept = {}, []
    for (name, file), result in zip(files.items(), results, strict=True):
        if isinstance(result, FailedScan):
            failed[name] = result.error.removeprefix(f"{split_part(file.path)[0]}: ")
        else:
            usable[name] = file
            kept.append(result)
    return usable, kept
