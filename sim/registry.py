"""Task names → worlds: ``lift`` is ours, ``robosuite:Lift`` and ``gym:module:Id-v0`` are other people's."""

from __future__ import annotations

from collections.abc import Callable

from robolearn.core.errors import BadInput
from robolearn.core.protocols import Env


def make_env(
    task: str,
    num_envs: int,
    *,
    cameras: tuple[str, ...] = (),
    image_size: int = 96,
    reward: str = "sparse",
    action_kind: str = "tcp_delta",
    threads: int = 0,
) -> Env:
    """Worlds for a task name.

    Args:
      task: ``lift``, ``pick_place``, ``peg_insert``; ``robosuite:Lift`` …; ``gym:module:Id-v0``.
      num_envs: number of worlds N.
      cameras: cameras to observe (embedded tasks), square, with an edge of `image_size` [px].
      reward: ``"sparse"`` or ``"dense"`` (embedded tasks).
      action_kind: ``"tcp_delta"`` or ``"joint_position"`` (embedded tasks).
      threads: threads of the embedded world, 0 for every CPU; worker processes elsewhere, 0 for as many as pay.

    Raises:
      BadInput: an unknown task, or an option that the task does not have.
    """
    family = task.split(":", 1)[0]
    if ":" in task and family in OUTSIDE:
        if cameras or reward != "sparse" or action_kind != "tcp_delta":
            raise BadInput(
                f"task {task}",
                got="cameras, reward or action kind",
                expected="an embedded task",
                available=task_names(),
            )
        return OUTSIDE[family](task, num_envs, threads or None)
    from sim.embedded.world import MujocoWorlds
    from sim.tasks import TASKS

    if task not in TASKS:
        raise BadInput("task", got=task, available=(*TASKS, "robosuite:<Name>", "gym:<module>:<Id-v0>"))
    return MujocoWorlds(
        TASKS[task](),
        num_envs,
        cameras=cameras,
        image_size=image_size,
        reward=reward,
        action_kind=action_kind,
        threads=threads,
    )


def task_names() -> tuple[str, ...]:
    """The embedded tasks."""
    from sim.tasks import TASKS

    return tuple(TASKS)


def _gym(task: str, num_envs: int, workers: int | None) -> Env:
    from sim.adapters import make_gym

    return make_gym(task, num_envs, workers=workers)


def _robosuite(task: str, num_envs: int, workers: int | None) -> Env:
    from sim.adapters import make_robosuite

    return make_robosuite(task, num_envs, workers=workers)


OUTSIDE: dict[str, Callable[[str, int, int | None], Env]] = {"gym": _gym, "robosuite": _robosuite}
