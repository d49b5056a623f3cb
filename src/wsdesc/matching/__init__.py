"""Matches between descriptors: mutual, one-sided and soft nearest neighbours, and their weights."""

from wsdesc.matching.mutual import mutual_matches, nearest, one_sided_matches
from wsdesc.matching.soft import SoftMatches, descriptor_distances, soft_nearest, soft_nearest_by
from wsdesc.matching.spectral import compatibility, principal_eigenvector, spectral_weights
from wsdesc.matching.weights import correspondence_weights

__all__ = [
    "SoftMatches",
    "compatibility",
    "correspondence_weights",
    "descriptor_distances",
    "mutual_matches",
    "nearest",
    "one_sided_matches",
    "principal_eigenvector",
    "soft_nearest",
    "soft_nearest_by",
    "spectral_weights",
]
