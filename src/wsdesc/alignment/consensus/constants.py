"""Constants of the consensus solver that both backends share."""

# In thresholds: shorter edges do not determine a rotation; members of a clique are this far apart.
MIN_EDGE = 4.0
STARTS = 8  # cliques grown around a match
DECISIVE_SIZE = 24  # a clique of this size needs no other start


def refitted_poses(hypotheses: int) -> int:
    """Return the number of poses that are refitted: more than requested, as refitting changes their order."""
    return min(4 * hypotheses, 36 + hypotheses)
