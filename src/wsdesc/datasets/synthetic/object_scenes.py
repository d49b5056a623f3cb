"""Scenes that contain a given object: a shape stands in a synthetic room, and a depth camera looks at it.

The camera sees about half of the object. Other objects and furniture hide parts of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from wsdesc.core.geometry import Floats, inverse, make_pose, transform
from wsdesc.core.planes import local_planes
from wsdesc.datasets.synthetic.camera import Camera, measure_depth
from wsdesc.datasets.synthetic.raycast import cast
from wsdesc.datasets.synthetic.room import Room
from wsdesc.datasets.synthetic.shapes import Triangles
from wsdesc.datasets.synthetic.sites.site import Surfaces
from wsdesc.datasets.synthetic.walk import look_at

MIN_VISIBLE = 0.45  # share of the object's surface that the scene must show
_NEAR = 0.02  # diameters: object points this close to a scene point are visible
_SPOTS, _VIEWS = 12, 12  # tries to place an object, and to see it
_PIXELS = (60, 220)  # diameter of the object in the image
_MIN_POINTS = 1000  # fewest points of an image
_PATCH = 0.8  # half side of the square that stands for a point of a shape, in point spacings
_UPRIGHT = 0.7  # share of objects that stand as they are; the others lie in a random orientation


@dataclass(frozen=True)
class ObjectScene:
    """A scene that contains copies of one object."""

    points: NDArray[np.float32]  # (N, 3), in the frame of the camera
    poses: Floats  # (K, 4, 4) T_scene_object of each copy
    visible: Floats  # (K,) share of the object's points that the scene shows
    size: float  # diameter of the object, in metres
    extent: float  # longest side of the box around the scene


def patches(points: NDArray[np.floating], rng: np.random.Generator) -> Triangles:
    """Replace points (N, 3) of a surface by small squares that cover it: triangles (2 N, 3, 3)."""
    centres = np.asarray(points, np.float64)
    tree = cKDTree(centres)
    normal = local_planes(centres, tree, 10).normals
    spacing = tree.query(centres, 5)[0][:, 1:].mean(axis=1)
    x = np.cross(normal, rng.normal(size=normal.shape))
    x /= np.linalg.norm(x, axis=1, keepdims=True) + 1e-12
    y = np.cross(normal, x)
    x, y = (_PATCH * spacing[:, None] * axis for axis in (x, y))
    a, b, c, d = centres - x - y, centres + x - y, centres + x + y, centres - x + y
    return np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)])


def diameter(points: NDArray[np.floating]) -> float:
    """Return the diagonal of the box around points (N, 3)."""
    return float(np.linalg.norm(np.ptp(points, axis=0)))


def object_scene(
    surface: Triangles,
    points: NDArray[np.floating],
    ratio: float,
    seed: int,
    *,
    copies: int = 1,
    views: int = 1,
    others: Sequence[Triangles] = (),
) -> ObjectScene | None:
    """Place copies of an object in a room and scan them with a depth camera.

    Args:
        surface: Triangles (F, 3, 3) of the object; z is up.
        points: Points (N, 3) of its surface, in the same coordinates.
        ratio: Length of the room over the diameter of the object. The object is scaled to it.
        seed: Seed of the room and of all random choices.
        copies: Number of copies.
        views: Number of depth images. The first one shows the object. Several images are joined in a frame
            of their own, so that the scene has no viewpoint and extends over the room.
        others: Triangles of other objects, which are placed near the first copy, with about the same size.

    Returns:
        The scene, with the pose of each copy for the *scaled* object: multiply `points` by
        `size / diameter(points)`. None if the first view does not show enough of all copies.
    """
    rng = np.random.default_rng([seed, 0x0B])
    room = Room(seed)
    size = float(room.size.max() / ratio)
    scale = size / diameter(points)
    near: Floats | None = None
    poses: list[Floats] = []
    items = list(room.items)
    for k in range(copies + len(others)):
        shape = surface * scale if k < copies else _resize(others[k - copies], size * rng.uniform(0.6, 1.3))
        T = _stand(shape, room, rng, near, size)
        if T is None:
            return None
        near = T[:3, 3] if near is None else near
        items.append(transform(shape.reshape(-1, 3), T).reshape(-1, 3, 3))
        if k < copies:
            poses.append(T)
    surfaces = Surfaces.over(items, [])
    placed = [transform(points * scale, T) for T in poses]
    camera = Camera.draw(rng, 640, 480)
    camera = replace(camera, near=0.3, far=rng.uniform(4.0, 6.0), noise=0.5 * camera.noise)
    first = _first_view(surfaces, room, camera, placed, size, rng)
    if first is None:
        return None
    scan, T_world_scan, visible = first
    if views > 1:
        scans = [transform(scan, T_world_scan)]
        scans += [_other_view(surfaces, room, camera, rng) for _ in range(views - 1)]
        T_world_scan = make_pose(Rotation.random(random_state=rng).as_matrix(), rng.normal(0, 5, 3))
        scan = transform(np.concatenate(scans), inverse(T_world_scan))
    return ObjectScene(
        scan.astype(np.float32),
        inverse(T_world_scan) @ np.stack(poses),
        visible,
        size,
        float(np.ptp(scan, axis=0).max()),
    )


def _first_view(
    surfaces: Surfaces,
    room: Room,
    camera: Camera,
    placed: list[Floats],
    size: float,
    rng: np.random.Generator,
) -> tuple[Floats, Floats, Floats] | None:
    """Take an image that shows enough of all placed objects: points, pose, and visible shares."""
    middle = np.concatenate(placed).mean(axis=0)
    for _ in range(_VIEWS):
        distance = np.clip(camera.focal * size / np.exp(rng.uniform(*np.log(_PIXELS))), 0.45, 3.5)
        around, up = rng.uniform(0, 2 * np.pi), rng.uniform(0.15, 0.9)
        direction = np.array([np.cos(around) * np.cos(up), np.sin(around) * np.cos(up), np.sin(up)])
        eye = middle + distance * direction
        half = room.size[:2] / 2 - 0.05
        if (np.abs(eye[:2]) > half).any() or not 0.1 < eye[2] < room.size[2] - 0.05:
            continue
        ray = (middle - eye)[None].astype(np.float32)
        if cast(surfaces.tree, eye[None].astype(np.float32), ray).depth[0] < 1 - size / distance:
            continue
        T_world_camera = look_at(eye, middle + rng.normal(0, 0.12 * distance, 3), rng.normal(0, 0.2))
        scan = _image(surfaces, camera, T_world_camera, rng)
        if len(scan) < _MIN_POINTS:
            continue
        tree = cKDTree(scan)
        T_camera_world = inverse(T_world_camera)
        gaps = [
            tree.query(transform(p, T_camera_world), distance_upper_bound=_NEAR * size)[0] for p in placed
        ]
        visible = np.array([np.isfinite(gap).mean() for gap in gaps])
        if visible.min() >= MIN_VISIBLE:
            return scan, T_world_camera, visible
    return None


def _other_view(surfaces: Surfaces, room: Room, camera: Camera, rng: np.random.Generator) -> Floats:
    """Take an image from somewhere in the room: points in the world's frame."""
    scan = np.empty((0, 3))
    for _ in range(_VIEWS):
        eye = rng.uniform((-0.45, -0.45, 0.4), (0.45, 0.45, 0.8)) * room.size
        gaze = rng.uniform((-0.5, -0.5, 0.0), (0.5, 0.5, 0.6)) * room.size
        T_world_camera = look_at(eye, gaze, rng.normal(0, 0.2))
        scan = transform(_image(surfaces, camera, T_world_camera, rng), T_world_camera)
        if len(scan) >= _MIN_POINTS:
            break
    return scan


