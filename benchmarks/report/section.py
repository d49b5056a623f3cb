"""A section of the page: one benchmark with its tables, plots and the runs it comes from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.report.plots import Plot
from wsdesc.evaluation.provenance import Run
from wsdesc.evaluation.tables import Table


@dataclass(frozen=True)
class Section:
    """One benchmark of the page."""

    name: str
    title: str
    runs: list[Run]
    samples: str
    notes: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)

    def markdown(self, images: str = "") -> str:
        """Format as Markdown; `images` is the prefix of the plots' paths."""
        parts = [f"## {self.title}\n", *_runs_markdown(self.runs), f"Evaluated: {self.samples}.\n"]
        parts += ["\n".join(f"- {note}" for note in self.notes) + "\n"] if self.notes else []
        parts += [table.markdown() for table in self.tables]
        parts += [f"![{plot.title}]({images}{plot.file})\n" for plot in self.plots]
        return "\n".join(parts)

    def draw(self, folder: Path, prefix: str = "") -> None:
        """Draw the plots as PNG files."""
        folder.mkdir(parents=True, exist_ok=True)
        for plot in self.plots:
            plot.draw(folder / f"{prefix}{plot.file}")


def _runs_markdown(runs: list[Run]) -> list[str]:
    """Format the commands of each machine and day in one block."""
    groups: dict[str, list[str]] = {}
    for run in runs:
        groups.setdefault(f"{run.machine}; {run.date}.", []).append(run.command)
    return ["```\n" + "\n".join(commands) + f"\n```\n\n{where}\n" for where, commands in groups.items()]
