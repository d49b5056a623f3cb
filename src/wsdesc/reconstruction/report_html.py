"""Report of a reconstruction as one HTML file, which needs neither a network nor scripts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

import numpy as np

from wsdesc.core.geometry import Floats, transform
from wsdesc.reconstruction.distances import BINS, EdgeDistances, ScanSample, measure_distances
from wsdesc.reconstruction.edge_result import EdgeResult
from wsdesc.reconstruction.report_svg import histogram, legend, plan_view, small_histogram
from wsdesc.reconstruction.result import Reconstruction

_MAX_ROWS = 3000  # of a table; graph.json has all
_MAX_FRAMES = 10  # that are drawn

_STYLE = """
:root{color-scheme:light dark;--ink:#1c2530;--soft:#5a6673;--line:#d5dbe1;--back:#fff;--band:#f4f6f8;
--bar:#2564aa}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaee;--soft:#9aa6b2;--line:#3a444e;--back:#161b20;
--band:#1e252b;--bar:#6fa8e0}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);margin:0}
main{max-width:1080px;margin:auto;padding:1.5rem}
h1{font-size:1.7rem;margin:.2rem 0}
h2{font-size:1.25rem;margin:2.2rem 0 .6rem;border-top:1px solid var(--line);padding-top:1.2rem}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.8rem;margin:1.2rem 0}
.facts div{background:var(--band);border-radius:8px;padding:.7rem .9rem}
.facts dt{color:var(--soft);font-size:.85rem}.facts dd{margin:0;font-size:1.25rem;font-weight:600}
.table{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.9rem;
font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--soft);padding:.3rem 0}
th,td{padding:.35rem .6rem;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}
th,td{white-space:nowrap}td.long{white-space:normal;min-width:16rem}td.n,th.n{text-align:right}
tbody tr:nth-child(even){background:var(--band)}th[aria-sort]::after{content:" \\25BE"}
th[aria-sort=ascending]::after{content:" \\25B4"}th button{all:unset;cursor:pointer}
th button:focus-visible{outline:2px solid var(--bar)}
svg{width:100%;height:auto;display:block}svg text{font-size:12px;fill:var(--soft)}
svg .label{paint-order:stroke;stroke:var(--band);stroke-width:4px}
svg circle{fill:var(--ink);stroke:var(--back);stroke-width:1.5}
svg .rejected{stroke:var(--soft);stroke-width:1;stroke-dasharray:3 5;opacity:.55}
svg .axis{stroke:var(--soft);stroke-width:1.5}svg .bar{fill:var(--bar)}
svg.legend{max-width:30rem}svg.histogram{max-width:44rem}svg.small{width:6rem}
.plan{background:var(--band);border-radius:8px;overflow-x:auto}
.plan svg{min-width:34rem}.note{color:var(--soft)}
@media print{main{max-width:none}}
"""
# Tables are sorted already; with scripts, a click on a heading sorts by that column.
_SCRIPT = """
for(const th of document.querySelectorAll("thead th")){const b=document.createElement("button");
b.append(...th.childNodes);th.append(b);b.onclick=()=>{const t=th.closest("table"),i=th.cellIndex,
up=th.getAttribute("aria-sort")==="descending";
for(const o of t.querySelectorAll("th"))o.removeAttribute("aria-sort");
th.setAttribute("aria-sort",up?"ascending":"descending");const v=r=>{const c=r.cells[i];
return c.dataset.v!==undefined?+c.dataset.v:c.textContent};
const s=[...t.tBodies[0].rows].sort((p,q)=>{const a=v(p),c=v(q);return(a>c)-(a<c)});if(!up)s.reverse();
t.tBodies[0].append(...s)}}
"""


def report_html(result: Reconstruction, samples: Mapping[str, ScanSample]) -> str:
    """Return the report as HTML.

    Args:
        result: The reconstruction.
        samples: Sample of each placed scan.
    """
    distances = measure_distances(result, samples)
    sections = [
        _summary(result),
        *_plans(result, samples),
        _scan_table(result),
        _edge_table(result, distances),
        _distance_section(result, distances),
        _known_table(result),
        _rejected_table(result),
        _not_placed(result),
    ]
    body = "\n".join(filter(None, sections))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Reconstruction of {len(result.paths)} scans</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body><main>\n{body}\n</main><script>{_SCRIPT}</script></body>\n</html>"
    )


def _summary(result: Reconstruction) -> str:
    accepted = [edge for edge in result.edges if edge.accepted]
    total = len(result.paths) + sum(name not in result.paths for name in result.not_placed)
    worst = max((edge.deviation or 0.0 for edge in accepted), default=0.0)
    facts = [
        ("scans placed", f"{len(result.T_world_scan)} of {total}"),
        ("frames", str(len(result.components))),
        ("accepted edges", f"{len(accepted)} of {len(result.edges)}"),
        ("largest deviation", f"{worst:.1f} σ"),
        ("resolution", f"{result.resolution:.4g}"),
    ]
    if result.known:
        used = sum(item.accepted for item in result.known)
        facts.append(("known items used", f"{used} of {len(result.known)}"))
    cells = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    text = "Lengths are in the unit of the scans. σ is the standard deviation that the pose graph expects."
    return f'<h1>Reconstruction</h1>\n<p class="note">{text}</p>\n<dl class="facts">{cells}</dl>'


def _plans(result: Reconstruction, samples: Mapping[str, ScanSample]) -> list[str]:
    sections = []
    for number, scans in enumerate(result.components[:_MAX_FRAMES]):
        inside = {name for name in scans if name in samples}
        if not inside:
            continue
        centres: dict[str, Floats] = {
            name: transform(samples[name].centre[None], result.T_world_scan[name])[0]
            for name in scans
            if name in inside
        }
        edges = [
            e
            for e in result.edges
            if {e.source, e.target} <= inside and (e.accepted or e.T_target_source is not None)
        ]
        frame = "the world" if number == 0 and result.in_world else f"the frame of {escape(scans[0])}"
        drawing = plan_view(centres, edges, {name: _sigmas(result, name)[0] for name in inside})
        sections.append(
            f"<h2>Frame {number + 1}: {len(scans)} scans in {frame}</h2>\n"
            f'<figure style="margin:0"><div class="plan">{drawing}</div>\n'
            f'<figcaption class="note">Seen along z. Lines are accepted edges, coloured by their deviation '
            f"from the final poses in standard deviations; dashed lines are rejected ones.{legend()}"
            "</figcaption></figure>"
        )
    if len(result.components) > _MAX_FRAMES:
        sections.append(f'<p class="note">{len(result.components) - _MAX_FRAMES} smaller frames follow.</p>')
    return sections


def _scan_table(result: Reconstruction) -> str:
    frame = {name: number + 1 for number, scans in enumerate(result.components) for name in scans}
    edges_of: dict[str, list[EdgeResult]] = {name: [] for name in frame}
    for edge in result.edges:
        for name in (edge.source, edge.target):
            if edge.accepted and name in edges_of:
                edges_of[name].append(edge)
    rows, digits = [], max(0, math.ceil(-math.log10(result.resolution))) + 2
    for name in sorted(frame, key=lambda name: -_sigmas(result, name)[0]):
        position, angle = _sigmas(result, name)
        best = max((edge.confidence for edge in edges_of[name]), default=0.0)
        x, y, z = result.T_world_scan[name][:3, 3]
        numbers = [_cell(frame[name]), _cell(len(edges_of[name])), _cell(best, "{:.3f}")]
        numbers += [_cell(position, "{:.2g}"), _cell(angle, "{:.2g}°")]
        rows.append([_text(name), *numbers, _text(f"{x:.{digits}f}, {y:.{digits}f}, {z:.{digits}f}")])
    heads = ["scan", "#frame", "#edges", "#best confidence", "#position σ", "#rotation σ", "translation"]
    caption = (
        "Least certain scans first. σ: at the scan's centre, relative to the frame; 0 for the reference."
    )
    return f"<h2>Scans</h2>\n{_table(heads, rows, caption, sort=4)}" if rows else ""


def _edge_table(result: Reconstruction, distances: Mapping[tuple[str, str], EdgeDistances]) -> str:
    rows = []
    accepted = [edge for edge in result.edges if edge.accepted]
    for edge in sorted(accepted, key=lambda edge: -(edge.deviation or 0.0)):
        measured = distances.get((edge.source, edge.target))
        row = [_text(edge.source), _text(edge.target), _cell(edge.deviation or 0.0, "{:.1f} σ")]
        row += [_cell(edge.overlap, "{:.0%}"), _cell(edge.rmse, "{:.3g}"), _cell(edge.confidence, "{:.3f}")]
        row.append(_cell(measured.median if measured else None, "{:.2g}"))
        drawing = small_histogram(measured.counts) if measured else ""
        row.append(f"<td>{drawing}</td>")
        rows.append(row)
    heads = ["source", "target", "#deviation", "#overlap", "#RMSE", "#confidence", "#distance", "distances"]
    caption = "Edges that agree least with the final poses first. Distance: median, surface to surface."
    return f"<h2>Accepted edges</h2>\n{_table(heads, rows, caption, sort=2)}" if rows else ""


def _distance_section(result: Reconstruction, distances: Mapping[tuple[str, str], EdgeDistances]) -> str:
    if not distances:
        return ""
    counts = np.sum([measured.counts for measured in distances.values()], axis=0)
    width = 2 * result.resolution / BINS
    medians = [measured.median for measured in distances.values()]
    text = (
        f"Distances of {int(counts.sum())} points to the surface of the neighbouring scan, in "
        f"{len(distances)} edges. The median edge has a median of {np.median(medians):.3g}. The last bar "
        "has all larger ones."
    )
    drawing = histogram(counts, width, f"Histogram of distances between scans. {text}")
    return f'<h2>Distances between scans</h2>\n<p class="note">{text}</p>\n{drawing}'


def _known_table(result: Reconstruction) -> str:
    rows = []
    for item in sorted(result.known, key=lambda item: (item.accepted, -(item.deviation or 0.0))):
        state = _long("used" if item.accepted else f"left out: {item.rejection}")
        what = {"pose": "known pose", "control": "control point", "up": "up"}[item.kind]
        row = [_text(f"{what} {item.name}".strip()), _text(item.scan), _cell(item.distance, "{:.4g}")]
        row += [_cell(item.angle, "{:.3g}°"), _cell(item.deviation, "{:.1f} σ"), state]
        rows.append(row)
    heads = ["item", "scan", "#distance", "#angle", "#deviation", "state"]
    caption = "What was known beforehand; items that were left out first."
    return f"<h2>Known poses, control points and up</h2>\n{_table(heads, rows, caption)}" if rows else ""


def _rejected_table(result: Reconstruction) -> str:
    rejected = sorted((e for e in result.edges if not e.accepted), key=lambda edge: -edge.confidence)
    rows = []
    for edge in rejected:
        row = [_text(edge.source), _text(edge.target), _cell(edge.confidence, "{:.3f}")]
        row += [_cell(edge.overlap, "{:.0%}"), _long(edge.rejection or "")]
        rows.append(row)
    heads = ["source", "target", "#confidence", "#overlap", "reason"]
    return f"<h2>Rejected edges</h2>\n{_table(heads, rows, 'Most confident first.', sort=2)}" if rows else ""


def _not_placed(result: Reconstruction) -> str:
    rows = [[_text(name), _long(reason)] for name, reason in sorted(result.not_placed.items())]
    return f"<h2>Scans that were not placed</h2>\n{_table(['scan', 'reason'], rows, '')}" if rows else ""


def _sigmas(result: Reconstruction, name: str) -> tuple[float, float]:
    """Return the standard deviation of a scan's position, and of its rotation in degrees."""
    if name not in result.covariances:
        return 0.0, 0.0
    variances = np.maximum(np.diag(result.covariances[name]), 0.0)
    return float(np.sqrt(variances[:3].sum())), float(np.degrees(np.sqrt(variances[3:].sum())))


