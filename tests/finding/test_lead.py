"""Lead of a pose over the others, and poses that are equal up to the object's symmetries."""

import numpy as np

from object_scenes import bracket, pose, sampled
from wsdesc.cloud.clean import clean
from wsdesc.finding.candidates import similar_poses
from wsdesc.finding.lead import leads
from wsdesc.finding.prepare import prepare_object

WRONG = [-2.0, -2.5, -2.6, -2.7, -3.0]


def test_a_right_pose_leads_and_wrong_ones_do_not():
    lead = leads(np.array([4.0, *WRONG]), np.eye(6, dtype=bool))
    assert lead[0] == 6
    assert lead[1:].max() < 1


def test_all_instances_lead():
    lead = leads(np.array([4.0, 3.5, 3.0, *WRONG]), np.eye(8, dtype=bool))
    assert lead[:3].min() == 5
    assert lead[3:].max() < 1


def test_similar_poses_do_not_compete():
    similar = np.eye(8, dtype=bool)
    similar[:3, :3] = True
    np.testing.assert_allclose(leads(np.array([4.0, 3.9, 1.0, *WRONG]), similar)[:3], [6, 5.9, 3])


def test_few_rivals_give_no_lead():
    assert np.isnan(leads(np.array([4.0, 3.9, 3.8]), np.eye(3, dtype=bool))).all()


def test_a_turned_cylinder_is_similar_and_a_turned_bracket_is_not():
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 4000)
    cylinder = np.stack([0.03 * np.cos(angle), 0.03 * np.sin(angle), rng.uniform(-0.07, 0.07, 4000)], axis=1)
    for points, symmetric in ((cylinder, True), (sampled(bracket(), 0.0025), False)):
        cleaned = clean(points)
        obj, axes = prepare_object(cleaned, 0.0028), cleaned.T_scan_local[:3, :3]
        turned = pose(0, 0)
        turned[:3, :3] = axes.T @ pose(0, 0, yaw=2.0)[:3, :3] @ axes
        turned[:3, 3] = obj.centre - turned[:3, :3] @ obj.centre
        similar = similar_poses(obj, np.stack([np.eye(4), turned, pose(9.0, 0)]))
        assert similar[0, 1] == similar[1, 0] == symmetric
        assert not similar[:2, 2].any()
