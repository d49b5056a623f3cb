"""Draw a small picture of a scene: two panels, for notebooks that run no scripts."""

from __future__ import annotations

from io import BytesIO

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from wsdesc.view.colours import confidence_colour
from wsdesc.view.geometry import interpolate
from wsdesc.view.pictures import INK, VIEWS, draw_points, view_rotation
from wsdesc.view.scene import SceneView

_INCHES, _DPI = (9.0, 3.6), 90
_ABOVE, _CORNER = VIEWS[0], VIEWS[2]


def snapshot(scene: SceneView) -> bytes:
    """Return a PNG: a pair before and after, or many scans from two directions with their accepted edges."""
    figure = Figure(figsize=_INCHES, facecolor="white")
    FigureCanvasAgg(figure)
    if scene.edges:
        panels = [("from a corner", 1.0, _CORNER), ("from above, with accepted edges", 1.0, _ABOVE)]
    elif scene.moves:
        panels = [("before", 0.0, _CORNER), ("after", 1.0, _CORNER)]
    else:
        panels = [("from a corner", 1.0, _CORNER), ("from above", 1.0, _ABOVE)]
    for column, (name, share, angles) in enumerate(panels):
        panel = figure.add_axes((0.01 + 0.5 * column, 0.02, 0.48, 0.82))
        R = view_rotation(*angles)
        poses = [interpolate(scan.start, scan.end, share) for scan in scene.scans]
        posed_scans = list(zip(scene.scans, poses, strict=True))
        points = np.concatenate([pose.apply(scan.points) for scan, pose in posed_scans])
        normals = np.concatenate([scan.normals @ pose.rotation.T for scan, pose in posed_scans])
        counts = [len(scan.points) for scan in scene.scans]
        colours = np.repeat([np.array(scan.colour) / 255 for scan in scene.scans], counts, axis=0)
        draw_points(panel, points @ R.T, normals @ R.T, colours, scene.spacing, perspective=angles == _CORNER)
        if angles == _ABOVE and (accepted := [edge for edge in scene.edges if edge.accepted]):
            centres = np.stack([pose.position for pose in poses]) @ R.T
            lines = [centres[[edge.source, edge.target], :2] for edge in accepted]
            line_colours = [np.array(confidence_colour(edge.confidence)) / 255 for edge in accepted]
            panel.add_collection(LineCollection(lines, colors=line_colours, linewidths=1.8), autolim=False)
        figure.text(0.25 + 0.5 * column, 0.87, name, size=8, color=INK, ha="center", va="center")
    figure.text(
        0.01, 0.95, "   ".join([scene.title, scene.verdict, *scene.facts[:1]]), size=9, color=INK, va="center"
    )
    png = BytesIO()
    figure.savefig(png, dpi=_DPI, format="png")
    return png.getvalue()
