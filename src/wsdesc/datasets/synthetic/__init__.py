"""Synthetic rooms: an endless, seeded supply of indoor fragments with known poses."""

from wsdesc.datasets.synthetic.fragments import Fragment, RoomPair, make_fragments, overlap, room_pair, scan
from wsdesc.datasets.synthetic.room import Room

__all__ = ["Fragment", "Room", "RoomPair", "make_fragments", "overlap", "room_pair", "scan"]
