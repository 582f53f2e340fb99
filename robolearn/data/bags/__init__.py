"""ROS 2 bags (rosbag2 folders and single .mcap or .db3 files) ↔ data sets, by a station's description of its topics."""

from robolearn.data.bags.read import read_bag
from robolearn.data.bags.recording import is_bag
from robolearn.data.bags.station import EPISODE_EVENTS, Channel, Station
from robolearn.data.bags.write import write_bag

__all__ = ["EPISODE_EVENTS", "Channel", "Station", "is_bag", "read_bag", "write_bag"]
