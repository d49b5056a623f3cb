"""Write one page of benchmark results with the published figures of the paper beside them.

    python -m benchmarks.report results/ [MORE_RESULTS …] --out docs/benchmarks.md
    python -m benchmarks.report --merge --title "Learned peers" learned/ foldnets/ --out docs/learned-peers.md

Each RESULTS is a folder that `wsdesc benchmark … --out RESULTS` wrote to. The page has a section for each
benchmark below it: the commands, machines and dates, the number of samples, tables in the form of the paper's
and plots, which are written into a folder beside the page. A notes.md beside a results.json ends its section;
one in RESULTS itself follows the introduction. With --merge, rows of the same benchmark in several folders
share a table, at the keypoint counts that all descriptors have. Prints the names of the benchmarks.

The introduction of the page lists the commands that rebuild the tables of the paper.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.report.page import write_page
from wsdesc import WSDescError


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("results", type=Path, nargs="+", help="folders of results")
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/benchmarks.md"), help="the page")
    parser.add_argument("--title", default="Benchmarks", help="title of the page")
    parser.add_argument("--merge", action="store_true", help="join rows of the same benchmark")
    arguments = parser.parse_args()
    try:
        sections = write_page(arguments.results, arguments.out, arguments.title, arguments.merge)
    except WSDescError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{len(sections)} benchmarks: {', '.join(section.name for section in sections)}")
    print(f"written: {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
