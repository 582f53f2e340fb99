"""Tasks of the embedded world, one file each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from robolearn.core.plugins import with_plugins
from sim.embedded.task import Task
from sim.tasks.handover import Handover
from sim.tasks.lift import Lift
from sim.tasks.lift_to import LiftTo
from sim.tasks.lift_two import LiftTwo
from sim.tasks.peg_insert import PegInsert, peg_insert_tight
from sim.tasks.pick_place import PickPlace
from sim.tasks.ways_back import lift_back, pick_place_back

_SHIPPED: dict[str, Callable[..., Task]] = {
    "lift": Lift,
    "lift_to": LiftTo,
    "pick_place": PickPlace,
    "peg_insert": PegInsert,
    "peg_insert_tight": peg_insert_tight,
    "lift_two": LiftTwo,
    "handover": Handover,
    "lift_back": lift_back,
    "pick_place_back": pick_place_back,
}


def _makes_task(found: Any) -> bool:
    return callable(found) and isinstance(found(), Task)


TASKS = with_plugins("tasks", _SHIPPED, _makes_task, lambda found: found().name)
