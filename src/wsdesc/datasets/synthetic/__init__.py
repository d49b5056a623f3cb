"""Synthetic scans with known poses: rooms seen by a depth camera, and floors seen by a laser scanner."""

from wsdesc.datasets.synthetic.room import Room
from wsdesc.datasets.synthetic.scanning import (
    RoomPair,
    SyntheticScan,
    overlap,
    room_pair,
    room_scans,
    scan_room,
)

__all__ = ["Room", "RoomPair", "SyntheticScan", "overlap", "room_pair", "room_scans", "scan_room"]
