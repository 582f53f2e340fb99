"""ROS 2 nodes: the only place that imports rclpy. Importing this package prepares the environment that rclpy needs.

Raises `BadInput` when there is no rclpy.
"""

from hardware.ros2.environment import prepare

prepare()
