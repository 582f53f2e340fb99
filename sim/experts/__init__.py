"""Scripted experts: demonstrations of adjustable quality for the embedded tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, Env, Interface, Observation, look_up
from robolearn.core.specs import DISTRACTOR
from sim.embedded.task import Task
from sim.experts.failures import FailingScript, FailingScriptFacts
from sim.experts.operator import Patience, ScriptedOperator
from sim.experts.waypoints import EACH, QUALITIES, PairExpert, PairScript, Quality, ScriptedExpert
from sim.registry import own_task

EXPERT = "expert"  # the quality without faults


def named_quality(name: str) -> Quality:
    """The quality called `name`."""
    return look_up("quality", name, QUALITIES)


def demonstrator(task: str, env: Env, quality: str, seed: int) -> ScriptedExpert | WorldExpert:
    """The demonstrator of `task` in the worlds `env`: a script of ours, or the worlds' own expert.

    Raises:
      BadInput: it has none, or not of this quality.
    """
    if not getattr(env, "demonstrates", False):
        return make_expert(task, env.interface, env.num_envs, quality, seed)
    if quality != EXPERT:
        raise BadInput(f"quality of {task}, whose own expert demonstrates", got=quality, available=(EXPERT,))
    return WorldExpert(env)


class WorldExpert:
    """The expert that a world of another maker brings, as a teleoperator; it aims by the world's own state."""

    def __init__(self, env: Env) -> None:
        self._env: Any = env

    def reset(self, worlds: NDArray[np.bool_]) -> None:
        """Nothing: it begins with the world's episode."""

    def command(self, observation: Observation) -> NDArray[np.float32]:
        """(N, Da) actions in the present states."""
        return self._env.demonstrate()

    def failure(self, world: int) -> str:
        """No kind: it does not fail on purpose."""
        return ""


def make_expert(task: str, interface: Interface, num_envs: int, quality: Quality | str, seed: int) -> ScriptedExpert:
    """The demonstrator of an embedded task."""
    every = quality == EACH
    quality = named_quality(quality) if isinstance(quality, str) else quality
    script = _task(task, interface).script()
    if isinstance(script, PairScript):
        if quality.failures:
            got = ", ".join(quality.failures)
            raise BadInput("quality", got=got, expected="another one: scripts of two arms fail by chance alone")
        return PairExpert(script, interface, num_envs, quality, seed)
    if quality.failures:
        there = DISTRACTOR in interface.observation
        if every and isinstance(script, FailingScriptFacts):
            facts = script.failures
            quality = replace(quality, failures=(*facts.kinds, *((DISTRACTOR,) if there and facts.thing else ())))
        elif DISTRACTOR in quality.failures and not there:
            raise BadInput(
                "quality distractor", got="a world without one", expected="--distractor, in lift or pick_place"
            )
        script = FailingScript(script, quality.failures)
    return ScriptedExpert(script, interface, num_envs, quality, seed)


def make_operator(
    task: str, interface: Interface, num_envs: int, seed: int, patience: Patience | None = None
) -> ScriptedOperator:
    """The operator of an embedded task who watches a policy and intervenes; by default with the task's patience."""
    own = _task(task, interface)
    script = own.script()
    if isinstance(script, PairScript):
        raise BadInput("scripted operator for task", got=task, expected="a task of one arm")
    return ScriptedOperator(script, interface, num_envs, seed, own.patience if patience is None else patience)


def _task(name: str, interface: Interface) -> Task:
    """The embedded task `name`, refused where `interface` does not offer what its script needs."""
    from sim.tasks import TASKS  # late: tasks bring scripts, which stand on `waypoints`

    own = own_task(name)
    if own not in TASKS:
        foreign = ":" in name
        hint = "Other demonstrations are recorded from Python by EpisodeWriter: robolearn/examples/catch.py"
        raise BadInput("scripted expert for task", got=name, available=TASKS, hint=hint if foreign else "")
    task = TASKS[own]()
    if task.target_names and "target" not in interface.observation:
        seen = interface.observation
        raise BadInput(f"scripted expert for task {name}", got="no 'target'", expected="the goal", available=seen)
    return task


__all__ = [
    "QUALITIES",
    "Patience",
    "Quality",
    "ScriptedExpert",
    "ScriptedOperator",
    "WorldExpert",
    "demonstrator",
    "make_expert",
    "make_operator",
    "named_quality",
]
