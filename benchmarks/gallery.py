"""Make the pictures and the page of the gallery: five reconstructions, before and after.

    python -m benchmarks.gallery run kitchen --data DIR --work DIR    # or bunny, building, street, floor
    python -m benchmarks.gallery page --work DIR

`run` moves and shuffles the scans of a scene, runs `wsdesc reconstruct` on them in a new process, compares
the poses with the known ones, and draws all scans as they were given and as they were placed. The same
command continues a stopped run; the time then covers the last run only, and is marked. `page` writes
docs/gallery.md and copies the pictures. DIR of the data has indoor/test/kitchen, objects/bunny and
tls/building.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from benchmarks.common import make_parser, run_command
from benchmarks.known_scans import (
    KnownScan,
    PlacedScan,
    count_wrong,
    make_site,
    pose_errors,
    true_poses,
    write_shuffled,
)
from benchmarks.reconstruct import ReconstructionRun, run
from wsdesc import Reconstruction, __version__, read_points
from wsdesc.core.geometry import transform
from wsdesc.datasets.synthetic.floor import floor_scans
from wsdesc.datasets.threedmatch import find_fragments
from wsdesc.evaluation.provenance import machine
from wsdesc.view.colours import scan_colour
from wsdesc.view.geometry import principal_axes

mpl.use("Agg")
DOCS = Path(__file__).parents[1] / "docs"
SEED = 3
POINTS = 60_000  # drawn in a panel


def from_folder(folder: str, limit: int | None = None) -> Callable[[Path], list[PlacedScan]]:
    """Return a function that reads the first scans of a scene in the layout of 3DMatch."""

    def read(data: Path) -> list[PlacedScan]:
        scene = data / folder
        poses = true_poses(scene)
        return [
            (scene.name, poses[k], read_points(path))
            for k, path in list(find_fragments(scene).items())[:limit]
        ]

    return read


def street(_: Path) -> list[PlacedScan]:
    """Scan a synthetic street."""
    scans = make_site("street", 2, 8)
    return [("street", s.T_world_scan, np.asarray(s.points, np.float64)) for s in scans]


def floor(_: Path) -> list[PlacedScan]:
    """Scan a synthetic floor with repetitive structure."""
    return [("floor", s.T_world_scan, s.points.astype(np.float64)) for s in floor_scans(5, 8)]


# name -> title, unit, metres in a unit, source of the scans
SCENES: dict[str, tuple[str, str, Callable[[Path], list[PlacedScan]]]] = {
    "kitchen": ("Kitchen: 10 fragments of a depth camera", "m", from_folder("indoor/test/kitchen", 10)),
    "bunny": ("Bunny: range scans of an object", "unit", from_folder("objects/bunny")),
    "building": ("Building: laser scans, repetitive", "m", from_folder("tls/building")),
    "street": ("Street: synthetic laser scans", "m", street),
    "floor": ("Floor: synthetic laser scans, equal bays", "m", floor),
}


def run_scene(arguments: argparse.Namespace) -> None:
    """Reconstruct one scene, measure it, and draw it."""
    folder = arguments.work / arguments.scene
    shuffled, model = folder / "scans", folder / "model"
    shuffled.mkdir(parents=True, exist_ok=True)
    continued = (model / "journal.jsonl").exists()
    truth = write_shuffled(shuffled, SCENES[arguments.scene][2](arguments.data), SEED)
    done = run(shuffled, model, arguments.jobs)
    record = measure(truth, done) | {
        "continued": continued,
        "jobs": arguments.jobs,
        "machine": machine(),
        "version": __version__,
    }
    draw(truth, done.result, folder / f"{arguments.scene}.png")
    (folder / "record.json").write_text(json.dumps(record, indent=1))
    print(json.dumps(record))


def measure(truth: dict[str, KnownScan], done: ReconstructionRun) -> dict[str, Any]:
    """Compare the largest frame with the known poses."""
    result = done.result
    frame = result.components[0] if result.components else []
    record: dict[str, Any] = {"scans": len(truth), "placed": len(result.T_world_scan)}
    record["frames"] = [len(names) for names in result.components]
    accepted = [edge for edge in result.edges if edge.accepted]
    record |= {"pairs": len(result.edges), "accepted": len(accepted), "wrong": count_wrong(truth, accepted)}
    record |= {"seconds": done.seconds, "core_seconds": done.core_seconds, "gigabytes": done.gigabytes}
    if len(frame) > 1:
        errors = pose_errors([truth[n] for n in frame], [result.T_world_scan[n] for n in frame])
        record |= {"degrees": [float(np.median(errors.degrees)), float(errors.degrees.max())]}
        record |= {"distance": [float(np.median(errors.distance)), float(errors.distance.max())]}
        record["extent"] = float(np.median([truth[name].extent for name in frame]))
    return record


def draw(truth: dict[str, KnownScan], result: Reconstruction, path: Path) -> None:
    """Draw the scans as given and as placed, each in a colour of its own, seen along the shortest axis."""
    from matplotlib import pyplot as plt

    frame = result.components[0] if result.components else []
    before = {name: scan.points for name, scan in truth.items()}
    after = {name: transform(truth[name].points, result.T_world_scan[name]) for name in frame}
    figure, panels = plt.subplots(1, 2, figsize=(9, 4.2), dpi=100)
    for panel, clouds, title in ((panels[0], before, "before"), (panels[1], after, "after")):
        draw_panel(panel, clouds, list(truth))
        panel.set_title(f"{title}: {len(clouds)} scans", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, pil_kwargs={"optimize": True, "compress_level": 9})
    plt.close(figure)
    shrink(path)


def draw_panel(panel: Any, clouds: dict[str, np.ndarray], order: list[str]) -> None:
    """Draw all clouds in random order of the points, so that none hides the others."""
    rng = np.random.default_rng(0)
    share = min(1.0, POINTS / max(1, sum(map(len, clouds.values()))))
    points, colours = [], []
    for name, cloud in clouds.items():
        chosen = cloud[rng.random(len(cloud)) < share]
        points.append(chosen)
        colours.append(np.tile(np.array(scan_colour(order.index(name)))[:3], (len(chosen), 1)))
    if points:
        xyz, rgb = np.concatenate(points), np.concatenate(colours).astype(float)
        flat = (xyz - xyz.mean(axis=0)) @ principal_axes(xyz)
        shuffled = rng.permutation(len(flat))
        rgb = rgb / (255 if rgb.max() > 1 else 1)
        panel.scatter(*flat[shuffled, :2].T, c=rgb[shuffled], s=0.5, linewidths=0)
    panel.set_aspect("equal")
    panel.axis("off")


def shrink(path: Path) -> None:
    """Reduce the picture to 128 colours: that suffices, and halves the file."""
    from PIL import Image

    with Image.open(path) as image:
        image.convert("RGB").quantize(128).save(path, optimize=True)


def write_page(arguments: argparse.Namespace) -> None:
    """Write docs/gallery.md from the records of all scenes."""
    images = DOCS / "images" / "gallery"
    images.mkdir(parents=True, exist_ok=True)
    lines = [
        "# Gallery", "",
        "Reconstructions by `wsdesc reconstruct` with default options. Before each run, the scans were "
        "rotated and shifted at random and renamed in random order. Each scan has its own colour.", "",
    ]  # fmt: skip
    rows = [
        "| scene | scans placed | frames | accepted edges, wrong | rotation error | position error | time |"
    ]
    rows.append("|---|---|---|---|---|---|---|")
    sections, machines, versions, continued = [], set(), set(), False
    for name, (title, unit, _) in SCENES.items():
        file = arguments.work / name / "record.json"
        if not file.exists():
            print(f"{name}: no record; run it first", file=sys.stderr)
            continue
        record = json.loads(file.read_text())
        shutil.copyfile(arguments.work / name / f"{name}.png", images / f"{name}.png")
        machines.add(str(record["machine"]))
        versions.add(str(record.get("version", "0.5.0")))
        continued |= record["continued"]
        sections += section(name, title, record)
        rows.append(row(name, unit, record))
    lines += [
        f"**All pictures and figures on this page are of version {', '.join(sorted(versions))}.** Figures of "
        "the present version: [reconstruction](concepts/reconstruction.md).", "",
        *rows, "",
    ]  # fmt: skip
    lines.append(
        "Errors: median and largest of the scans of the largest frame, after that frame was aligned with the "
        "known poses. Time: the whole command, beside other programs, on "
        f"{', '.join(sorted(machines))}; core seconds hardly depend on other programs."
    )
    if continued:
        lines.append("\\* The run was stopped and continued; the time is that of the last part.")
    lines += [
        "",
        "Pictures and figures: `python -m benchmarks.gallery run SCENE --data DIR --work DIR`, then "
        "`python -m benchmarks.gallery page --work DIR`.",
        "",
        *sections,
    ]
    (DOCS / "gallery.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def row(name: str, unit: str, record: dict[str, Any]) -> str:
    """Return the row of a scene in the table."""
    star = "\\*" if record["continued"] else ""
    degrees, distance = record.get("degrees", [np.nan] * 2), record.get("distance", [np.nan] * 2)
    share = distance[1] / record.get("extent", np.nan)
    far = f"{distance[0]:.3f} / {distance[1]:.3f} m" if unit == "m" else f"largest {share:.2%} of the scan"
    edges = f"{record['accepted']} of {record['pairs']}, {record['wrong']}"
    turn = f"{degrees[0]:.2f} / {degrees[1]:.2f}°"
    if not record["frames"]:
        turn = far = "–"
    time = f"{record['seconds']:.0f} s{star}, {record['core_seconds']:.0f} core seconds"
    placed = f"{record['placed']} of {record['scans']}"
    return f"| [{name}](#{name}) | {placed} | {len(record['frames'])} | {edges} | {turn} | {far} | {time} |"


def section(name: str, title: str, record: dict[str, Any]) -> list[str]:
    """Return the section of a scene."""
    placed = max(record["frames"], default=0)
    alt = f"{name}: {record['scans']} scans as given at the left, {placed} as placed at the right"
    lines = [f"## {title} {{ #{name} }}", "", f"![{alt}](images/gallery/{name}.png)", ""]
    return [*lines, "```", f"wsdesc reconstruct {name}/scans -o {name}/model", "```", ""]


def parser() -> argparse.ArgumentParser:
    """Make the parser of the arguments."""
    top = make_parser("gallery", __doc__)
    commands = top.add_subparsers(required=True)
    one = commands.add_parser("run")
    one.add_argument("scene", choices=sorted(SCENES))
    one.add_argument("--data", type=Path, default=Path("../shared/data"))
    one.add_argument("--jobs", type=int, default=1)
    one.set_defaults(main=run_scene)
    page = commands.add_parser("page")
    page.set_defaults(main=write_page)
    for command in (one, page):
        command.add_argument("--work", type=Path, required=True)
    return top


if __name__ == "__main__":
    sys.exit(run_command(parser(), lambda arguments: arguments.main(arguments)))
