"""Worlds of others behind `robolearn.core.Env`: any Gymnasium env, and robosuite."""

from sim.outside.gym_env import make_gym
from sim.outside.robosuite_env import make_robosuite, raw_single
from sim.outside.vector import OutsideVectorEnv

__all__ = ["OutsideVectorEnv", "make_gym", "make_robosuite", "raw_single"]
