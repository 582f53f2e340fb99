"""Adapters of foreign environments to `robolearn.core.Env`: any Gymnasium env, and robosuite."""

from sim.adapters.gym_env import make_gym
from sim.adapters.robosuite_env import make_robosuite, raw_single
from sim.adapters.vector import AdapterVectorEnv

__all__ = ["AdapterVectorEnv", "make_gym", "make_robosuite", "raw_single"]
