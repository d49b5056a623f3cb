"""Write a scene as one HTML file that works offline, without a server or a library."""

from __future__ import annotations

import base64
import html
import json
import os
import re
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.atomic import atomic_write
from wsdesc.core.geometry import Floats
from wsdesc.view.colours import BAD, GOOD, HEAT, NO_PARTNER, confidence_colour
from wsdesc.view.distances import Distances
from wsdesc.view.frame import RADIUS
from wsdesc.view.geometry import QuaternionPose
from wsdesc.view.scene import MatchLines, ScanView, SceneView, Supports

_SCRIPTS = ("scene.js", "draw.js", "overlay.js", "colours.js", "pick.js", "controls.js")  # in this order
_MIN_OCCUPANCY = 64  # of 255; emptier cells of a support are not drawn
_STEPS = 65535  # quantization of coordinates over a scan's extent: finer than a pixel
_NO_DISTANCE = 65535  # stands for a point without a partner
_TYPES = {"uint8": "u8", "int8": "i8", "uint16": "u16", "uint32": "u32", "float32": "f32"}


def page(scene: SceneView) -> str:
    """Return the HTML text of a page that shows a scene."""
    parts = {
        "title": html.escape(scene.title),
        # A scan's name may contain "</script>".
        "scene": json.dumps(_scene_values(scene), separators=(",", ":")).replace("<", "\\u003c"),
        "script": "\n".join(_asset(name) for name in _SCRIPTS),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("page.html"))


def save_page(scene: SceneView, path: str | os.PathLike[str]) -> None:
    """Write the page of a scene to an .html file."""
    with atomic_write(path) as temporary:
        temporary.write_text(page(scene), encoding="utf-8")


def _asset(name: str) -> str:
    return resources.files("wsdesc.view").joinpath("assets", name).read_text(encoding="utf-8")


def _scene_values(scene: SceneView) -> dict[str, Any]:
    edges = [edge._asdict() | {"colour": confidence_colour(edge.confidence)} for edge in scene.edges]
    return {
        "radius": RADIUS,
        "spacing": scene.spacing,
        "scale": scene.frame.scale,  # of the scene relative to the files
        "centre": scene.frame.centre.tolist(),
        "axes": scene.frame.axes.tolist(),  # row k is axis k of the files, in the scene
        "up": scene.frame.up,
        "unit": scene.unit,
        "moves": scene.moves,
        "success": scene.success,
        "verdict": scene.verdict,
        "warnings": scene.warnings,
        "heat": HEAT,
        "no_partner": NO_PARTNER,
        "good": GOOD,
        "bad": BAD,
        "facts": scene.facts,
        "point_count": scene.point_count,
        "scans": [_scan_values(scan) for scan in scene.scans],
        "matches": _match_values(scene.matches) if scene.matches is not None else None,
        "match_counts": scene.match_counts,
        "edges": edges,
    }


def _scan_values(scan: ScanView) -> dict[str, Any]:
    low = scan.points.min(axis=0)
    step = float(np.ptp(scan.points, axis=0).max() or 1.0) / _STEPS
    return {
        "name": scan.name,
        "colour": scan.colour,
        "low": low.tolist(),
        "step": step,
        "points": _pack(np.rint((scan.points - low) / step), np.uint16),
        "normals": _pack(np.rint(127 * scan.normals), np.int8),
        "start": _pose_values(scan.start),
        "end": _pose_values(scan.end),
        "choices": [
            {"name": name, "pose": _pose_values(pose), "probability": probability}
            for name, pose, probability in scan.choices
        ],
        "own": None if scan.own_colours is None else _pack(scan.own_colours.rgb, np.uint8),
        "own_kind": "" if scan.own_colours is None else scan.own_colours.kind,
        "distances": [_distance_values(distances) for distances in scan.distances],
        "viewpoint": None if scan.viewpoint is None else scan.viewpoint.tolist(),
        "supports": _support_values(scan.supports) if scan.supports is not None else None,
    }


def _distance_values(distances: Distances) -> dict[str, Any]:
    steps = np.rint(distances.values / distances.limit * (_NO_DISTANCE - 1))
    values = np.where(np.isfinite(distances.values), steps, _NO_DISTANCE)
    return {"step": distances.limit / (_NO_DISTANCE - 1), "values": _pack(values, np.uint16)}


def _support_values(supports: Supports) -> dict[str, Any]:
    """Pack the indices and values of the drawn cells only, keypoint after keypoint."""
    grids = supports.grids.reshape(len(supports.grids), -1)  # (K, h³)
    keypoint, cell = np.nonzero(grids >= _MIN_OCCUPANCY)
    starts = np.searchsorted(keypoint, np.arange(len(grids) + 1))
    return {
        "cells": supports.grids.shape[-1],
        "min_occupancy": _MIN_OCCUPANCY,
        "keypoints": _pack(supports.keypoints, np.float32),
        "axes": _pack(supports.axes, np.float32),
        "sides": _pack(supports.sides, np.float32),
        "starts": _pack(starts, np.uint32),
        "index": _pack(cell, np.uint16),
        "values": _pack(grids[keypoint, cell], np.uint8),
    }


def _match_values(matches: MatchLines) -> dict[str, Any]:
    return {
        "source": _pack(matches.source, np.float32),
        "target": _pack(matches.target, np.float32),
        "inlier": _pack(matches.inlier, np.uint8),
    }


def _pose_values(pose: QuaternionPose) -> dict[str, Any]:
    return {"wxyz": pose.wxyz.tolist(), "position": pose.position.tolist(), "scale": pose.scale}


def _pack(values: NDArray[Any] | Floats, dtype: type) -> dict[str, str]:
    little_endian = np.ascontiguousarray(values, dtype=np.dtype(dtype).newbyteorder("<"))
    data = base64.b64encode(little_endian.tobytes()).decode("ascii")
    return {"type": _TYPES[np.dtype(dtype).name], "data": data}
