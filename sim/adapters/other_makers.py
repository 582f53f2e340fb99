"""Worlds of other makers in environments of their own: their far side is a file of `sim.bridge.far`."""

from __future__ import annotations

import json
import os

from robolearn.core import BadInput
from robolearn.core.machine import available_cpus
from sim.adapters.vector import AdapterVectorEnv
from sim.bridge.far import serve
from sim.bridge.pools import EnvFactory, WorkerPool
from sim.bridge.process import WorkerProcess
from sim.registry import FAMILIES, Family, WorldConfig


def make(config: WorldConfig, num_envs: int) -> AdapterVectorEnv:
    """`num_envs` worlds of a family that has an environment.

    Raises:
      BadInput: it is not installed, and no interpreter is named; what the world itself refuses.
    """
    family = config.family
    named = str(config.world_python or "")
    python = interpreter(family, config.task, named)
    if num_envs < 1:
        raise BadInput("number of worlds", got=num_envs, expected="at least 1")
    arguments = {"task": config.task, "cameras": list(config.cameras), "image_size": config.image_size}
    workers = config.threads or available_cpus()
    factory = EnvFactory(f"{family.far}:build", arguments, install_command(family, named))
    pool = WorkerPool(factory, num_envs, workers, config.task, python)
    return AdapterVectorEnv(pool, num_envs)


def interpreter(family: Family, task: str, named: str = "") -> str:
    """The interpreter of a family's worlds: the `named` one, or that of its environment."""
    environment = family.environment
    assert environment is not None
    if not named and not environment.installed:
        hint = f"Run: {environment.command}"
        raise BadInput(f"task {task}", got=f"no {environment.name} installed", expected="its environment", hint=hint)
    return named or str(environment.python)


def install_command(family: Family, named: str) -> str:
    """The command that brings the packages of a family's worlds into the `named` interpreter, or its environment."""
    environment = family.environment
    assert environment is not None
    if not named:
        return environment.command
    packages = " ".join(environment.packages)
    return f"{named} -m pip install {packages}. Or without --world-python: {environment.command}"


def task_names(name: str, named: str = "") -> list[str]:
    """The tasks of the family called `name`, as its package in the `named` interpreter or its environment has them."""
    family = FAMILIES[name]
    memory = os.memfd_create("names")
    process = WorkerProcess(name, interpreter(family, name, named), memory, range(1))
    try:
        work = EnvFactory(f"{family.far}:names", install=install_command(family, named))
        process.send(serve.LIST, 0, work.to_json().encode())
        return json.loads(process.receive().decode())
    finally:
        process.close()
        os.close(memory)
