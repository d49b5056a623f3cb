"""TUM and g2o files, read again by a plain reader of these formats."""

import numpy as np
from scipy.spatial.transform import Rotation

from reconstruction_sites import make_site
from wsdesc.core.geometry import inverse, make_pose
from wsdesc.reconstruction.edge_result import EdgeResult
from wsdesc.reconstruction.georeference import georeference
from wsdesc.reconstruction.known import Known
from wsdesc.reconstruction.result import Reconstruction
from wsdesc.reconstruction.trajectories import g2o_text, tum_text


def make_result(metre):
    """Make the result of a simulated site whose unit is not the metre."""
    names, _, T_scan_local, placement = make_site(np.random.default_rng(0), count=6, metre=metre)
    geo = georeference(names, placement, T_scan_local, 0.025 * metre, Known())
    edges = []
    for pair, information in zip(geo.placement.edges, geo.information, strict=True):
        T = pair.edge.T_target_source.copy()
        T[:3, 3] *= metre
        T = T_scan_local[pair.edge.target] @ T @ inverse(T_scan_local[pair.edge.source])
        ends = names[pair.edge.source], names[pair.edge.target]
        edges.append(EdgeResult(*ends, T, 0.9, 0.5, 0, 2000, None, pair.deviation, 0.01, information))
    poses = {name: geo.T_world_scan[k] for k, name in enumerate(names)}
    return Reconstruction(poses, [names], {}, edges, 0.025 * metre, {name: name for name in names})


def as_pose(values):
    return make_pose(Rotation.from_quat(values[3:7]).as_matrix(), values[:3])


def test_g2o_file_has_the_poses_and_the_errors_of_the_edges():
    """The squared error of an edge, as g2o defines it, is that of the pose graph."""
    for metre in (1.0, 1000.0):
        result = make_result(metre)
        vertices, errors, fixed = {}, [], []
        for line in g2o_text(result).splitlines():
            kind, *words = line.split()
            if kind == "VERTEX_SE3:QUAT":
                vertices[int(words[0])] = as_pose(np.array(words[1:], float))
            elif kind == "FIX":
                fixed.append(int(words[0]))
            elif kind == "EDGE_SE3:QUAT":
                i, j = map(int, words[:2])
                values = np.array(words[2:], float)
                information = np.zeros((6, 6))
                information[np.triu_indices(6)] = values[7:]
                information += np.triu(information, 1).T
                error = inverse(as_pose(values[:7])) @ inverse(vertices[i]) @ vertices[j]
                e = np.concatenate([error[:3, 3], Rotation.from_matrix(error[:3, :3]).as_quat()[:3]])
                errors.append(e @ information @ e)
        assert fixed == [0]
        poses = list(result.T_world_scan.values())
        np.testing.assert_allclose(np.stack(list(vertices.values())), poses, atol=1e-9)
        expected = np.array([edge.deviation for edge in result.edges]) ** 2
        np.testing.assert_allclose(errors, expected, rtol=0.02, atol=1e-4)
        assert max(errors) > 0.1


def test_tum_file_keeps_map_coordinates():
    result = make_result(1.0)
    T = result.T_world_scan["scan_03.laz"]
    T[:3, 3] = [448123.256789, 5411987.512345, 312.000123]
    rows = np.array([line.split() for line in tum_text(result).splitlines() if line[0] != "#"], float)
    np.testing.assert_array_equal(rows[:, 0], range(6))
    np.testing.assert_allclose(rows[3, 1:4], T[:3, 3], rtol=0, atol=1e-7)
