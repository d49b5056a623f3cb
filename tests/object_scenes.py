"""A small scene for tests: a bracket of boxes on a table, seen from one side, among other boxes."""

import numpy as np
from scipy.spatial.transform import Rotation

from wsdesc.cloud.mesh import sample_surface
from wsdesc.core.geometry import make_pose, transform
from wsdesc.datasets.synthetic.raycast import Tree, cast
from wsdesc.datasets.synthetic.shapes import box, join, place, rod
from wsdesc.datasets.synthetic.walk import look_at

VIEWPOINT = np.array([0.0, -1.2, 0.9])


def bracket():
    """Triangles of an object without symmetry, 14 cm long, about the origin."""
    return join(
        box(0.10, 0.04, 0.02),
        place(box(0.02, 0.04, 0.08), (-0.04, 0.0, 0.0)),
        place(rod(0.012, 0.05, sides=16), (0.03, 0.005, 0.02)),
        place(box(0.03, 0.015, 0.03), (0.0, -0.02, 0.02), yaw=0.5),
    )


def wedge():
    """Triangles of another object of this size."""
    return join(
        rod(0.05, 0.03, 0.02, 20),
        place(rod(0.015, 0.09, sides=16), (0.02, 0.02, 0.0), pitch=0.4),
        place(box(0.08, 0.01, 0.05), (0.0, 0.04, 0.0), yaw=0.3),
    )


def sampled(triangles, spacing, seed=0):
    """Sample triangles (F, 3, 3) by area: points (N, 3)."""
    vertices = triangles.reshape(-1, 3)
    faces = np.arange(len(vertices)).reshape(-1, 3)
    edges = triangles[:, 1:] - triangles[:, :1]
    area = np.linalg.norm(np.cross(edges[:, 0], edges[:, 1]), axis=1).sum() / 2
    return sample_surface(vertices, faces, int(area / spacing**2), seed)


def pose(x, y, z=0.0, yaw=0.0, pitch=0.0):
    return make_pose(Rotation.from_euler("zy", [yaw, pitch]).as_matrix(), (x, y, z))


def scene(*poses, thing=None):
    """Scan a table with boxes and an object in these poses from the viewpoint: points (N, 3)."""
    thing = bracket() if thing is None else thing
    rng = np.random.default_rng(0)
    parts = [place(box(1.0, 0.7, 0.03), (0, 0, -0.03))]
    parts += [place(box(*rng.uniform(0.05, 0.15, 3)), (x, 0.2, 0), yaw=x) for x in (-0.35, 0.0, 0.3)]
    parts += [transform(thing.reshape(-1, 3), T).reshape(-1, 3, 3) for T in poses]
    T = look_at(VIEWPOINT, np.zeros(3))
    x, y = np.meshgrid(np.linspace(-0.45, 0.45, 400), np.linspace(-0.3, 0.3, 260))
    rays = np.stack([x, y, np.ones_like(x)], axis=-1).reshape(-1, 3) @ T[:3, :3].T
    origins = np.broadcast_to(VIEWPOINT, rays.shape)
    hits = cast(Tree.over(join(*parts)), origins.astype(np.float32), rays.astype(np.float32))
    depth = np.where(hits.triangle < 0, 0, hits.depth).astype(np.float64)
    depth += rng.normal(0, 0.0006, depth.shape)
    return (VIEWPOINT + rays * depth[:, None])[hits.triangle >= 0]
