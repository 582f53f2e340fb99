"""Any Gymnasium env as a task: ``gym:<module>:<Id-v0>``.

`<module>` is imported, so that the registration in it runs; it may lie in the current working directory. The env
must have continuous actions with finite bounds (rescaled from [-1, 1]) and observations that `FeatureMap` can name.

Success is ``info["success"]`` or ``info["is_success"]``. An env with neither reports no success: it is judged by its
return. The control rate is ``metadata["render_fps"]``, else 1/``dt`` of the env, else 20 Hz. A failure that terminates
keeps the env's own reward. Episodes have no limit where neither the registration nor the env names one. An env is
continuing where its attribute ``continuing`` says so, or where it is one of Gymnasium's that never terminate.
"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import Any

from robolearn.core import BadInput, RobolearnError
from robolearn.core.machine import available_cpus
from sim.adapters.vector import AdapterVectorEnv
from sim.bridge.far.errors import describe
from sim.bridge.far.facts import AdapterEnv
from sim.bridge.far.gym_env import build, refused
from sim.bridge.far.world import probe
from sim.bridge.pools import EnvFactory, LocalPool, WorkerPool

LIGHT_STEP_S = 100e-6
"""[s] A step that costs less than this is cheaper than the message that would ask a worker for it."""


def make_gym(
    task: str, num_envs: int, *, workers: int | None = None, max_episode_steps: int | None = None,
    kwargs: dict[str, Any] | None = None, cameras: tuple[str, ...] = (), image_size: int = 84, python: str = "",
) -> AdapterVectorEnv:  # fmt: skip
    """N worlds of a registered Gymnasium env.

    Args:
      task: ``"gym:<module>:<Id-v0>"``.
      workers: processes; 0 keeps all worlds in this one; None measures a few steps and uses one per core for an env
        that is heavier than a message. The choice changes no result.
      max_episode_steps: overrides the env's own limit.
      kwargs: for the env's constructor.
      cameras: ``"render"`` is what the env draws, cut to a square in its middle and resized to an edge of `image_size`
        [px], as ``images.render``; pictures that the env observes by itself may be named, too.
      python: an interpreter of its own for the env, with numpy and gymnasium; the worlds are then in processes.

    Raises:
      BadInput: unknown module or id, discrete or unbounded actions, observations without a name, an env that does
        not draw.
    """
    if num_envs < 1:
        raise BadInput("number of worlds", got=num_envs, expected="at least 1")
    arguments: dict[str, Any] = {"task": task, "max_episode_steps": max_episode_steps, "kwargs": kwargs or {}}
    arguments |= {"cameras": list(cameras), "image_size": image_size} if cameras else {}
    factory = EnvFactory(".gym_env:build", arguments)
    if python:
        return AdapterVectorEnv(WorkerPool(factory, num_envs, workers or available_cpus(), task, python), num_envs)
    with redirect_stdout(sys.stderr):  # what a world prints is no result of ours
        first = build(**arguments)  # here, so that bad input is found without a process
        reports_success, step_s = _probed(first, 10 if workers is None and num_envs > 1 else 1)
    if workers is None:
        workers = available_cpus() if num_envs > 1 and step_s > LIGHT_STEP_S else 0
    if workers > 0:
        LocalPool([first]).close()
        pool = WorkerPool(factory, num_envs, workers, task)
    else:
        with redirect_stdout(sys.stderr):
            others = [factory.build() for _ in range(num_envs - 1)]
        pool = LocalPool([first, *others])
    return AdapterVectorEnv(pool, num_envs, reports_success=reports_success)


def _probed(env: AdapterEnv, steps: int) -> tuple[bool, float]:
    """The result of `probe`. Raises `BadInput`: the env exits; `RobolearnError`: it fails. It is closed then."""
    task = env.facts.task
    try:
        return probe(env, steps)
    except (Exception, SystemExit) as error:  # the user's reset and step may raise anything
        LocalPool([env]).close()
        if isinstance(error, SystemExit):
            raise refused(task, error, "in its first steps") from error
        raise RobolearnError(f"world 0 of {task} failed: {describe(error)}") from error
