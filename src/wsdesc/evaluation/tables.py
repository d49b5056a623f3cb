"""Tables of the experiments on pairs, in the shape of the paper's, each figure beside the published one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wsdesc.evaluation import published
from wsdesc.evaluation.records import Record
from wsdesc.evaluation.report import Table
from wsdesc.evaluation.summary import SceneFigures, over_scenes, scene_figures

NONE = "–"
Results = Mapping[str, Sequence[Record]]  # by the name of a method


def published_row(rows: Sequence[published.Row], name: str, is_model: bool) -> published.Row | None:
    """The row of that name; a model of ours that has none stands beside the paper's own."""
    plain = name.casefold()
    found = next((row for row in rows if row[0].casefold() == plain), None)
    return found or (next((row for row in rows if row[0] == published.OURS), None) if is_model else None)


def with_published(
    title: str,
    header: Sequence[str],
    ours: Mapping[str, Sequence[str]],
    rows: Sequence[published.Row],
    columns: Sequence[int],
    models: Sequence[str],
    dimension: int | None = None,
) -> Table:
    """Our rows {method: cells} with the `columns` of their published ones behind, then the methods that only
    the paper has. The published cells of a row are one column, so that they cannot be taken for ours;
    `dimension` is the one that is known of either, and stands first. Without published rows there is no
    such column."""

    def cell(row: published.Row | None) -> str:
        return " / ".join(row[k] for k in columns) if row else NONE

    named = {name: published_row(rows, name, name in models) for name in ours}
    used = {row[0] for row in named.values() if row}
    lines = [[name, *cells, cell(named[name])] for name, cells in ours.items()]
    if not rows:
        return Table(title, list(header[:-1]), [line[:-1] for line in lines])
    for row in rows:
        if row[0] not in used:
            unknown = [NONE] * (len(header) - 2)
            known = unknown if dimension is None else [row[dimension], *unknown[1:]]
            lines.append([paper_name(row), *known, cell(row)])
    return Table(title, list(header), lines)


def paper_name(row: published.Row) -> str:
    """How a method that was not run here is called, and whether it learned from ground truth."""
    return f"{row[0]}, paper{', w/ GT' if row[1] == 'w/' else ''}"


def main_table(title: str, results: Results, rows: Sequence[published.Row], models: Sequence[str]) -> Table:
    """Tables 1 and 2: the mean over scenes with the most keypoints. R1 and R2 have columns of their own."""
    ours = {}
    for name, records in results.items():
        figures = most_keypoints(scene_figures(records))
        dimension = next((str(r["dimension"]) for r in records if r["dimension"]), NONE)
        ours[name] = [dimension, *_means(figures)]
    header = ["method", "Dim.", "IR", "FMR 0.05", "FMR 0.2", "RR by R1", "RR by R2"]
    header += ["published: IR / FMR 0.05 / FMR 0.2 / RR by R1"]
    return with_published(title, header, ours, rows, (3, 4, 5, 6), models, dimension=2)


def scene_table(results: Results) -> Table:
    """Every scene with the most keypoints, each recall with the number of pairs it counts."""
    rows = []
    for name, records in results.items():
        for f in most_keypoints(scene_figures(records)):
            matches = NONE if f.matches is None else f"{f.matches:.0f}"
            shares = [percent(x) for x in (f.inlier_ratio, f.recall_005, f.recall_02)]
            recalls = [f"{percent(f.r1)} ({f.r1_pairs})", f"{percent(f.r2)} ({f.pairs})"]
            rows.append([name, f.scene, str(f.pairs), matches, *shares, *recalls, str(f.failures)])
    header = ["method", "scene", "n", "matches", "IR", "FMR 0.05", "FMR 0.2", "RR by R1 (n)", "RR by R2 (n)"]
    return Table("By scene (%)", [*header, "failed"], rows)


def keypoint_table(results: Results) -> Table | None:
    """Each number of keypoints, the mean over scenes; None if there is one number alone."""
    rows = []
    for name, records in results.items():
        figures = scene_figures(records)
        for count in sorted({f.keypoints for f in figures}, reverse=True):
            some = [f for f in figures if f.keypoints == count]
            rows.append([name, str(count), *_means(some)])
    if len({row[1] for row in rows}) < 2:
        return None
    header = ["method", "keypoints", "IR", "FMR 0.05", "FMR 0.2", "RR by R1", "RR by R2"]
    return Table("Over the number of keypoints (%)", header, rows)


def most_keypoints(figures: Sequence[SceneFigures]) -> list[SceneFigures]:
    """Those of the largest set of keypoints."""
    most = max((f.keypoints for f in figures), default=0)
    return [f for f in figures if f.keypoints == most]


def percent(share: float | None) -> str:
    """A share 0 … 1 as it stands in a table."""
    return NONE if share is None else f"{100 * share:.1f}"


def _means(figures: Sequence[SceneFigures]) -> list[str]:
    """IR, FMR at 0.05 and 0.2, RR by R1 and by R2: the mean over scenes."""
    names = ("inlier_ratio", "recall_005", "recall_02", "r1", "r2")
    spreads = [over_scenes([getattr(f, name) for f in figures]) for name in names]
    return [spread.percent() if spread else NONE for spread in spreads]
