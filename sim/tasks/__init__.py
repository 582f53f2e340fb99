"""Tasks of the embedded world, one file each."""

from __future__ import annotations

from collections.abc import Callable

from sim.embedded.task import Task
from sim.tasks.lift import Lift

TASKS: dict[str, Callable[[], Task]] = {"lift": Lift}
