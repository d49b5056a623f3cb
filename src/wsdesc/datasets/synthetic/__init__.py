"""Synthetic scans with known poses: rooms, floors, and sites indoors and outdoors seen by many sensors."""

from wsdesc.datasets.synthetic.room import Room
from wsdesc.datasets.synthetic.scanning import (
    RoomPair,
    SyntheticScan,
    overlap,
    room_pair,
    room_scans,
    scan_room,
)
from wsdesc.datasets.synthetic.sensors import SENSORS
from wsdesc.datasets.synthetic.sites import SITES
from wsdesc.datasets.synthetic.survey import site_scans

__all__ = [
    "SENSORS",
    "SITES",
    "Room",
    "RoomPair",
    "SyntheticScan",
    "overlap",
    "room_pair",
    "room_scans",
    "scan_room",
    "site_scans",
]
