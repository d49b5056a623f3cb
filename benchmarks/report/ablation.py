"""The paper's ablation table, built from results of `wsdesc ablate`, and how well its order is reproduced."""

from __future__ import annotations

from collections.abc import Iterable

from scipy.stats import spearmanr

from benchmarks.report import published
from wsdesc.evaluation.summary import most_keypoints, over_scenes, scene_figures
from wsdesc.evaluation.tables import NONE, Results, Table

_MIN_ROWS = 4  # a rank correlation of fewer rows means nothing
# Names of our rows for which the paper has another name or another table.
_PUBLISHED_AS = {"full": published.OURS, "oracle": "WSDesc (BH)", "3DSmoothNet": "3DSmoothNet"}


def are_ablations(names: Iterable[str]) -> bool:
    """Return whether a variant of the paper's ablation table is among these methods."""
    return any(name.startswith("w/") and _published(name) for name in names)


def ablation_table(results: Results) -> Table:
    """Build Table 5: IR, FMR at 0.2 and RR by R1 of each variant, with the largest keypoint count."""
    rows = []
    for name in results:
        if figures := _published(name):
            measured = [_percent(x) for x in _figures(results, name)]
            rows.append([name, *measured, " / ".join(map(_percent, figures))])
    header = ["variant", "IR", "FMR 0.2", "RR by R1", "published: IR / FMR 0.2 / RR by R1"]
    return Table("Ablations (%); Table 5 of the paper", header, rows)


def order_note(results: Results) -> str | None:
    """Compare the order of the variants by inlier ratio with the paper's; None for too few variants.

    Variants with other supervision, which the paper has in another table, are left out.
    """
    names = [name for name in results if _published(name) and (name == "full" or name.startswith("w/"))]
    if len(names) < _MIN_ROWS:
        return None
    measured = {name: _figures(results, name)[0] or 0.0 for name in names}
    paper = {name: _published(name)[0] or 0.0 for name in names}
    rank = spearmanr([measured[n] for n in names], [paper[n] for n in names]).statistic
    orders = [", ".join(sorted(names, key=lambda n: -ratios[n])) for ratios in (measured, paper)]
    return (
        f"Order by inlier ratio, best first. Measured: {orders[0]}. Published: {orders[1]}. "
        f"Rank correlation (Spearman) of the {len(names)} rows: {rank:.2f}."
    )


def _published(name: str) -> list[float | None]:
    """Return IR, FMR at 0.2 and RR, 0 … 1, of Table 5 or, for supervised variants, of Table 1."""
    rows = {row[0]: (row[3], row[5], row[6]) for row in published.INDOOR}
    rows |= {row[0]: (row[1], row[2], row[3]) for row in published.ABLATION}
    return [None if x == NONE else float(x) / 100 for x in rows.get(_PUBLISHED_AS.get(name, name), ())]


def _figures(results: Results, name: str) -> list[float | None]:
    figures = most_keypoints(scene_figures(results[name]))
    columns = ("inlier_ratio", "recall_02", "r1")
    spreads = [over_scenes([getattr(f, column) for f in figures]) for column in columns]
    return [None if spread is None else spread.mean for spread in spreads]


def _percent(share: float | None) -> str:
    return NONE if share is None else f"{100 * share:.1f}"
