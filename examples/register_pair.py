"""Register two scans: the pose, and its confidence.

python examples/register_pair.py
"""

import numpy as np

import wsdesc
from wsdesc.datasets.synthetic import room_pair

pair = room_pair(seed=4)  # two overlapping scans (N, 3) and (M, 3) of a room, and their true pose
result = wsdesc.register(pair.source, pair.target)
print(result)

aligned = result.apply(pair.source)
true = wsdesc.Cloud(pair.source).transformed(pair.T_target_source).points
print(f"mean error {1000 * np.linalg.norm(aligned - true, axis=1).mean():.1f} mm")

# The same in two steps: describe each scan once, then register it with many others.
source, target = (
    wsdesc.describe(scan, resolution=0.025, keypoints=800) for scan in (pair.source, pair.target)
)
described = wsdesc.register_described(source, target)
print(f"described scans: confidence {described.confidence:.3f}")
print("success:", result.success, described.success)
