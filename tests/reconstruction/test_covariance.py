"""Covariance of poses from the Hessian of a pose graph."""

import numpy as np
import pytest
from scipy.sparse import csc_array, diags_array, eye_array, kron
from scipy.sparse.linalg import spsolve

from reconstruction_sites import make_site
from wsdesc.reconstruction.covariance import diagonal_blocks_of_inverse
from wsdesc.reconstruction.least_squares import Problem
from wsdesc.reconstruction.pose_graph import edge_factor


def random_hessian(rng, count, links):
    """Make a sparse positive definite matrix of 6 × 6 blocks with random pairs of scans."""
    H = np.zeros((6 * count, 6 * count))
    pairs = [(i, i + 1) for i in range(count - 1)]
    pairs += [tuple(rng.choice(count, 2, replace=False)) for _ in range(links if count > 1 else 0)]
    for i, j in pairs:
        J = np.zeros((6, 6 * count))
        J[:, 6 * i : 6 * i + 6], J[:, 6 * j : 6 * j + 6] = rng.normal(size=(2, 6, 6)) * 10
        H += J.T @ J
    H[:6, :6] += np.eye(6)
    return H


@pytest.mark.parametrize(("count", "links"), [(1, 0), (2, 1), (5, 0), (12, 20), (40, 60)])
def test_blocks_are_those_of_the_dense_inverse(count, links):
    H = random_hessian(np.random.default_rng(count), count, links)
    dense = np.linalg.inv(H)
    expected = np.stack([dense[k : k + 6, k : k + 6] for k in range(0, 6 * count, 6)])
    blocks = diagonal_blocks_of_inverse(csc_array(H))
    np.testing.assert_allclose(blocks, expected, rtol=1e-5, atol=1e-8 * np.abs(expected).max())


def test_a_long_chain_does_not_amplify_rounding():
    names, _, _, placement = make_site(np.random.default_rng(0), count=400, noise=0.0005)
    problem = Problem([edge_factor(pair.edge) for pair in placement.edges], np.array([0]), len(names))
    H = problem.normal_equations(placement.graph.T_world_scan, problem.limit)[1]
    column = np.zeros(H.shape[0])
    column[-6] = 1.0
    blocks = diagonal_blocks_of_inverse(H)
    assert blocks[-1, 0, 0] == pytest.approx(spsolve(H, column)[-6], rel=1e-3)
    variances = np.einsum("nii->ni", blocks)
    assert (variances > 0).all()


def test_no_poses_have_no_covariances():
    assert diagonal_blocks_of_inverse(csc_array((0, 0))).shape == (0, 6, 6)


def test_a_singular_matrix_is_an_error():
    with pytest.raises(np.linalg.LinAlgError):
        diagonal_blocks_of_inverse(csc_array(np.zeros((12, 12))))


def test_a_grid_of_two_thousand_scans():
    side = 45
    path = diags_array([-np.ones(side - 1), np.full(side, 2.0), -np.ones(side - 1)], offsets=[-1, 0, 1])
    laplace = kron(path, eye_array(side)) + kron(eye_array(side), path)
    H = csc_array(kron(csc_array(laplace), np.eye(6)))
    blocks = diagonal_blocks_of_inverse(H)
    column = np.zeros(6 * side**2)
    column[6 * 1000] = 1.0
    assert blocks[1000, 0, 0] == pytest.approx(spsolve(H, column)[6 * 1000])
