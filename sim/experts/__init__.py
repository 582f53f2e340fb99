"""Scripted experts: demonstrations of adjustable quality for the embedded tasks."""

from __future__ import annotations

from robolearn.core.errors import BadInput
from robolearn.core.specs import Interface
from sim.embedded.task import GoalTask
from sim.experts.lift import LiftScript
from sim.experts.lift_to import LiftToScript
from sim.experts.operator import Patience, ScriptedOperator
from sim.experts.peg_insert import PegInsertScript
from sim.experts.pick_place import PickPlaceScript
from sim.experts.waypoints import QUALITIES, Quality, Script, ScriptedExpert
from sim.tasks import TASKS

SCRIPTS: dict[str, type[Script]] = {
    "lift": LiftScript,
    "lift_to": LiftToScript,
    "pick_place": PickPlaceScript,
    "peg_insert": PegInsertScript,
    "peg_insert_tight": PegInsertScript,
}


def named_quality(name: str) -> Quality:
    """The quality called `name`."""
    if name not in QUALITIES:
        raise BadInput("quality", got=name, available=QUALITIES)
    return QUALITIES[name]


def make_expert(task: str, interface: Interface, num_envs: int, quality: Quality | str, seed: int) -> ScriptedExpert:
    """The demonstrator of an embedded task."""
    if isinstance(quality, str):
        quality = named_quality(quality)
    return ScriptedExpert(_script(task, interface), interface, num_envs, quality, seed)


HASTE = Patience(limit=3.0, against=2.0)  # a peg that is pressed askew for half a second cannot be saved any more
PATIENCE = {"peg_insert": HASTE, "peg_insert_tight": HASTE}


def make_operator(
    task: str, interface: Interface, num_envs: int, seed: int, patience: Patience | None = None
) -> ScriptedOperator:
    """The operator of an embedded task who watches a policy and intervenes; by default with the task's patience."""
    patience = PATIENCE.get(task) if patience is None else patience
    return ScriptedOperator(_script(task, interface), interface, num_envs, seed, patience)


def _script(task: str, interface: Interface) -> Script:
    if task not in SCRIPTS:
        hint = (
            "Other demonstrations are recorded from Python by EpisodeWriter: robolearn/examples/catch.py"
            if ":" in task
            else ""
        )
        raise BadInput("scripted expert for task", got=task, available=SCRIPTS, hint=hint)
    if isinstance(TASKS[task](), GoalTask) and "target" not in interface.observation:
        seen = interface.observation
        raise BadInput(f"scripted expert for task {task}", got="no 'target'", expected="the goal", available=seen)
    return SCRIPTS[task]()


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
