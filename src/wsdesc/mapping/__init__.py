"""Maps: a large scanned place as tiles, descriptors and an index; and the pose of a scan in it."""
