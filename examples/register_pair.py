"""Register two scans: the pose, and whether to believe it."""

import numpy as np

import wsdesc
from wsdesc.datasets.synthetic import room_pair

pair = room_pair(seed=4)  # two overlapping scans of a room, (N, 3) and (M, 3), and their true pose
result = wsdesc.register(pair.source, pair.target)

print(np.round(result.T_target_source, 4))
print(f"confidence {result.confidence:.3f}, overlap {result.overlap:.0%}, {result.rmse:.4f} apart there")

moved = pair.source @ result.T_target_source[:3, :3].T + result.T_target_source[:3, 3]
true = pair.source @ pair.T_target_source[:3, :3].T + pair.T_target_source[:3, 3]
print(f"points are off by {1000 * np.linalg.norm(moved - true, axis=1).mean():.1f} mm on average")

# The same in single steps: describe once, register with many.
source, target = (
    wsdesc.describe(cloud, resolution=0.025, keypoints=800) for cloud in (pair.source, pair.target)
)
again = wsdesc.registration.pipeline.register_described(source, target)
print(f"from descriptions: confidence {again.confidence:.3f}")
print("trusted:", result.success, again.success)
