"""A station as it is found: what its topics carry, and what has to be fixed before an arm may move there."""

from hardware.station.check import check_station
from hardware.station.seen import Endpoint, Finding, JointSample, LensSample, PictureSample, SeenStation, SeenTopic

__all__ = [
    "Endpoint", "Finding", "JointSample", "LensSample", "PictureSample", "SeenStation", "SeenTopic", "check_station",
]  # fmt: skip
