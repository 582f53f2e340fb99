"""Worlds that implement `robolearn.core.Env`. Knows nothing of learning or ROS."""

import robolearn  # noqa: F401  (chooses the GL back end, before anything imports mujoco)
