"""Synthetic rooms: an endless, seeded supply of indoor fragments with known poses."""

from wsdesc.datasets.synthetic.room import Room
from wsdesc.datasets.synthetic.scanning import RoomPair, SyntheticScan, overlap, room_pair, room_scans, scan

__all__ = ["Room", "RoomPair", "SyntheticScan", "overlap", "room_pair", "room_scans", "scan"]
