"""Worlds that implement `robolearn.core.Env`. Knows nothing of learning or ROS."""
