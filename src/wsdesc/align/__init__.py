"""Correspondences to transformations: affine, rigid, RANSAC."""

from wsdesc.align.affine import AffineFit, fit_affine
from wsdesc.align.ransac import RansacResult, ransac
from wsdesc.align.rigid import fit_rigid

__all__ = ["AffineFit", "RansacResult", "fit_affine", "fit_rigid", "ransac"]
