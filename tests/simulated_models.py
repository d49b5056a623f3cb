"""Models of small files with simulated registrations: scans in a row, each overlapping its neighbours."""

import numpy as np
import torch
from scipy.spatial.transform import Rotation

from wsdesc import Reconstruction, write_points
from wsdesc.alignment.information import Information
from wsdesc.core.geometry import inverse, make_pose
from wsdesc.reconstruction.jobs import CandidatePose, DescribedScan, PairRegistration, PoseChecks, ScanSurvey
from wsdesc.reconstruction.pipeline import reconstruct
from wsdesc.reconstruction.places import Places

INFORMATION = Information(0.3 * np.eye(6), np.zeros(3), 1.0, 0.5, 2000)
RESOLUTION = 0.025
NO_RETRY = {"more_keypoints": 0, "resolution": RESOLUTION}


def number_of(path):
    return int(path.split("_")[-1].split(".")[0])


def pose(number):
    """Return T_world_scan of a scan: scans stand in a row, half a metre apart."""
    return make_pose(Rotation.random(random_state=number).as_matrix(), (0.5 * number, 0.1 * (number % 3), 0))


def survey_scan(file):
    return ScanSurvey(RESOLUTION, 3.0)


def describe_scan(job):
    return DescribedScan(tuple(map(tuple, np.eye(4).tolist())), 1.0)


def register_pair(job):
    """Return the true pose of neighbours, with noise; a wrong one for scans from 900 on."""
    i, j = (number_of(scan.file.path) for scan in (job.source, job.target))
    rng = np.random.default_rng(1000 * min(i, j) + max(i, j))
    noise = np.eye(4)
    noise[:3, 3] = rng.normal(0, 0.002, 3)
    if max(i, j) >= 900:
        noise[:3, 3] += rng.normal(0, 3, 3)
        i, j = i % 900, j % 900
    if abs(i - j) > 3:
        return PairRegistration(())
    T = inverse(pose(j)) @ pose(i) @ noise
    T[:3, 3] *= RESOLUTION / job.source.settings.resolution
    return PairRegistration((CandidatePose(T, 0.97, False, 0.6, 0.005, INFORMATION),))


def find_places(names, jobs, seed, saved):
    """Return signatures and keypoints that depend on the number of a scan."""
    numbers = [number_of(job.file.path) % 900 for job in jobs]
    angle = torch.tensor(numbers) / 1000
    line = torch.stack([torch.linspace(-1, 1, 50), torch.zeros(50), torch.zeros(50)], dim=1)
    keypoints = [torch.from_numpy(line.numpy() @ pose(number)[:3, :3]) for number in numbers]
    features = [(torch.ones(50, 2), points) for points in keypoints]
    places = Places(torch.stack([angle.cos(), angle.sin()], dim=1), features, torch.zeros(1, 2))
    places.signatures = places.aggregates
    places.score_pairs = lambda pairs: np.array([-abs(numbers[i] - numbers[j]) for i, j in pairs])
    return places


def check_poses(job):
    """Check nothing: no viewpoint is known."""
    count = len(job.poses)
    return PoseChecks((0,) * count, (0,) * count, (0.0,) * count, (1.0,) * count)


def simulate(monkeypatch):
    """Replace reading, describing, registering and checking; neighbours have similar signatures."""
    for task in (survey_scan, describe_scan, register_pair, check_poses):
        monkeypatch.setattr(f"wsdesc.reconstruction.runner.{task.__name__}", task)

    monkeypatch.setattr("wsdesc.reconstruction.assembly.find_places", find_places)


def write_scan(folder, number, name=None):
    """Write the scan of a number, and return its path."""
    path = folder / (name or f"scan_{number}.ply")
    write_points(path, np.random.default_rng(number).uniform(-1, 1, (60, 3)))
    return path


def make_model(files, out, **options):
    """Reconstruct and save a model, and load it."""
    reconstruct(files, out, **(NO_RETRY | options)).save(out)
    return Reconstruction.load(out)
