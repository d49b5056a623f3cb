"""The paper's ablation table, made of a run of `wsdesc ablate`, and how far the order of its rows agrees."""

from __future__ import annotations

from collections.abc import Iterable

from scipy.stats import spearmanr

from wsdesc.evaluation import published
from wsdesc.evaluation.report import Table
from wsdesc.evaluation.summary import over_scenes, scene_figures
from wsdesc.evaluation.tables import NONE, Results, most_keypoints

_FEWEST = 4  # rows below which an order says nothing
# How rows are called here, where the paper has another name or another table for them.
_ELSEWHERE = {"full": published.OURS, "oracle": "WSDesc (BH)", "3DSmoothNet": "3DSmoothNet"}


def are_ablations(names: Iterable[str]) -> bool:
    """Whether a variant of the paper's table is among methods of these names."""
    return any(name.startswith("w/") and _published(name) for name in names)


def ablation_table(results: Results) -> Table:
    """Table 5: IR, FMR at 0.2 and RR by R1 with the most keypoints, a row for each variant that was judged
    under its name."""
    rows = []
    for name in results:
        theirs = _published(name)
        ours = _figures(results, name)
        if theirs:
            known = " / ".join(NONE if x is None else f"{100 * x:.1f}" for x in theirs)
            rows.append([name, *(NONE if x is None else f"{100 * x:.1f}" for x in ours), known])
    header = ["variant", "IR", "FMR 0.2", "RR by R1", "published: IR / FMR 0.2 / RR by R1"]
    return Table("Ablations (%); Table 5 of the paper", header, rows)


def order_remark(results: Results) -> str | None:
    """Whether the order of the variants by inlier ratio is the paper's, in a line; those with other
    supervision, which the paper has in another table, are left out."""
    names = [name for name in results if _published(name) and (name == "full" or name.startswith("w/"))]
    if len(names) < _FEWEST:
        return None
    ours = {name: _figures(results, name)[0] or 0.0 for name in names}
    theirs = {name: _published(name)[0] or 0.0 for name in names}
    rank = spearmanr([ours[n] for n in names], [theirs[n] for n in names]).statistic
    here, there = (", ".join(sorted(names, key=lambda n: -by[n])) for by in (ours, theirs))
    return (
        f"Order by inlier ratio, best first. Here: {here}. Published: {there}. "
        f"Rank correlation (Spearman) of the {len(names)} rows: {rank:.2f}."
    )


def _published(name: str) -> list[float | None]:
    """IR, FMR at 0.2 and RR, shares 0 … 1, of Table 5 or, for supervised ones, of Table 1."""
    called = _ELSEWHERE.get(name, name)
    rows = {row[0]: (row[3], row[5], row[6]) for row in published.INDOOR}
    rows |= {row[0]: (row[1], row[2], row[3]) for row in published.ABLATION}
    return [None if x == NONE else float(x) / 100 for x in rows.get(called, ())]


def _figures(results: Results, name: str) -> list[float | None]:
    figures = most_keypoints(scene_figures(results[name]))
    columns = ("inlier_ratio", "recall_02", "r1")
    spreads = [over_scenes([getattr(f, column) for f in figures]) for column in columns]
    return [None if spread is None else spread.mean for spread in spreads]