def _image(surfaces: Surfaces, camera: Camera, T_world_camera: Floats, rng: np.random.Generator) -> Floats:
    """Take one depth image: points (N, 3) in the camera's frame."""
    still = np.zeros((1, 2))
    image = measure_depth(surfaces, camera, T_world_camera[None], still, rng)[0]
    points = camera.rays(np.eye(4)[None], still)[0] * image[..., None]
    return np.asarray(points[image > 0], np.float64)


def _resize(shape: Triangles, size: float) -> Triangles:
    return shape * (size / diameter(shape.reshape(-1, 3)))


def _stand(
    shape: Triangles,
    room: Room,
    rng: np.random.Generator,
    near: Floats | None,
    size: float,
) -> Floats | None:
    """Put a shape onto a horizontal surface of a room: its pose (4, 4), or None."""
    tilt = np.eye(3) if rng.random() < _UPRIGHT else Rotation.random(random_state=rng).as_matrix()
    T = np.eye(4)
    T[:3, :3] = Rotation.from_euler("z", rng.uniform(0, 2 * np.pi)).as_matrix() @ tilt
    corners = shape.reshape(-1, 3) @ T[:3, :3].T
    low, high = corners.min(axis=0), corners.max(axis=0)
    for _ in range(_SPOTS):
        if near is None:
            x, y = rng.uniform(-0.42, 0.42, 2) * room.size[:2]
        else:
            angle, away = rng.uniform(0, 2 * np.pi), rng.uniform(0.8, 2.0) * size
            x, y = near[:2] + away * np.array([np.cos(angle), np.sin(angle)])
        top = room.size[2] - 0.01
        if near is not None:
            top = min(top, near[2] + 2 * size)
        start = np.array([[x, y, top]], np.float32)
        seen = cast(room.tree, start, np.array([[0, 0, -1.0]], np.float32))
        if not np.isfinite(seen.depth[0]) or seen.slant[0] < 0.95:
            continue
        z = top - float(seen.depth[0])
        if z + high[2] - low[2] > room.size[2] - 0.05 or z > 1.6:
            continue
        at = np.array([x, y])
        reach = np.maximum(np.abs(low[:2] + at), np.abs(high[:2] + at))
        if (reach <= room.size[:2] / 2 - 0.02).all():
            T[:3, 3] = (x, y, z - low[2] - 0.01 * size)  # sunk a little
            return T
    return None