def _table(heads: Sequence[str], rows: Sequence[Iterable[str]], caption: str, sort: int | None = None) -> str:
    """Return a table; headings that start with # are those of numbers, `sort` is the column of its order."""
    cells = []
    for k, head in enumerate(heads):
        number = ' class="n"' if head.startswith("#") else ""
        order = ' aria-sort="descending"' if k == sort else ""
        cells.append(f'<th scope="col"{number}{order}>{escape(head.lstrip("#"))}</th>')
    more = len(rows) - _MAX_ROWS
    note = f" {more} more rows are in graph.json." if more > 0 else ""
    body = "\n".join(f"<tr>{''.join(row)}</tr>" for row in rows[:_MAX_ROWS])
    return (
        f'<div class="table"><table><caption>{escape(caption + note)}</caption>'
        f"<thead><tr>{''.join(cells)}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def _text(value: str) -> str:
    return f"<td>{escape(value)}</td>"


def _long(value: str) -> str:
    return f'<td class="long">{escape(value)}</td>'


def _cell(value: float | None, form: str = "{}") -> str:
    """Return the cell of a number, with its full value for sorting."""
    if value is None:
        return '<td class="n" data-v="-1">–</td>'
    return f'<td class="n" data-v="{float(value):.9g}">{form.format(value)}</td>'
