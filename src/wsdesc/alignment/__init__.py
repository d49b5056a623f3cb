"""Correspondences and surfaces to poses: fits, solvers, verification, refinement, confidence."""

from wsdesc.alignment.affine import AffineFit, fit_affine
from wsdesc.alignment.consensus import consensus
from wsdesc.alignment.covariance import PoseCovariance, estimate_covariance
from wsdesc.alignment.hypotheses import Hypothesis, ransac_hypotheses
from wsdesc.alignment.information import Degeneracy, Information, compute_information, find_degeneracy
from wsdesc.alignment.prior import Near, PosePrior, Upright
from wsdesc.alignment.ransac import RansacResult, ransac
from wsdesc.alignment.refine import RefinedPose, refine
from wsdesc.alignment.rigid import fit_rigid
from wsdesc.alignment.surface import Surface, make_surface
from wsdesc.alignment.verify import PoseScore, verify

__all__ = [
    "AffineFit",
    "Degeneracy",
    "Hypothesis",
    "Information",
    "Near",
    "PoseCovariance",
    "PosePrior",
    "PoseScore",
    "RansacResult",
    "RefinedPose",
    "Surface",
    "Upright",
    "compute_information",
    "consensus",
    "estimate_covariance",
    "find_degeneracy",
    "fit_affine",
    "fit_rigid",
    "make_surface",
    "ransac",
    "ransac_hypotheses",
    "refine",
    "verify",
]
