"""Register two scans in single steps: downsample, describe, match, estimate the pose.

    python examples/describe_and_match.py [source.ply target.ply]

Without files, two scans of a synthetic room are used, and the error of the pose is printed. The unit is the
metre.
"""

import sys

import numpy as np
import torch

from wsdesc import WSDesc, read_points
from wsdesc.alignment import ransac
from wsdesc.cloud.sampling import farthest_points, voxel_downsample
from wsdesc.evaluation.metrics import rotation_error_deg, translation_error
from wsdesc.matching import mutual_matches


def load_scans() -> tuple[torch.Tensor, torch.Tensor, np.ndarray | None]:
    if len(sys.argv) == 3:
        source, target = (torch.from_numpy(read_points(path)).float() for path in sys.argv[1:])
        return source, target, None
    from wsdesc.datasets.synthetic import room_pair

    pair = room_pair(seed=1)
    return torch.from_numpy(pair.source), torch.from_numpy(pair.target), pair.T_target_source


source, target, T_true = load_scans()
model = WSDesc.from_pretrained("indoor-fast")

keypoints, descriptors = [], []
for scan in (source, target):
    points = voxel_downsample(scan, 0.025)  # (N, 3)
    keypoints.append(points[farthest_points(points, 800)])  # (K, 3)
    with torch.inference_mode():
        descriptors.append(model(points, keypoints[-1]))  # (K, 32)

matches = mutual_matches(*descriptors)  # (M, 2)
result = ransac(keypoints[0][matches[:, 0]], keypoints[1][matches[:, 1]])
T_target_source = result.T_target_source.numpy()  # (4, 4)
print(f"{len(matches)} mutual matches, {int(result.inliers.sum())} inliers. T_target_source:")
print(np.array2string(T_target_source, precision=4, suppress_small=True))

if T_true is not None:
    degrees = float(rotation_error_deg(T_target_source, T_true))
    metres = float(translation_error(T_target_source, T_true))
    print(f"error {degrees:.2f}° and {100 * metres:.1f} cm")
