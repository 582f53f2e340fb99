"""The real side: safety filter, ROS 2 nodes, teleoperators, cameras. Knows nothing of learning."""
