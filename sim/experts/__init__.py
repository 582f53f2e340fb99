"""Scripted experts: demonstrations of adjustable quality for the embedded tasks."""

from __future__ import annotations

from dataclasses import replace

from robolearn.core import BadInput, Interface
from sim.embedded.task import Task
from sim.experts.failures import FailingScript, FailingScriptFacts
from sim.experts.operator import Patience, ScriptedOperator
from sim.experts.waypoints import EACH, QUALITIES, Quality, ScriptedExpert


def named_quality(name: str) -> Quality:
    """The quality called `name`."""
    if name not in QUALITIES:
        raise BadInput("quality", got=name, available=QUALITIES)
    return QUALITIES[name]


def make_expert(task: str, interface: Interface, num_envs: int, quality: Quality | str, seed: int) -> ScriptedExpert:
    """The demonstrator of an embedded task."""
    every = quality == EACH
    quality = named_quality(quality) if isinstance(quality, str) else quality
    script = _task(task, interface).script()
    if quality.failures:
        if every and isinstance(script, FailingScriptFacts):
            quality = replace(quality, failures=script.failures.kinds)
        script = FailingScript(script, quality.failures)
    return ScriptedExpert(script, interface, num_envs, quality, seed)


def make_operator(
    task: str, interface: Interface, num_envs: int, seed: int, patience: Patience | None = None
) -> ScriptedOperator:
    """The operator of an embedded task who watches a policy and intervenes; by default with the task's patience."""
    own = _task(task, interface)
    return ScriptedOperator(own.script(), interface, num_envs, seed, own.patience if patience is None else patience)


def _task(name: str, interface: Interface) -> Task:
    """The embedded task `name`, refused where `interface` does not offer what its script needs."""
    from sim.tasks import TASKS  # late: tasks bring scripts, which stand on `waypoints`

    if name not in TASKS:
        foreign = ":" in name
        hint = "Other demonstrations are recorded from Python by EpisodeWriter: robolearn/examples/catch.py"
        raise BadInput("scripted expert for task", got=name, available=TASKS, hint=hint if foreign else "")
    task = TASKS[name]()
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
    "make_expert",
    "make_operator",
    "named_quality",
]
