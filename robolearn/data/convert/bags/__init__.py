"""ROS 2 bags (rosbag2 folders and single .mcap or .db3 files) ↔ data sets, by a robot contract."""

from robolearn.data.convert.bags.read import read_bag
from robolearn.data.convert.bags.recording import EPISODE_EVENTS, is_bag
from robolearn.data.convert.bags.write import write_bag

__all__ = ["EPISODE_EVENTS", "is_bag", "read_bag", "write_bag"]
