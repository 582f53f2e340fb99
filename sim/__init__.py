"""Worlds that implement `robolearn.core.Env`. Knows nothing of learning or ROS."""

import robolearn  # noqa: F401  (chooses the GL back end, before anything imports mujoco)
from sim.registry import WorldConfig, make_env

__all__ = ["WorldConfig", "make_env"]
