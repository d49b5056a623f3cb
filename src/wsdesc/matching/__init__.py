"""Descriptors to weighted correspondences: hard and mutual, soft, spectral."""

from wsdesc.matching.mutual import mutual, nearest, one_sided_matches
from wsdesc.matching.soft import SoftMatches, descriptor_distances, soft_nearest, soft_nearest_by
from wsdesc.matching.spectral import compatibility, principal_eigenvector, spectral_weights
from wsdesc.matching.weights import correspondence_weights

__all__ = [
    "SoftMatches",
    "compatibility",
    "correspondence_weights",
    "descriptor_distances",
    "mutual",
    "nearest",
    "one_sided_matches",
    "principal_eigenvector",
    "soft_nearest",
    "soft_nearest_by",
    "spectral_weights",
]
