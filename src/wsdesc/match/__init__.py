"""Descriptors to weighted correspondences: hard and mutual, soft, spectral."""

from wsdesc.match.hard import either, mutual, nearest
from wsdesc.match.soft import SoftMatches, descriptor_distances, soft_nearest, soft_nearest_by
from wsdesc.match.spectral import compatibility, principal_eigenvector, spectral_weights
from wsdesc.match.weights import correspondence_weights

__all__ = [
    "SoftMatches",
    "compatibility",
    "correspondence_weights",
    "descriptor_distances",
    "either",
    "mutual",
    "nearest",
    "principal_eigenvector",
    "soft_nearest",
    "soft_nearest_by",
    "spectral_weights",
]
