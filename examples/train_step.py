"""Train a small descriptor for a few steps on one pair of overlapping scans, without ground truth.

    python examples/train_step.py [steps]

The rigidity loss is zero if the affine map that the matches define is a rigid transformation.
`wsdesc.train` does all of this for folders of scans.
"""

import sys

import torch

from wsdesc import RigidityLoss, WSDesc
from wsdesc.cloud.sampling import farthest_points
from wsdesc.datasets.synthetic import room_pair

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 3
pair = room_pair(seed=0)
P, Q = torch.from_numpy(pair.source), torch.from_numpy(pair.target)  # (N, 3), (M, 3)

torch.manual_seed(0)
generator = torch.Generator().manual_seed(0)
model = WSDesc(width=0.25)  # the paper's network has width 1
rigidity = RigidityLoss()
optimizers = [  # the support has its own optimizer, with weight decay
    torch.optim.Adam(model.network.parameters(), lr=1e-3),
    torch.optim.Adam(model.support.parameters(), lr=1e-3, weight_decay=0.002),
]

for step in range(1, steps + 1):
    p = P[farthest_points(P, 128, generator)]  # (K, 3); the paper uses 512 keypoints
    q = Q[farthest_points(Q, 128, generator)]
    terms = rigidity(p, model(P, p), q, model(Q, q))
    for optimizer in optimizers:
        optimizer.zero_grad()
    terms.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    for optimizer in optimizers:
        optimizer.step()
    model.support.keep_in_range()
    loss, orthogonality, cycle = (term.item() for term in terms[:3])
    print(
        f"step {step}: loss {loss:.4f} = orthogonality {orthogonality:.4f} + cycle {cycle:.4f}, "
        f"support {model.support.size.item():.4f} m"
    )
