"""Adapters of foreign environments to `robolearn.core.Env`: any Gymnasium env, and robosuite."""

from typing import Any

from sim.adapters import gym_env, robosuite_env
from sim.adapters.gym_env import make_gym
from sim.adapters.robosuite_env import make_robosuite, raw_single
from sim.adapters.vector import AdapterVectorEnv
from sim.registry import WorldConfig

__all__ = ["AdapterVectorEnv", "make", "make_gym", "make_robosuite", "raw_single"]


def make(config: WorldConfig, num_envs: int) -> AdapterVectorEnv:
    """`num_envs` worlds of a task, for `sim.registry`."""
    options: dict[str, Any] = {"cameras": config.cameras, "image_size": config.image_size}
    if config.task.startswith("robosuite:"):
        return robosuite_env.make_robosuite(config.task, num_envs, workers=config.threads or None, **options)
    if config.world_python is not None:
        options["python"] = str(config.world_python)
    return gym_env.make_gym(config.task, num_envs, workers=config.threads or None, **options)
