"""Put published figures beside measured ones."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.report import published
from wsdesc.evaluation.tables import NONE, Table


def with_published(
    table: Table,
    title: str,
    heading: str,
    rows: Sequence[published.Row],
    columns: Sequence[int],
    models: Sequence[str],
    dimension: int | None = None,
) -> Table:
    """Append a column of published figures, then the methods that only the paper has.

    The published figures of a row share one cell, so that they are not taken for measured ones.

    Args:
        table: measured rows; the first cell is the method's name.
        title: title of the new table.
        heading: names of the published figures.
        rows: published rows; without any, the table is returned with its new title only.
        columns: indices of the figures in a published row.
        models: names of our trained models, which are compared with the paper's own method.
        dimension: indices of the descriptor's dimension in a published row, which becomes the second cell.
    """
    if not rows:
        return Table(title, table.header, table.rows)

    def cell(row: published.Row | None) -> str:
        return " / ".join(row[k] for k in columns) if row else NONE

    matching = [published_row(rows, row[0], row[0] in models) for row in table.rows]
    lines = [[*row, cell(match)] for row, match in zip(table.rows, matching, strict=True)]
    used = {match[0] for match in matching if match}
    empty = [NONE] * (len(table.header) - 1)
    for row in rows:
        if row[0] not in used:
            cells = empty if dimension is None else [row[dimension], *empty[1:]]
            lines.append([paper_name(row), *cells, cell(row)])
    return Table(title, [*table.header, f"published: {heading}"], lines)


def published_row(rows: Sequence[published.Row], name: str, is_model: bool) -> published.Row | None:
    """Find the row of a method; the paper's own method stands beside our models of other names."""
    name = published.NAMES.get(name, name)
    match = next((row for row in rows if row[0].casefold() == name.casefold()), None)
    if match is None and is_model:
        match = next((row for row in rows if row[0] == published.OURS), None)
    return match


def paper_name(row: published.Row) -> str:
    """Name a method of the paper in italics, and whether it was trained with ground truth."""
    return f"*{row[0]}, paper{', w/ GT' if row[1] == 'w/' else ''}*"
