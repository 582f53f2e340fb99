"""ROS message types, in full, that a station's topics may have; which of them by role."""

from __future__ import annotations

FLOATS = "std_msgs/msg/Float64MultiArray"
TRAJECTORY = "trajectory_msgs/msg/JointTrajectory"
POSE = "geometry_msgs/msg/PoseStamped"
JOINT_STATE = "sensor_msgs/msg/JointState"
IMAGE = "sensor_msgs/msg/Image"
WRENCH = "geometry_msgs/msg/WrenchStamped"
COMPRESSED = "sensor_msgs/msg/CompressedImage"
STRING = "std_msgs/msg/String"
FRANKA_GRASP = "franka_msgs/action/Grasp"
GRIPPER_COMMAND = "control_msgs/action/GripperCommand"

TYPES: dict[str, tuple[str, ...]] = {
    "joint_states": (JOINT_STATE,),
    "command": (FLOATS, TRAJECTORY, POSE),
    "gripper": (FLOATS, TRAJECTORY),
    "gripper.action": (FRANKA_GRASP, GRIPPER_COMMAND),
    "objects": (JOINT_STATE,),
    "contact": (JOINT_STATE, WRENCH),
    "cameras": (IMAGE, COMPRESSED),
}
