"""Correspondences to transformations: fits, solvers, verification on the clouds, refinement."""

from wsdesc.alignment.affine import AffineFit, fit_affine
from wsdesc.alignment.consensus import consensus
from wsdesc.alignment.hypotheses import Hypothesis, ransac_hypotheses
from wsdesc.alignment.ransac import RansacResult, ransac
from wsdesc.alignment.refine import Refined, refine
from wsdesc.alignment.rigid import fit_rigid
from wsdesc.alignment.surface import Surface
from wsdesc.alignment.verify import Agreement, agreement

__all__ = [
    "AffineFit",
    "Agreement",
    "Hypothesis",
    "RansacResult",
    "Refined",
    "Surface",
    "agreement",
    "consensus",
    "fit_affine",
    "fit_rigid",
    "ransac",
    "ransac_hypotheses",
    "refine",
]
