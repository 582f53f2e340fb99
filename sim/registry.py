"""Task names → worlds: ``lift`` is embedded, ``robosuite:Lift`` and ``gym:module:Id-v0`` go through adapters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from robolearn.core.errors import BadInput
from robolearn.core.protocols import Env
from sim.shaping import SHAPING_GAMMA

ROBOT = "panda"  # the arm where none is named


def make_env(
    task: str,
    num_envs: int,
    *,
    robot: str = ROBOT,
    cameras: tuple[str, ...] = (),
    image_size: int = 84,
    reward: str = "sparse",
    shaping_gamma: float = SHAPING_GAMMA,
    action_kind: str = "",
    start_range: float = 1.0,
    looks: str = "none",
    station: str = "",
    threads: int = 0,
) -> Env:
    """Worlds for a task name.

    Args:
      task: ``lift``, ``pick_place``, ``peg_insert``; ``robosuite:Lift`` …; ``gym:module:Id-v0``.
      num_envs: number of worlds N.
      robot: the arm (embedded tasks), one of `robot_names`.
      cameras: cameras to observe, square, with an edge of `image_size` [px]: ``front``, ``side`` and ``wrist`` of the
        embedded tasks, robosuite's own, or ``render``, what a Gymnasium env draws.
      reward: ``"sparse"`` or ``"dense"`` (embedded tasks), see `sim.shaping`.
      shaping_gamma: γ of the dense reward's shaping, a control step: γ_c^(1/Ta) for a learner that discounts by γ_c a
        chunk of Ta steps.
      action_kind: ``"tcp_delta"`` or ``"joint_position"`` (embedded tasks); empty: the arm's own.
      looks: ``"none"``, ``"mild"`` or ``"wild"``: how much colours, light, cameras and the like differ from episode to
        episode (embedded tasks).
      station: a robot contract, by name or as a file, whose cameras stand and see as it says (embedded tasks).
      start_range: share of each range of starts to draw from, about its centre (embedded tasks).
      threads: threads of the embedded world, 0 for every CPU; worker processes elsewhere, 0 for as many as pay.

    Raises:
      BadInput: an unknown task, or an option that the task does not have.
    """
    family = task.split(":", 1)[0]
    if ":" in task and family in ADAPTERS:
        options = {
            "robot": robot != ROBOT,
            "reward": reward != "sparse",
            "action kind": action_kind not in ("", "tcp_delta"),
            "start range": start_range != 1.0,
            "looks": looks != "none",
            "station": bool(station),
        }
        for name, given in options.items():
            if given:
                raise BadInput(
                    f"task {task}", got=f"option {name}", expected="an embedded task", available=task_names()
                )
        return ADAPTERS[family].make(task, num_envs, threads or None, cameras, image_size)
    from robots import ROBOTS
    from robots.stations import load_contract
    from sim.embedded.world import MujocoWorlds
    from sim.tasks import TASKS

    check_task(task)
    if robot not in ROBOTS:
        raise BadInput("robot", got=robot, available=robot_names())
    if not 0.0 < start_range <= 1.0:
        raise BadInput("start range", got=start_range, expected="above 0, at most 1")
    return MujocoWorlds(
        TASKS[task](start_range=start_range),
        num_envs,
        robot=ROBOTS[robot],
        cameras=cameras,
        image_size=image_size,
        reward=reward,
        shaping_gamma=shaping_gamma,
        action_kind=action_kind,
        looks=looks,
        station=load_contract(station) if station else None,
        threads=threads,
    )


def check_task(task: str) -> None:
    """Raise `BadInput` unless `task` is one of ours or of an adapter's form; whether that world exists is not asked."""
    from sim.tasks import TASKS

    if task not in TASKS and not (":" in task and task.split(":", 1)[0] in ADAPTERS):
        raise BadInput("task", got=task, available=(*TASKS, *(adapter.form for adapter in ADAPTERS.values())))


def task_names() -> tuple[str, ...]:
    """The embedded tasks."""
    from sim.tasks import TASKS

    return tuple(TASKS)


def robot_names() -> tuple[str, ...]:
    """The arms that the embedded tasks can be done with."""
    from robots import ROBOTS
    from sim.embedded.bench import fits
    from sim.tasks import TASKS

    return tuple(name for name, robot in ROBOTS.items() if any(fits(robot, task) for task in TASKS))


def _gym(task: str, num_envs: int, workers: int | None, cameras: tuple[str, ...], image_size: int) -> Env:
    from sim.adapters import make_gym

    return make_gym(task, num_envs, workers=workers, cameras=cameras, image_size=image_size)


def _robosuite(task: str, num_envs: int, workers: int | None, cameras: tuple[str, ...], image_size: int) -> Env:
    from sim.adapters import make_robosuite

    return make_robosuite(task, num_envs, workers=workers, cameras=cameras, image_size=image_size)


@dataclass(frozen=True)
class Adapter:
    """A family of foreign tasks: how its names look, and what makes N worlds of one in a number of processes, with
    cameras of an edge."""

    form: str
    make: Callable[[str, int, int | None, tuple[str, ...], int], Env]


ADAPTERS = {
    "robosuite": Adapter("robosuite:<Name>", _robosuite),
    "gym": Adapter("gym:<module>:<Id-v0>", _gym),
}
