"""A command over a suite of tasks, such as metaworld:MT10: each task in turn and the mean over them, or all at once in
worlds that tell a policy of words apart what to do."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from robolearn.core import BadInput, Interface
from robolearn.runs.command import PLAIN, print_table, rate_text
from sim.registry import WorldConfig, tasks_of

if TYPE_CHECKING:
    from robolearn.eval import Success

log = logging.getLogger(__name__)
PLACES = ("out", "record")  # flags whose folder has a folder of each task


Judge = Callable[[Mapping[str, Any]], "Success | None"]
"""The success in a result of one task."""


def build_worlds(world: WorldConfig, interface: Interface, count: int) -> Any:
    """`count` worlds for a policy with this interface. One of words is told each world's task; a suite is all its
    tasks at once, each in as many worlds. Raises `BadInput`: fewer worlds than tasks, or unknown words."""
    from policies.wrappers.prompted import is_prompted, trained_words

    if not is_prompted(interface):
        return world.build(count)
    from robolearn.rollout.told_worlds import ToldWorlds

    tasks = tasks_of(world.task)
    if count < len(tasks):
        raise BadInput("worlds", got=count, expected=f"at least {len(tasks)}, one of each task of {world.task}")
    with ExitStack() as stack:
        parts = []
        for i, task in enumerate(tasks):
            own = count // len(tasks) + (i < count % len(tasks))
            parts.append(stack.enter_context(closing(replace(world, task=task).build(own))))
        told = ToldWorlds(parts, trained_words(interface, f"policy in {world.task}"), world.task)
        stack.pop_all()
    return told


def run_suite(command: Any, success: Judge) -> dict[str, Any] | None:
    """Results of `command` for each task of a suite; None where its task is none.

    Args:
      command: has ``world``; what it writes goes to a folder of each task below its own.

    Returns:
      ``{"suite", "tasks": [results], "success"}``, the latter the mean over the tasks; None where one has none.
    """
    tasks = tasks_of(command.world.task)
    if len(tasks) == 1:
        return None
    results = []
    for i, task in enumerate(tasks):
        log.info("%s, %d of %d", task, i + 1, len(tasks))
        name = task.partition(":")[2].replace("/", "-")
        places = {key: path / name for key in PLACES if (path := getattr(command, key, None)) is not None}
        again = {"resume": command.resume and places["out"].exists()} if hasattr(command, "resume") else {}
        one = replace(command, world=replace(command.world, task=task), **places, **again)
        try:
            results.append({"task": task, **one.run()})
        except BaseException:  # the results of an evaluation are nowhere else
            for done, shown in _rows(results, success):
                log.warning("finished before: %s, success %s", done, shown)
            raise
    return {"suite": command.world.task, "tasks": results, "success": mean_success(results, success)}


def mean_success(results: Sequence[Mapping[str, Any]], success: Judge) -> dict[str, Any] | None:
    """The mean over tasks as JSON."""
    from robolearn.eval import over_tasks

    found = [success(result) for result in results]
    known = [one for one in found if one is not None]
    return over_tasks(known).to_json() if len(known) == len(found) else None


def show_suite(result: Mapping[str, Any], console: Any, success: Judge) -> None:
    """A line of each task, and one of the mean."""
    rows = [*_rows(result["tasks"], success), ("mean over tasks", _text(result["success"]))]
    print_table(console, ("task", "success"), rows, **PLAIN)


def _rows(results: Sequence[Mapping[str, Any]], success: Judge) -> list[tuple[str, str]]:
    """Name and success of each task, in words."""
    return [(one["task"], _text(found and found.to_json())) for one in results for found in [success(one)]]


def _text(rate: Mapping[str, Any] | None) -> str:
    return rate_text(rate) if rate else "–"
