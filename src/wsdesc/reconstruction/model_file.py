"""State of a model: everything that it needs to grow besides the scans, in one file.

`model.npz` holds the options, a hash of each scan, the candidates of all registered pairs, and the content of
poses.json and graph.json. It is written last and atomically: a folder whose last change was interrupted still
has the state before it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wsdesc import __version__
from wsdesc.alignment.information import Information
from wsdesc.cloud.formats.npz import read_arrays
from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import FileFormatError
from wsdesc.core.geometry import check_rigid, is_rigid
from wsdesc.reconstruction.control import ControlPoint
from wsdesc.reconstruction.jobs import CandidatePose, DescribedScan
from wsdesc.reconstruction.known import Known, PosePrior
from wsdesc.reconstruction.options import KnownOptions, ReconstructOptions
from wsdesc.reconstruction.places import SavedPlaces

MODEL = "model.npz"
FORMAT = 1

_CANDIDATE = {"T_target_source": (4, 4), "confidence": (), "ambiguous": (), "overlap": (), "rmse": ()}
# Of a candidate, with the values in older models.
_LATER = {"visible": 0.0, "violating": 0.0, "patch_gap": np.nan}
_INFORMATION = {"matrix": (6, 6), "centre": (3,), "extent": (), "height": (), "pairs": ()}


@dataclass(frozen=True, eq=False)
class ModelScan:
    """A described scan of a model.

    Attributes:
        content: Hash of the file.
        described: Frame and size of the scan.
    """

    content: str
    described: DescribedScan


@dataclass(frozen=True, eq=False)
class ModelPair:
    """A registered pair of a model.

    Attributes:
        source: Name of the source scan.
        target: Name of the target scan.
        candidates: Poses in model metres, between the local frames of the scans, best first.
        keypoints: Keypoints per scan that the pair was registered with.
    """

    source: str
    target: str
    candidates: tuple[CandidatePose, ...]
    keypoints: int


@dataclass(frozen=True, eq=False)
class ModelState:
    """Everything that a model needs to grow besides the files of its scans.

    Attributes:
        options: Options of the model, with the working resolution that was used.
        weights: Hash of the weights.
        known: What is known about poses beforehand.
        scans: Described scans, by name.
        pairs: All registered pairs.
        places: Signatures of the scans; None if there are none.
    """

    options: ReconstructOptions
    weights: str
    known: Known
    scans: dict[str, ModelScan]
    pairs: list[ModelPair]
    places: SavedPlaces | None = None


def write(folder: Path, state: ModelState, texts: Mapping[str, str]) -> Path:
    """Write the state of a model and the texts of its result files; return the file."""
    header = {
        "format": FORMAT,
        "version": __version__,
        "options": state.options.model_dump(),
        "weights": state.weights,
        "known": _known_values(state.known),
        "scans": {name: {"content": s.content, **asdict(s.described)} for name, s in state.scans.items()},
        "texts": dict(texts),
    }
    arrays: dict[str, Any] = {
        "header": np.frombuffer(json.dumps(header).encode(), np.uint8),
        **_pair_arrays(state),
    }
    with atomic_write(folder / MODEL) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)
    return folder / MODEL


def read(folder: Path) -> tuple[ModelState, dict[str, str]]:
    """Read what `write` wrote.

    Raises:
        FileFormatError: The file is missing or damaged, or another version wrote it.
    """
    path = folder / MODEL
    again = "run `wsdesc reconstruct` on its scans again"
    try:
        arrays = read_arrays(path, kinds="biuf")
        header = json.loads(arrays["header"].tobytes())
        written = header["format"], header["version"]
    except FileNotFoundError:
        raise FileFormatError(f"{path}: no such file; the model cannot grow without it: {again}") from None
    except Exception as error:  # damaged zip files and arrays raise many kinds of exceptions
        raise FileFormatError(f"{path}: damaged, or not a model: {again}") from error
    if written[0] != FORMAT:
        raise FileFormatError(
            f"{path}: wsdesc {written[1]} wrote this model in format {written[0]}; version {__version__} "
            f"reads format {FORMAT}: use that version, or {again}"
        )
    try:
        scans = {str(name): _scan(values) for name, values in header["scans"].items()}
        options = ReconstructOptions.read(header["options"])
        pairs = _read_pairs(arrays, list(scans))
        texts = {str(name): str(text) for name, text in header["texts"].items()}
        known = _known(header["known"])
        places = _read_places(arrays, list(scans)) if "place_centres" in arrays else None
        return ModelState(options, str(header["weights"]), known, scans, pairs, places), texts
    except Exception as error:
        raise FileFormatError(f"{path}: damaged: {again}") from error


def _scan(values: dict[str, Any]) -> ModelScan:
    frame, radius = tuple(map(tuple, values["T_scan_local"])), float(values["radius"])
    if not is_rigid(np.array(frame)):
        raise ValueError("the frame of a scan is not rigid")
    return ModelScan(str(values["content"]), DescribedScan(frame, radius))


def _read_places(arrays: Mapping[str, np.ndarray], names: Sequence[str]) -> SavedPlaces:
    centres, rows = arrays["place_centres"].astype(np.float64), arrays["place_aggregates"].astype(np.float32)
    if rows.shape[1:] != (centres.size,) or not (np.isfinite(centres).all() and np.isfinite(rows).all()):
        raise ValueError("the signatures do not fit")
    return SavedPlaces(centres, {names[k]: rows[n] for n, k in enumerate(arrays["place_scans"].tolist())})


def _known_values(known: Known) -> dict[str, Any]:
    """Return what is known as plain values for JSON."""
    poses = {
        name: (prior.T_world_scan.tolist(), None if prior.station is None else prior.station.tolist())
        for name, prior in known.poses.items()
    }
    control = [point._asdict() for point in known.control]
    values = {"poses": poses, "control": control, "up": known.up, "reference": known.reference}
    return values | {"options": known.options.model_dump()}


def _known(values: dict[str, Any]) -> Known:
    poses = {
        str(name): PosePrior(check_rigid(np.array(T)), None if station is None else np.array(station))
        for name, (T, station) in values["poses"].items()
    }
    return Known(
        poses=poses,
        control=[
            ControlPoint(**point | {"point": tuple(point["point"]), "world": tuple(point["world"])})
            for point in values["control"]
        ],
        up={str(name): (float(x), float(y), float(z)) for name, (x, y, z) in values["up"].items()},
        reference=values["reference"],
        options=KnownOptions.read(values["options"]),
    )


def _pair_arrays(state: ModelState) -> dict[str, np.ndarray]:
    """Return all pairs and their candidates as columns."""
    index = {name: k for k, name in enumerate(state.scans)}
    candidates = [candidate for pair in state.pairs for candidate in pair.candidates]
    rows = [{name: np.nan if value is None else value for name, value in vars(c).items()} for c in candidates]
    columns = {name: _column([row[name] for row in rows], shape) for name, shape in _CANDIDATE.items()}
    columns |= {
        f"information_{name}": _column([getattr(c.information, name) for c in candidates], shape)
        for name, shape in _INFORMATION.items()
    }
    columns |= {name: _column([row[name] for row in rows], ()) for name in _LATER}
    ends = [(index[pair.source], index[pair.target]) for pair in state.pairs]
    return columns | {
        "pair_scans": np.array(ends, dtype=np.int64).reshape(-1, 2),
        "pair_keypoints": np.array([pair.keypoints for pair in state.pairs], dtype=np.int64),
        "pair_candidates": np.array([len(pair.candidates) for pair in state.pairs], dtype=np.int64),
    }


def _column(values: Sequence[Any], shape: tuple[int, ...]) -> np.ndarray:
    return np.array(values, dtype=np.float64).reshape(-1, *shape)


def _optional(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _read_pairs(arrays: Mapping[str, np.ndarray], names: Sequence[str]) -> list[ModelPair]:
    columns = {name: arrays[name] for name in _CANDIDATE}
    information = {name: arrays[f"information_{name}"] for name in _INFORMATION}
    counts = arrays["pair_candidates"].tolist()
    columns |= {name: arrays.get(name, np.full(sum(counts), value)) for name, value in _LATER.items()}
    lengths = {len(column) for column in (*columns.values(), *information.values())}
    if lengths != {sum(counts)} or not is_rigid(columns["T_target_source"]).all():
        raise ValueError("the candidates of the pairs do not fit")
    candidates = [
        CandidatePose(
            T_target_source=columns["T_target_source"][k],
            confidence=float(columns["confidence"][k]),
            ambiguous=bool(columns["ambiguous"][k]),
            overlap=float(columns["overlap"][k]),
            rmse=_optional(columns["rmse"][k]),
            information=Information(
                information["matrix"][k],
                information["centre"][k],
                float(information["extent"][k]),
                float(information["height"][k]),
                int(information["pairs"][k]),
            ),
            visible=int(columns["visible"][k]),
            violating=int(columns["violating"][k]),
            patch_gap=_optional(columns["patch_gap"][k]),
        )
        for k in range(sum(counts))
    ]
    starts = np.cumsum([0, *counts]).tolist()
    return [
        ModelPair(names[i], names[j], tuple(candidates[start:stop]), keypoints)
        for (i, j), keypoints, start, stop in zip(
            arrays["pair_scans"].tolist(),
            arrays["pair_keypoints"].tolist(),
            starts[:-1],
            starts[1:],
            strict=True,
        )
    ]
