"""A scene as one HTML file that needs nothing else: no server, no network, no library."""

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
from wsdesc.view.geometry import Floats, Placement
from wsdesc.view.pick import CUT
from wsdesc.view.scene import BAD, GOOD, RADIUS, Matches, Scan, Scene, Supports, confidence_colour

_SCRIPTS = ("scene.js", "draw.js", "hands.js")  # one after the other
_STEPS = 65535  # a coordinate is so many steps over the extent of its scan, finer than a pixel
_KINDS = {"uint8": "u8", "int8": "i8", "uint16": "u16", "uint32": "u32", "float32": "f32"}


def page(scene: Scene) -> str:
    """The HTML text of a page that shows a scene."""
    parts = {
        "title": html.escape(scene.title),
        # A name that ends the script element must not do so here.
        "scene": json.dumps(_scene(scene), separators=(",", ":")).replace("<", "\\u003c"),
        "script": "\n".join(_asset(name) for name in _SCRIPTS),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _asset("page.html"))


def save_page(scene: Scene, path: str | os.PathLike[str]) -> None:
    """Write that page, whole or not at all."""
    with atomic_write(path) as temporary:
        temporary.write_text(page(scene), encoding="utf-8")


def _asset(name: str) -> str:
    return resources.files("wsdesc.view").joinpath("assets", name).read_text(encoding="utf-8")


def _scene(scene: Scene) -> dict[str, Any]:
    edges = [edge._asdict() | {"colour": confidence_colour(edge.confidence)} for edge in scene.edges]
    return {
        "radius": RADIUS,
        "spacing": scene.spacing,
        "moves": scene.moves,
        "good": GOOD,
        "bad": BAD,
        "facts": [*scene.facts, scene.counted],
        "scans": [_scan(scan) for scan in scene.scans],
        "matches": _matches(scene.matches) if scene.matches is not None else None,
        "found": scene.found,
        "edges": edges,
    }


def _scan(scan: Scan) -> dict[str, Any]:
    low = scan.points.min(axis=0)
    step = float(np.ptp(scan.points, axis=0).max() or 1.0) / _STEPS
    return {
        "name": scan.name,
        "colour": scan.colour,
        "low": low.tolist(),
        "step": step,
        "points": _packed(np.rint((scan.points - low) / step), np.uint16),
        "normals": _packed(np.rint(127 * scan.normals), np.int8),
        "start": _place(scan.start),
        "end": _place(scan.end),
        "supports": _supports(scan.supports) if scan.supports is not None else None,
    }


def _supports(supports: Supports) -> dict[str, Any]:
    """Of each grid only the cells that are drawn: their numbers and values, keypoint after keypoint."""
    grids = supports.grids.reshape(len(supports.grids), -1)  # (K, h³)
    keypoint, cell = np.nonzero(grids >= CUT)
    starts = np.searchsorted(keypoint, np.arange(len(grids) + 1))
    return {
        "cells": supports.grids.shape[-1],
        "cut": CUT,
        "keypoints": _packed(supports.keypoints, np.float32),
        "axes": _packed(supports.axes, np.float32),
        "sides": _packed(supports.sides, np.float32),
        "starts": _packed(starts, np.uint32),
        "index": _packed(cell, np.uint16),
        "values": _packed(grids[keypoint, cell], np.uint8),
    }


def _matches(matches: Matches) -> dict[str, Any]:
    return {
        "source": _packed(matches.source, np.float32),
        "target": _packed(matches.target, np.float32),
        "agree": _packed(matches.agree, np.uint8),
    }


def _place(place: Placement) -> dict[str, list[float]]:
    return {"wxyz": place.wxyz.tolist(), "position": place.position.tolist()}


def _packed(values: NDArray[Any] | Floats, kind: type) -> dict[str, str]:
    little = np.ascontiguousarray(values, dtype=np.dtype(kind).newbyteorder("<"))
    return {"type": _KINDS[np.dtype(kind).name], "data": base64.b64encode(little.tobytes()).decode("ascii")}
