"""Adapt the descriptor to a folder of scans.

reconstruct → teach → check → teach on all scans → distil → check. If the new weights place more scans,
another round follows. Every step stores its result in the folder: the same call continues a stopped one.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from wsdesc.adaptation.keep_out import MIN_PLACED
from wsdesc.adaptation.options import DEFAULT_START, FULL_WEIGHTS, AdaptOptions, make_plan
from wsdesc.adaptation.replay import ReplayPool
from wsdesc.adaptation.report import write_report
from wsdesc.adaptation.result import RESULT_FILE, Adaptation, Comparison, Round
from wsdesc.adaptation.rounds import RoundRunner
from wsdesc.adaptation.setup import Setup
from wsdesc.adaptation.weights import WeightFiles, copy_weights, find_start
from wsdesc.core.atomic import atomic_write
from wsdesc.core.devices import choose_device
from wsdesc.core.errors import FileFormatError, InputError
from wsdesc.core.executors import check_jobs
from wsdesc.core.file_parts import as_path, split_part
from wsdesc.core.folders import locked, make_folder
from wsdesc.core.journal import file_key
from wsdesc.core.progress import ProgressHook, StepTimer
from wsdesc.descriptor.pretrained import RUN_WEIGHTS
from wsdesc.reconstruction.inputs import Scans, as_files
from wsdesc.reconstruction.result import Reconstruction

logger = logging.getLogger(__name__)

SETTINGS_FILE = "settings.json"  # options and scan contents, which a resumed run must share
_MAX_WORKERS = 8  # processes that make synthetic scenes


def adapt(
    scans: Scans,
    out: str | Path,
    *,
    start: str | Path = DEFAULT_START,
    rounds: int = 2,
    steps: int | None = None,
    distill_steps: int | None = None,
    fast_steps: int | None = None,
    minutes: float | None = None,
    keypoints: int | None = None,
    learning_rate: float = 5e-4,
    min_overlap: float = 0.05,
    synthetic: float = 0.35,
    rigidity: float = 0.1,
    keep_out: float = 0.2,
    resolution: float | None = None,
    device: str = "auto",
    seed: int = 0,
    jobs: int = 1,
    progress: ProgressHook | None = None,
    **options: Any,
) -> Adaptation:
    """Adapt the descriptor to unlabelled scans of one's own.

    The scans are reconstructed with the present weights. The found poses teach matches of all pairs, also of
    those with little overlap. No pose file is read. Scans that are kept out of the teaching check the result:
    if it is not better, the old weights are kept. The same call continues a stopped adaptation.

    Args:
        scans: A folder, or a sequence of folders and scans, as for `reconstruct`.
        out: Folder for weights and report; `model=` of all functions accepts it.
        start: Weights to start from: "indoor", the folder of an adaptation, or a file of weights.
        rounds: Largest number of rounds; another round follows if more scans are placed.
        steps: Teaching steps; None: 2400 on a GPU, 1200 on the CPU.
        distill_steps: Distillation steps to the fast network; 0 teaches the fast network alone. None: 2000
            on a GPU, 0 on the CPU.
        fast_steps: Teaching steps of the fast network after the distillation; None: 800 on a GPU.
        minutes: Time for all training steps of a round; fewer steps are made if they do not fit. None: 30 on
            the CPU, no limit on a GPU.
        keypoints: Keypoints per scan and step; None: 512 on a GPU, 192 on the CPU.
        learning_rate: Learning rate of the network.
        min_overlap: Smallest overlap of a pair that gives matches.
        synthetic: Share of steps on synthetic scenes, which keep the quality on other scans.
        rigidity: Share of steps with the weakly supervised loss on the scans.
        keep_out: Share of placed scans that the check uses and the teaching leaves out.
        resolution: Working resolution, in the scans' unit. None derives it from all scans.
        device: Device of the computation: "cpu", "cuda", or "auto" (CUDA where available).
        seed: Seed of all random choices.
        jobs: Number of processes of the reconstruction, as for `reconstruct`. The result is the same.
        progress: Hook that is entered around each step, for progress bars.
        options: Other fields of `AdaptOptions`, for experiments.

    Returns:
        The folder, whether the weights are better, and figures before and after.

    Raises:
        InputError: Too few scans overlap, an option is invalid, or `out` holds another adaptation.
        FileFormatError: Weights cannot be read, or a file cannot be written.
    """
    o = AdaptOptions.read(
        {
            "start": start,
            "rounds": rounds,
            "steps": steps,
            "distill_steps": distill_steps,
            "fast_steps": fast_steps,
            "minutes": minutes,
            "keypoints": keypoints,
            "learning_rate": learning_rate,
            "min_overlap": min_overlap,
            "synthetic": synthetic,
            "rigidity": rigidity,
            "keep_out": keep_out,
            "resolution": resolution,
            "device": device,
            "seed": seed,
            **options,
        }
    )
    jobs = check_jobs(jobs)
    chosen, files = choose_device(o.device), find_start(o.start)
    folder = as_path(out, "out").absolute()
    with locked(folder):
        paths = _scan_files(scans, folder)
        _check_settings(folder, o, paths)
        if (folder / RESULT_FILE).is_file():
            return Adaptation.load(folder)
        plan = make_plan(o, chosen.startswith("cuda"))
        if files.full is None:
            plan = plan._replace(distill_steps=0, fast_steps=0)
        workers = min(_MAX_WORKERS, max(1, (os.cpu_count() or 2) - 1))
        scenes = folder / "replay" if o.replay is None else Path(o.replay)
        pool = ReplayPool(scenes, o.seed, plan.scenes, workers)
        try:
            pool.start()
            setup = Setup(o, plan, chosen, pool, StepTimer(progress), jobs)
            return _run_rounds(folder, list(paths.values()), setup, files)
        except InputError:  # too few scans: the same folder may be used with others
            if not any(folder.glob("round_*/*.json")):
                (folder / SETTINGS_FILE).unlink(missing_ok=True)
            raise
        finally:
            pool.close()


def _run_rounds(folder: Path, paths: list[Path], setup: Setup, start: WeightFiles) -> Adaptation:
    """Repeat rounds while more scans are placed, and keep the best weights."""
    weights, done = start, list[Round]()
    comparison = Comparison([], [])
    reconstruction: Reconstruction | None = None
    for number in range(1, setup.options.rounds + 1):
        if reconstruction is not None and reconstruction.complete:
            break
        placed = 0 if reconstruction is None else len(reconstruction.T_world_scan)
        runner = RoundRunner(folder / f"round_{number}", setup)
        reconstruction = runner.reconstruct(paths, weights.fast)
        if done and len(reconstruction.T_world_scan) <= placed:
            logger.info("round %d: no more scans are placed", number)
            break
        result, adapted = runner.run(reconstruction, weights)
        done.append(result)
        if adapted is None:
            logger.info("round %d: not better: %s", number, result.rejection)
            break
        comparison = result.final if weights is start else runner.compare(start.fast, adapted.fast)
        weights = adapted
    improved = weights is not start
    copy_weights(weights.fast, folder / RUN_WEIGHTS)
    if weights.full is not None:
        copy_weights(weights.full, folder / FULL_WEIGHTS)
    reason = "" if improved else done[0].rejection or ""
    if not improved:
        comparison = done[0].final if done[0].final.before else done[0].check
    adaptation = Adaptation(
        folder=folder,
        improved=improved,
        reason=reason,
        start=setup.options.start,
        device=setup.device,
        scans=len(paths),
        rounds=done,
        comparison=comparison,
        seconds=setup.timer.seconds,
    )
    write_report(adaptation)
    adaptation.save()
    return adaptation


def _scan_files(scans: Scans, folder: Path) -> dict[str, Path]:
    """Return the distinct scans by content; scans in memory are written into the folder."""
    cache = folder / "scans"
    make_folder(cache)
    paths, failed = as_files(scans, cache, folder)
    for path in paths.values():
        if not split_part(path)[0].exists():
            raise FileFormatError(f"{path}: no such file or folder")
    distinct = {file_key(path): path for path in paths.values()}
    if len(distinct) < MIN_PLACED:
        equal = f"; all {len(paths)} scans are equal" if len(distinct) == 1 < len(paths) else ""
        reasons = "".join(f"; {name}: {reason}" for name, reason in list(failed.items())[:3])
        raise InputError(
            f"an adaptation needs {MIN_PLACED} different scans that overlap, found {len(distinct)}{equal}"
            f"{reasons}"
        )
    return distinct


def _check_settings(folder: Path, o: AdaptOptions, paths: dict[str, Path]) -> None:
    """Store options and scans; raise an error if the folder holds an adaptation with others."""
    options = o.model_dump(mode="json")
    file = folder / SETTINGS_FILE
    if not file.is_file():
        with atomic_write(file) as temporary:
            temporary.write_text(json.dumps({"options": options, "scans": sorted(paths)}), encoding="utf-8")
        return
    try:
        saved = json.loads(file.read_text(encoding="utf-8"))
        differ = [name for name in options if saved["options"].get(name) != options[name]]
        differ += ["scans"] if saved["scans"] != sorted(paths) else []
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise FileFormatError(f"{file}: damaged; choose another folder") from error
    if differ:
        raise InputError(
            f"{folder}: holds an adaptation with other {', '.join(differ)}: choose another folder; "
            "--start FOLDER starts from its weights"
        )
