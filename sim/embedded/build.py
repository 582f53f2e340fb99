"""Embedded worlds from the config of a command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from robolearn.core.errors import BadInput, look_up
from robots import PAIRS, ROBOTS, robot_named
from robots.stations import load_contract
from sim.embedded.cousins import load_cousins
from sim.embedded.distractor import with_distractor
from sim.embedded.scene import check_robot
from sim.embedded.world import MujocoWorlds
from sim.registry import WorldConfig, robot_names
from sim.tasks import TASKS
from sim.tasks.ways_back import BACK


def make(config: WorldConfig, num_envs: int) -> MujocoWorlds:
    """`num_envs` worlds of an embedded task, for `sim.registry`."""
    share = 1.0 if config.start_range is None else config.start_range
    if config.arm not in ROBOTS and config.arm not in PAIRS:
        raise BadInput("robot", got=config.arm, available=robot_names())
    if not 0.0 < share <= 1.0:
        raise BadInput("start range", got=share, expected="above 0, at most 1")
    robot, task = robot_named(config.arm), TASKS[config.task](start_range=share)
    if (cousins := load_cousins(config.cousins)) is not None:
        if not task.has_cousins:
            able = [name for name, kind in TASKS.items() if kind().has_cousins]
            raise BadInput("task with cousins", got=config.task, available=able)
        if config.two_way:
            raise BadInput("--cousins", got="them with --back-policy", expected="one of them")
        cousins.check(robot)
        task = replace(task, cousins=cousins)
    if config.distractor:
        for flag, given in (
            ("--cousins", cousins),
            ("--back-policy", config.two_way),
            ("--begin-along", config.begin_along),
        ):
            if given:
                raise BadInput("--distractor", got=f"it with {flag}", expected="one of them")
        task = with_distractor(task)
    worlds: Callable[..., MujocoWorlds] = MujocoWorlds
    if config.two_way:
        from sim.embedded.two_way import TwoWayWorlds

        way_back = look_up("task with a way back", config.task, BACK)(start_range=share)
        check_robot(robot, way_back.name)
        worlds = partial(TwoWayWorlds, way_back)
    elif config.begin_along:
        from sim.embedded.snapshot_starts import SnapshotWorlds

        worlds = SnapshotWorlds
    elif config.pushed:
        from sim.embedded.pushes import PushedWorlds

        worlds = partial(PushedWorlds, pushed=config.pushed)
    return worlds(
        task,
        num_envs,
        robot=robot,
        cameras=config.cameras,
        image_size=config.image_size,
        reward=config.reward,
        shaping_gamma=config.shaping_gamma,
        action_kind=config.action_kind,
        looks=config.looks,
        dynamics=config.dynamics,
        station=load_contract(config.station) if config.station else None,
        threads=config.threads,
        render_processes=config.render_processes,
    )
