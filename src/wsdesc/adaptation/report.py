"""Write the report of an adaptation: a page in Markdown and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wsdesc.adaptation.check import KEYPOINTS, REGISTERED_KEYPOINTS, Summary
from wsdesc.adaptation.result import Adaptation, Comparison, Round
from wsdesc.core.atomic import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURE = "report.png"
_BEFORE, _AFTER, _INK = "#56B4E9", "#D55E00", "#333333"


def write_report(result: Adaptation) -> None:
    """Write report.md and report.png into the folder of an adaptation."""
    with atomic_write(result.folder / PICTURE) as temporary:
        draw(result.comparison).savefig(temporary, dpi=130, format="png")
    with atomic_write(result.report) as temporary:
        temporary.write_text("\n".join(_lines(result)) + "\n", encoding="utf-8")


def _lines(result: Adaptation) -> list[str]:
    verdict = (
        "The adapted weights are better on the scans of this folder."
        if result.improved
        else f"The adapted weights are not better: {result.reason}. **The old weights are kept.**"
    )
    minutes = sum(result.seconds.values()) / 60
    return [
        "# Adaptation",
        "",
        verdict,
        "",
        f"Started from `{result.start}`, {result.scans} scans, {result.device}, {minutes:.1f} minutes. "
        "No pose file was read: poses of the reconstruction count as right.",
        "",
        f"![Before and after]({PICTURE})",
        "",
        "## All pairs, fast weights",
        "",
        *_table(result.comparison),
        "",
        f"Inlier ratio and RANSAC use {KEYPOINTS} keypoints, the registration {REGISTERED_KEYPOINTS}.",
        *(line for k, done in enumerate(result.rounds, 1) for line in _round_lines(k, done)),
        "",
        "## Time of this run",
        "",
        "| step | seconds |",
        "|---|---|",
        *(f"| {name} | {seconds:.1f} |" for name, seconds in result.seconds.items()),
    ]


def _round_lines(number: int, done: Round) -> list[str]:
    frames = ", ".join(map(str, done.components))
    rows = [
        ("scans with a pose", f"{done.placed}; frames of {frames}"),
        ("pairs with matches", f"{done.pairs}"),
        ("pairs without a pose, weakly supervised", f"{done.neighbours}"),
        *((f"pairs left out: {reason}", f"{count}") for reason, count in done.left_out.items()),
        ("scans kept out for the check", ", ".join(done.kept_out).replace("|", "\\|")),
        ("steps: teach, distil, teach the fast network", ", ".join(map(str, done.steps))),
        ("support", f"{done.support[0]:.3f} → {done.support[1]:.3f} m of the model"),
        ("share of the taught weights in the new ones", f"{done.share:g}"),
        ("inlier ratio on synthetic scenes", _change(*done.synthetic)),
    ]
    if done.wrong_pairs:
        rows.append(("pairs with an injected wrong pose", f"{done.wrong_pairs}"))
    return [
        "",
        f"## Round {number}",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in rows),
        "",
        "Pairs of scans that were kept out of the teaching:",
        "",
        *_table(done.check),
    ]


def _table(comparison: Comparison) -> list[str]:
    lines = [
        "| overlap | pairs | inlier ratio (%) | RANSAC recall (%) | registered right (%) | confidence |",
        "|---|---|---|---|---|---|",
    ]
    for label, old, new in comparison.by_overlap():
        confidence = "–" if old.confidence is None else f"{old.confidence:.2f} → {new.confidence:.2f}"
        lines.append(
            f"| {label} | {old.pairs} | {_change(old.inlier_ratio, new.inlier_ratio)} "
            f"| {_change(old.ransac_recall, new.ransac_recall)} | {_change(old.recall, new.recall)} "
            f"| {confidence} |"
        )
    return lines


def _change(old: float | None, new: float | None) -> str:
    return "–" if old is None or new is None else f"{100 * old:.1f} → {100 * new:.1f}"


def draw(comparison: Comparison) -> Figure:
    """Draw inlier ratio, recalls and confidence by overlap, before and after."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = comparison.by_overlap()
    figure = Figure(figsize=(10, 3.2), facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    panels: Any = figure.subplots(1, 4)
    names = ("inlier_ratio", "ransac_recall", "recall", "confidence")
    titles = ("inlier ratio", f"RANSAC recall, {KEYPOINTS} keypoints", "registered right", "mean confidence")
    labels = [row[0].replace(" … ", "–") for row in rows]  # short, so that they do not overlap
    for panel, name, title in zip(panels, names, titles, strict=True):
        before, after = [row[1] for row in rows], [row[2] for row in rows]
        for shift, side, colour, label in ((-0.2, before, _BEFORE, "before"), (0.2, after, _AFTER, "after")):
            heights = _values(side, name)
            panel.bar([k + shift for k in range(len(rows))], heights, 0.38, color=colour, label=label)
        panel.set_xticks(range(len(rows)), labels, fontsize=6.5)
        panel.set_title(title, fontsize=9, color=_INK)
        panel.set_xlabel("overlap", fontsize=8, color=_INK)
        panel.tick_params(axis="y", labelsize=7)
        panel.set_ylim(0, max(0.05, *panel.get_ylim()) if name == "inlier_ratio" else 1.02)
    panels[0].legend(fontsize=7, frameon=False)
    return figure


def _values(summaries: Sequence[Summary], name: str) -> list[float]:
    return [getattr(summary, name) or 0.0 for summary in summaries]
