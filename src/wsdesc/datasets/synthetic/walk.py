"""Camera paths of a person who walks through a room and looks at items."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from wsdesc.core.geometry import Floats
from wsdesc.datasets.synthetic.camera import Camera, render
from wsdesc.datasets.synthetic.room import Room

_TRIES = 40


def look_at(eye: Floats, gaze: Floats, roll: float = 0.0) -> Floats:
    """Compute the pose of a camera at `eye` that looks at `gaze`, rotated by `roll` radians."""
    forward = gaze - eye
    forward /= np.linalg.norm(forward)
    right = np.cross(forward, [0.0, 0.0, 1.0])
    right /= np.linalg.norm(right)
    down = np.cross(forward, right)
    pose = np.eye(4)
    pose[:3, 0] = np.cos(roll) * right + np.sin(roll) * down
    pose[:3, 1] = np.cos(roll) * down - np.sin(roll) * right
    pose[:3, 2] = forward
    pose[:3, 3] = eye
    return pose


def stations(room: Room, camera: Camera, rng: np.random.Generator, pace: float) -> Iterator[Floats]:
    """Yield an endless chain of views (7,): eye, gaze, roll. Each of them sees enough to scan."""
    scout = replace(camera, width=32, height=24, focal=camera.focal * 32 / camera.width)
    half = np.array([*room.size[:2] / 2 - 0.25, np.inf])
    step_eye, step_gaze = pace * rng.uniform(0.1, 0.5), pace * rng.uniform(0.2, 1.2)
    busy = rng.uniform(0.1, 0.55)  # smallest share of the image with detail
    away = rng.uniform(1.3, 3.2)  # largest median depth, in metres
    details = np.concatenate(room.items[1:])[:, 0]  # small items have many triangles, walls few
    now: Floats | None = None
    while True:
        best, best_score = np.zeros(7), -np.inf
        for _ in range(_TRIES):
            detail = details[rng.integers(len(details))]
            if now is None:
                heading, reach = rng.uniform(0, 2 * np.pi), rng.uniform(0.6, 2.2)
                gaze = detail + rng.normal(0, 0.2, 3)
                eye = gaze + reach * np.array([np.cos(heading), np.sin(heading), 0.0])
                eye[2] = rng.uniform(0.9, 1.8)
                roll = rng.normal(0, 0.1)
            else:
                towards = detail - now[3:6]
                towards *= min(1.0, step_gaze * rng.chisquare(2) / 2 / (np.linalg.norm(towards) + 1e-9))
                gaze = now[3:6] + towards + rng.normal(0, 0.3 * step_gaze, 3)
                eye = now[:3] + rng.normal(0, step_eye, 3) * (1, 1, 0.6)
                roll = 0.7 * now[6] + rng.normal(0, 0.07)
            eye = np.clip(eye, -half, half)
            eye[2] = np.clip(eye[2], 0.6, 2.0)
            score = _score_view(room, camera, scout, look_at(eye, gaze, roll), busy, away)
            if score > best_score:
                best, best_score = np.array([*eye, *gaze, roll]), score
            if score >= 0:
                break
        now = best
        yield now


def _score_view(room: Room, camera: Camera, scout: Camera, pose: Floats, busy: float, away: float) -> float:
    """Score a view: 0 if enough is in range, nothing is too close and details are visible; else negative."""
    depth = np.minimum(render(room, scout, pose[None], np.zeros((1, 2))).depth[0], 2 * camera.far)
    reached = (depth > camera.near) & (depth < camera.far)
    close, middle = np.quantile(depth, [0.03, 0.5])
    # Inverse depth is linear on a plane: its second differences are large at details.
    inverse = 1 / np.maximum(depth, 0.1)
    bends = np.abs(np.diff(inverse, 2, axis=1))[1:-1] + np.abs(np.diff(inverse, 2, axis=0))[:, 1:-1] > 0.012
    shortfall = (reached.mean() - 0.65, bends.mean() - busy, close - 0.5, middle - 0.9, away - middle)
    return float(min(*shortfall, 0.0))


def path(chain: list[Floats], times: Floats) -> Floats:
    """Interpolate views (T, 7) at times in [0, 1] between views 2 and 3 of 4 (Catmull-Rom spline)."""
    a, b, c, d = chain
    t = times[:, None]
    return 0.5 * (2 * b + (c - a) * t + (2 * a - 5 * b + 4 * c - d) * t**2 + (3 * b - a - 3 * c + d) * t**3)
