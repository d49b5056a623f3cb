"""Correspondences to transformations: fits, solvers, verification on the clouds, refinement."""

from wsdesc.align.affine import AffineFit, fit_affine
from wsdesc.align.consensus import consensus
from wsdesc.align.hypotheses import Hypothesis, ransac_hypotheses
from wsdesc.align.ransac import RansacResult, ransac
from wsdesc.align.refine import Refined, refine
from wsdesc.align.rigid import fit_rigid
from wsdesc.align.surface import Surface
from wsdesc.align.verify import Agreement, agreement

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
