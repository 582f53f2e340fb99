"""The real side: safety filter, ROS 2 nodes, teleoperators, cameras. Independent of learning."""
