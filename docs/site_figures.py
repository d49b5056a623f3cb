"""Draw docs/images/sites.png: a view into one synthetic site of each kind.

python docs/site_figures.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from wsdesc.datasets.synthetic import SITES, site_scans
from wsdesc.datasets.synthetic.raycast import cast
from wsdesc.datasets.synthetic.sites import build_site
from wsdesc.datasets.synthetic.walk import look_at

WIDTH, HEIGHT, FOCAL = 480, 360, 240  # pixels
SEEDS = {"street": 3, "courtyard": 2, "hall": 0, "warehouse": 1, "building": 0, "stairwell": 3}


def main() -> None:
    figure, grid = plt.subplots(3, 3, figsize=(12, 9.4))
    for axes, kind in zip(grid.ravel(), SITES, strict=True):
        axes.imshow(_shaded(kind, SEEDS.get(kind, 1)), cmap="gray", vmin=0, vmax=1)
        axes.set_title(kind)
        axes.axis("off")
    figure.tight_layout()
    figure.savefig(Path(__file__).parent / "images" / "sites.png", dpi=70)


def _shaded(kind: str, seed: int) -> np.ndarray:
    """Render a site as an aimed sensor sees it: bright where surfaces face it and are near."""
    site = build_site(kind, seed)
    scan = site_scans(kind, seed, 1, "structured_light" if site.gaze is not None else "solid_state")[0]
    forward = scan.T_world_scan[:3, 0 if site.gaze is None else 2]
    eye = scan.T_world_scan[:3, 3]
    pose = look_at(eye, eye + forward)
    u, v = np.meshgrid((np.arange(WIDTH) - WIDTH / 2) / FOCAL, (np.arange(HEIGHT) - HEIGHT / 2) / FOCAL)
    rays = (pose[:3, 2] + u[..., None] * pose[:3, 0] + v[..., None] * pose[:3, 1]).astype(np.float32)
    surfaces = site.surfaces(np.random.default_rng(0))
    hits = cast(surfaces.tree, np.broadcast_to(eye.astype(np.float32), rays.shape), rays)
    haze = np.exp(-np.where(np.isfinite(hits.depth), hits.depth, 0) / 80)
    return np.where(hits.triangle < 0, 1.0, (0.25 + 0.75 * hits.slant) * haze)


if __name__ == "__main__":
    main()
