"""Describe two scans, match them, find the motion between them, and write the source where it belongs.

    python examples/describe_and_match.py [source.ply target.ply]

Without files: two scans of a synthetic room, whose true pose is known. Scans are in metres.
"""

import sys

import numpy as np
import torch

from wsdesc import WSDesc, read_points
from wsdesc import alignment as align
from wsdesc import matching as match
from wsdesc.cloud.sampling import farthest_points, voxel_downsample


def load() -> tuple[torch.Tensor, torch.Tensor, np.ndarray | None]:
    if len(sys.argv) == 3:
        source, target = (torch.from_numpy(read_points(path)).float() for path in sys.argv[1:])
        return source, target, None
    from wsdesc.datasets.synthetic import room_pair

    pair = room_pair(seed=1)
    return torch.from_numpy(pair.source), torch.from_numpy(pair.target), pair.T_target_source


source, target, T_true = load()
model = WSDesc.from_pretrained("indoor-fast")

keypoints, descriptors = [], []
for cloud in (source, target):
    cloud = voxel_downsample(cloud, 0.025)  # (N, 3)
    keypoints.append(cloud[farthest_points(cloud, 800)])  # (K, 3)
    with torch.inference_mode():
        descriptors.append(model(cloud, keypoints[-1]))  # (K, 32)

pairs = match.mutual_matches(*descriptors)  # (M, 2)
found = align.ransac(keypoints[0][pairs[:, 0]], keypoints[1][pairs[:, 1]])
print(f"{len(pairs)} mutual matches, {int(found.inliers.sum())} of them agree on T_target_source =")
print(np.array2string(found.T_target_source.numpy(), precision=4, suppress_small=True))

if T_true is not None:
    R = found.T_target_source[:3, :3].numpy().T @ T_true[:3, :3]
    angle = np.degrees(np.arccos(np.clip((np.trace(R) - 1) / 2, -1, 1)))
    shift = np.linalg.norm(found.T_target_source[:3, 3].numpy() - T_true[:3, 3])
    print(f"off the true pose by {angle:.2f}° and {100 * shift:.1f} cm")
