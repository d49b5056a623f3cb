"""Tables of measured results on pairs of scans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wsdesc.evaluation.records import Record
from wsdesc.evaluation.summary import SceneFigures, most_keypoints, over_scenes, scene_figures

NONE = "–"
Results = Mapping[str, Sequence[Record]]  # by method name


@dataclass(frozen=True)
class Table:
    """A table of text cells with its title."""

    title: str
    header: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        """Format as Markdown with aligned columns."""
        lines = [self.header, *self.rows]
        widths = [max(len(row[k]) for row in lines) for k in range(len(self.header))]
        texts = [
            "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
            for row in lines
        ]
        rule = "|" + "|".join("-" * (w + 2) for w in widths) + "|"
        return "\n".join([f"**{self.title}**", "", texts[0], rule, *texts[1:], ""])


def pairwise_tables(title: str, results: Results) -> list[Table]:
    """Build all tables of a benchmark on pairs."""
    tables = (main_table(title, results), scene_table(results), keypoint_table(results))
    return [table for table in tables if table is not None]


def main_table(title: str, results: Results) -> Table:
    """Build the table of means over scenes, with the largest keypoint count."""
    rows = []
    for name, records in results.items():
        figures = most_keypoints(scene_figures(records))
        dimension = next((str(r["dimension"]) for r in records if r["dimension"]), NONE)
        rows.append([name, dimension, *_means(figures)])
    header = ["method", "Dim.", "IR", "FMR 0.05", "FMR 0.2", "RR by R1", "RR by R2"]
    return Table(title, header, rows)


def scene_table(results: Results) -> Table:
    """Build the table of single scenes, with the largest keypoint count and the number of pairs."""
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
    """Build the table of means over scenes for each keypoint count; None if there is only one count."""
    rows = []
    for name, records in results.items():
        figures = scene_figures(records)
        counts = sorted({f.keypoints for f in figures}, reverse=True)
        rows += [[name, str(n), *_means([f for f in figures if f.keypoints == n])] for n in counts]
    if len({row[1] for row in rows}) < 2:
        return None
    header = ["method", "keypoints", "IR", "FMR 0.05", "FMR 0.2", "RR by R1", "RR by R2"]
    return Table("By number of keypoints (%)", header, rows)


def percent(share: float | None) -> str:
    """Format a share 0 … 1."""
    return NONE if share is None else f"{100 * share:.1f}"


def _means(figures: Sequence[SceneFigures]) -> list[str]:
    """Format the means over scenes of IR, FMR at 0.05 and 0.2, RR by R1 and by R2."""
    names = ("inlier_ratio", "recall_005", "recall_02", "r1", "r2")
    spreads = [over_scenes([getattr(f, name) for f in figures]) for name in names]
    return [spread.percent() if spread else NONE for spread in spreads]
