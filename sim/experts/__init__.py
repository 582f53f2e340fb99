"""Scripted experts: demonstrations of adjustable quality for the embedded tasks."""

from __future__ import annotations

from robolearn.core.errors import BadInput
from robolearn.core.specs import Interface
from sim.experts.lift import LiftScript
from sim.experts.peg_insert import PegInsertScript
from sim.experts.pick_place import PickPlaceScript
from sim.experts.waypoints import QUALITIES, Quality, Script, ScriptedExpert

SCRIPTS: dict[str, type[Script]] = {
    "lift": LiftScript,
    "pick_place": PickPlaceScript,
    "peg_insert": PegInsertScript,
}


def named_quality(name: str) -> Quality:
    """The quality called `name`."""
    if name not in QUALITIES:
        raise BadInput("quality", got=name, available=QUALITIES)
    return QUALITIES[name]


def make_expert(task: str, interface: Interface, num_envs: int, quality: Quality | str, seed: int) -> ScriptedExpert:
    """The demonstrator of an embedded task."""
    if task not in SCRIPTS:
        raise BadInput("scripted expert for task", got=task, available=SCRIPTS)
    if isinstance(quality, str):
        quality = named_quality(quality)
    return ScriptedExpert(SCRIPTS[task](), interface, num_envs, quality, seed)


__all__ = ["QUALITIES", "Quality", "ScriptedExpert", "make_expert", "named_quality"]
