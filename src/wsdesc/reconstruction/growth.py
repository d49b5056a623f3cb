"""Models that grow: add scans to a model, remove scans, and merge models.

Registered pairs of a model are kept; only pairs with other scans are registered. Then all scans are placed
again by all pairs, or with fixed poses of the scans that the model has placed.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import InputError
from wsdesc.core.journal import file_key
from wsdesc.reconstruction.assembly import Assembly, Member, assemble, pairs_by_index
from wsdesc.reconstruction.edge_result import EdgeResult
from wsdesc.reconstruction.inputs import Scans, as_files
from wsdesc.reconstruction.jobs import CandidatePose, DescribeSettings, HashedScan
from wsdesc.reconstruction.known import Known
from wsdesc.reconstruction.members import (
    check_files,
    describe_members,
    describe_settings,
    hash_scans,
    readable_scans,
    separate_duplicates,
    weights_of,
)
from wsdesc.reconstruction.model_file import ModelPair, ModelState
from wsdesc.reconstruction.places import SavedPlaces
from wsdesc.reconstruction.result import Reconstruction
from wsdesc.reconstruction.runner import CACHE, Runner

_DIGITS = 12  # of a hash, in the name of a scan


def add(model: Reconstruction, scans: Scans, runner: Runner, *, fixed: bool = False) -> Reconstruction:
    """Add scans to a model; see `Reconstruction.add`."""
    state = _state(model)
    old = check_files(model.paths, {name: scan.content for name, scan in state.scans.items()})
    paths, failed = as_files(scans, runner.cache, model.folder, taken=_names(model))
    present = {path.resolve() for path in model.paths.values()}  # adding a file again changes nothing
    paths = {name: path for name, path in paths.items() if path.resolve() not in present}
    names = {scan.content: name for name, scan in state.scans.items()}
    new, duplicates = separate_duplicates(hash_scans(paths), names)
    new, _ = readable_scans(new, runner, failed)
    settings = _settings(state)
    assembly = extend(model, old | new, settings, runner, failed)
    earlier = {name: reason for name, reason in model.not_placed.items() if name not in state.scans}
    return assemble(
        replace(
            assembly,
            fixed=fixed,
            known=_remaining_known(state, fixed),
            paths=model.paths | paths,
            failed=earlier | failed,
            duplicates=model.duplicates | duplicates,
        ),
        runner,
    )


def remove(
    model: Reconstruction, names: Sequence[str], runner: Runner, *, fixed: bool = False
) -> Reconstruction:
    """Remove scans from a model; see `Reconstruction.remove`."""
    state = _state(model)
    if unknown := [name for name in names if name not in _names(model)]:
        raise InputError(
            f"the model has no scan {unknown[0]!r}; it has {', '.join(list(_names(model))[:5])} …"
        )
    paths = {name: path for name, path in model.paths.items() if name not in names}
    settings = describe_settings(state.options, model.resolution, state.weights)
    members = _old_members(state, paths, {}, settings, runner)
    if len(members) < 2:
        raise InputError(f"at least two scans must remain in the model, not {len(members)}")
    index = {member.name: k for k, member in enumerate(members)}
    duplicates = {a: b for a, b in model.duplicates.items() if a not in names and b not in names}
    failed = {a: reason for a, reason in model.not_placed.items() if a not in (*names, *state.scans)}
    assembly = Assembly(
        members=members,
        settings=settings,
        options=state.options,
        earlier_pairs=pairs_by_index(state.pairs, index),
        places=state.places,
        bases=[model],
        fixed=fixed,
        known=_remaining_known(state, fixed, names),
        paths={name: path for name, path in paths.items() if name in {*index, *failed, *duplicates}},
        failed=failed,
        duplicates=duplicates,
    )
    return assemble(assembly, runner)


def merge(
    model: Reconstruction, other: Reconstruction, runner: Runner, *, fixed: bool = False
) -> Reconstruction:
    """Merge two models; see `Reconstruction.merge`."""
    state = _state(model)
    settings = _settings(state)
    names = _merged_names(model, other)
    second = renamed(other, names)
    parts = [_adopt(model, runner), _adopt(second, runner)]
    members: dict[str, Member] = {}
    pairs: list[ModelPair] = []
    for number, part in enumerate(parts):
        own = _state(part)
        files = check_files(part.paths, {name: scan.content for name, scan in own.scans.items()})
        added = _old_members(own, part.paths, files, settings, runner, number)
        members = {member.name: member for member in added} | members
        pairs = [_in_resolution(pair, part.resolution / settings.resolution) for pair in own.pairs] + pairs
    failed = {name: reason for part in parts[::-1] for name, reason in part.not_placed.items()}
    failed = {name: reason for name, reason in failed.items() if name not in members}
    files = {name: member.job.file for name, member in members.items()}
    described = describe_members(files, settings, runner, failed)
    placed = [replace(member, origin=members[member.name].origin) for member in described]
    placed.sort(key=lambda member: member.origin or 0)
    earlier_pairs = pairs_by_index(pairs, {member.name: k for k, member in enumerate(placed)})
    equal = {n: names[s.content] for n, s in _state(other).scans.items() if names[s.content] in state.scans}
    assembly = Assembly(
        members=placed,
        settings=settings,
        options=state.options,
        earlier_pairs=earlier_pairs,
        places=state.places,
        bases=parts,
        fixed=fixed,
        known=_remaining_known(state, fixed),
        paths=parts[1].paths | parts[0].paths,
        failed=failed,
        duplicates=model.duplicates | {n: name for n, name in equal.items() if n not in members},
    )
    return assemble(assembly, runner)


def _merged_names(model: Reconstruction, other: Reconstruction) -> dict[str, str]:
    """Choose names of the scans of another model, by content: that of an equal scan, or a free one."""
    names = {scan.content: name for name, scan in _state(model).scans.items()}
    taken = {*_names(model)}
    prefix = "other" if other.folder is None else other.folder.resolve().name
    for name, scan in _state(other).scans.items():
        if scan.content not in names:
            free = name if name not in taken else f"{prefix}/{name}"
            while free in taken:
                free += "'"
            names[scan.content] = free
            taken.add(free)
    return names


def _adopt(model: Reconstruction, runner: Runner) -> Reconstruction:
    """Copy the descriptions of a model, and scans that were given as arrays, to the cache of a run."""
    if model.folder is None or (model.folder / CACHE).resolve() == runner.cache.resolve():
        return model
    cache, paths = model.folder / CACHE, dict(model.paths)
    for name, path in model.paths.items():
        if path.parent.resolve() == cache.resolve():
            paths[name] = runner.cache / f"{path.stem}_{file_key(path)[:_DIGITS]}.npz"
            shutil.copyfile(path, paths[name])
    arrays = {path.resolve() for path in model.paths.values()}
    for path in cache.glob("*.npz"):
        if path.resolve() not in arrays and not (runner.cache / path.name).exists():
            with atomic_write(runner.cache / path.name) as temporary:
                shutil.copyfile(path, temporary)
    return replace(model, paths=paths)


def _in_resolution(pair: ModelPair, factor: float) -> ModelPair:
    """Scale the lengths of a pair: model metres depend on the working resolution."""
    return replace(pair, candidates=tuple(_scaled(candidate, factor) for candidate in pair.candidates))


def _scaled(candidate: CandidatePose, factor: float) -> CandidatePose:
    if factor == 1:
        return candidate
    T, old = candidate.T_target_source.copy(), candidate.information
    T[:3, 3] *= factor
    information = old._replace(
        centre=factor * old.centre, extent=factor * old.extent, height=factor * old.height
    )
    rmse = None if candidate.rmse is None else factor * candidate.rmse
    return replace(candidate, T_target_source=T, rmse=rmse, information=information)


def extend(
    model: Reconstruction,
    files: Mapping[str, HashedScan],
    settings: DescribeSettings,
    runner: Runner,
    failed: dict[str, str],
) -> Assembly:
    """Prepare a model of these scans: scans and pairs of an earlier model are kept, the others are new."""
    state = _state(model)
    paths = {name: Path(file.path) for name, file in files.items()}
    members = _old_members(state, paths, files, settings, runner)
    new = {name: file for name, file in files.items() if name not in state.scans}
    members += describe_members(new, settings, runner, failed) if new else []
    order = {name: k for k, name in enumerate(files)}
    members.sort(key=lambda member: order[member.name])
    index = {member.name: k for k, member in enumerate(members)}
    earlier_pairs = pairs_by_index(state.pairs, index)
    return Assembly(members, settings, state.options, earlier_pairs, state.places, bases=[model])


def renamed(model: Reconstruction, names: Mapping[str, str]) -> Reconstruction:
    """Return a model with other names of its scans, by the hash of their content; others are dropped."""
    state = _state(model)
    new = {old: names[scan.content] for old, scan in state.scans.items() if scan.content in names}
    return replace(
        model,
        T_world_scan={new[name]: T for name, T in model.T_world_scan.items() if name in new},
        components=[[new[name] for name in frame if name in new] for frame in model.components],
        not_placed={new.get(name, name): reason for name, reason in model.not_placed.items()},
        edges=[_renamed_edge(e, new) for e in model.edges if e.source in new and e.target in new],
        paths={new[name]: path for name, path in model.paths.items() if name in new},
        duplicates={},
        state=replace(
            state,
            scans={new[name]: scan for name, scan in state.scans.items() if name in new},
            pairs=[
                replace(pair, source=new[pair.source], target=new[pair.target])
                for pair in state.pairs
                if pair.source in new and pair.target in new
            ],
            places=_renamed_places(state.places, new),
        ),
    )


def _renamed_places(places: SavedPlaces | None, names: Mapping[str, str]) -> SavedPlaces | None:
    if places is None:
        return None
    rows = {names[name]: row for name, row in places.aggregates.items() if name in names}
    return places._replace(aggregates=rows)


def _renamed_edge(edge: EdgeResult, names: Mapping[str, str]) -> EdgeResult:
    return replace(edge, source=names[edge.source], target=names[edge.target])


def _state(model: Reconstruction) -> ModelState:
    if model.state is None:
        raise InputError(
            "this reconstruction has no state to grow from, since an older version saved it or model.npz is "
            "missing: run `wsdesc reconstruct` on its scans again"
        )
    return model.state


def _remaining_known(state: ModelState, fixed: bool, removed: Collection[str] = ()) -> Known:
    """Return what is known about the scans that remain; fixed poses take its place."""
    known = state.known
    if fixed:
        return Known()
    return replace(
        known,
        poses={name: prior for name, prior in known.poses.items() if name not in removed},
        control=[point for point in known.control if point.scan not in removed],
        up={name: up for name, up in known.up.items() if name not in removed},
        reference=None if known.reference in removed else known.reference,
    )


def _names(model: Reconstruction) -> dict[str, None]:
    """Return the names of all scans, also of those that are not placed."""
    return dict.fromkeys([*model.paths, *model.not_placed, *model.duplicates])


def _settings(state: ModelState) -> DescribeSettings:
    """Return the settings of a model, whose weights must be those of today."""
    o = state.options
    if weights_of(o) != state.weights or o.resolution is None:
        raise InputError(
            f"the weights {o.model!r} are not those that the model was made with: restore them, or run "
            "`wsdesc reconstruct` on its scans again"
        )
    return describe_settings(o, o.resolution, state.weights)


def _old_members(
    state: ModelState,
    paths: Mapping[str, Path],
    files: Mapping[str, HashedScan],
    settings: DescribeSettings,
    runner: Runner,
    origin: int = 0,
) -> list[Member]:
    """Return the scans of a model that have a path, as members."""
    members = []
    for name, scan in state.scans.items():
        if name in paths:
            file = files.get(name) or HashedScan(str(paths[name].absolute()), scan.content)
            members.append(Member(name, paths[name], runner.job(file, settings), scan.described, origin))
    return members
