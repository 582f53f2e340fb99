"""From messages to a policy's observation, how fresh they are, and an independent monitor; without ROS."""
