"""Point clouds: files, cleaning, units of length, sampling and neighbour search."""
