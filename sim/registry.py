"""The worlds: one config, and the table of the families that build it (`sim.families`).

``lift`` is embedded; ``robosuite:Lift`` and ``gym:module:Id-v0`` go through adapters. Nothing heavy is imported before
a world is built or a list of names is asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, Literal

import tyro

from robolearn.core import BadInput, Env, Interface
from robolearn.core.plugins import Table, with_plugins
from robolearn.core.specs import COUSIN, DISTRACTOR, is_image
from robolearn.core.switches import available
from robolearn.io.hashes import sha256_file
from robolearn.runs.command import words_of
from sim.families import SHIPPED, Family
from sim.shaping import SHAPING_GAMMA

log = logging.getLogger(__name__)

ROBOT, PAIR = "panda", "panda_pair"  # the arm, or the two of them, where none is named
OWN_REWARDS = ("task", "sparse", "dense")  # the first is another name of the second


def task_names() -> tuple[str, ...]:
    """The embedded tasks."""
    from sim.tasks import TASKS

    return tuple(TASKS)


def world_names() -> tuple[str, ...]:
    """All that a task is called: the embedded ones, and the forms of the other families' names."""
    return (*task_names(), *(family.form for family in FAMILIES.values() if family.form))


def robot_names() -> tuple[str, ...]:
    """The arms, and the pairs of arms, that the embedded tasks can be done with."""
    from robots import PAIRS, ROBOTS
    from sim.embedded.task import fits
    from sim.tasks import TASKS

    needs = {name: kind().arms for name, kind in TASKS.items()}
    robots = [*ROBOTS.items(), *PAIRS.items()]
    return tuple(name for name, robot in robots if any(fits(robot, task, arms) for task, arms in needs.items()))


def _action_kinds() -> Iterable[str]:
    from robots.control import CONTROLS

    return CONTROLS


def _own_rewards() -> Iterable[str]:
    return OWN_REWARDS


def _stations() -> Iterable[str]:
    from robots.stations import contract_names

    return (*contract_names(), "<path>.yaml")


def _dynamics() -> Iterable[str]:
    from robots.dynamics import dynamics_names

    return dynamics_names()


def _needs(default: Any, capability: str) -> Any:
    """A field that only families with the capability have."""
    return field(default=default, metadata={"needs": capability})


def _cousins() -> Iterable[str]:
    from sim.embedded.cousins import cousin_names

    return cousin_names()


@dataclass(frozen=True)
class WorldConfig:
    """The worlds that a command runs."""

    task: Annotated[str, available(world_names)] = "lift"
    """The task."""
    robot: Annotated[str, available(robot_names)] = _needs("", "simulates_arm")
    """The arm, in our tasks; by default the policy's own, or panda, and panda_pair where a task needs two arms."""
    cameras: tuple[str, ...] = ()
    """Cameras to observe: front, side and wrist in our tasks, robosuite's own, or render, what a Gymnasium env draws.
    Those that a policy needs are observed anyway."""
    image_size: int = 84
    """Edge of their square pictures [px]; a policy's own where one needs pictures."""
    reward: Annotated[str, available(_own_rewards)] = _needs(OWN_REWARDS[1], "has_progress")
    """Reward: task, or sparse, is the world's own; dense adds potential-based shaping in our tasks, which leaves the
    best policy the best. finetune and trial plan take a reward model, too: a critic's folder, <family>:<model> of a
    vision-language model, serve:<host>:<port> or <module>:<Class>."""
    shaping_gamma: tyro.conf.Suppress[float] = SHAPING_GAMMA
    """γ of the dense reward's shaping, a control step: γ_c^(1/Ta) for a learner that discounts by γ_c a chunk of Ta
    steps."""
    action_kind: Annotated[str, available(_action_kinds)] = _needs("", "simulates_arm")
    """The meaning of an action, in our tasks; by default the policy's own, or the arm's."""
    start_range: float | None = _needs(None, "has_start_range")
    """Share of each range of starts to draw from, about its centre, in our tasks; by default 1, or that of the quality
    of demonstrations."""
    looks: Literal["none", "mild", "wild"] = _needs("none", "has_looks")
    """Visual randomisation of each episode, in our tasks: colours, light, cameras and the like."""
    dynamics: Annotated[str, available(_dynamics)] = _needs("none", "has_dynamics")
    """Dynamics that differ from world to world, in our tasks: masses, friction, gains, delays, backlash, noise and the
    like; a level, or a file such as robolearn identify writes."""
    cousins: Annotated[str, available(_cousins)] = _needs("none", "has_cousins")
    """Cousins of the scene in each episode, in lift, lift_to and pick_place: another thing, the table's height and what
    stands about; a named range, or a file. Policies observe the same; collect records the feature cousin, too."""
    distractor: bool = _needs(False, "has_distractor")
    """A second cube lies on the table, in lift and pick_place, which the words do not mean. Policies observe the same;
    collect records the feature distractor, too."""
    station: Annotated[str, available(_stations)] = _needs("", "has_stations")
    """A robot contract: cameras stand and see as it says, with poses and lenses that `robolearn calibrate` measured."""
    threads: Annotated[int, tyro.conf.arg(name="sim-threads")] = 0
    """Threads of our tasks' physics, worker processes of other worlds; 0: one for each CPU, or as many as pay."""
    sim_device: Literal["auto", "cpu", "cuda"] = _needs("auto", "has_device")
    """Where Isaac Lab's physics is computed; auto: on a GPU where its interpreter finds one."""
    render_processes: int | None = _needs(None, "simulates_arm")
    """Processes that draw the pictures of our tasks side by side, 0: none but this one; by default one for each thread
    where 16 worlds or more are drawn. The pictures are the same."""
    two_way: tyro.conf.Suppress[bool] = _needs(False, "has_ways_back")  # noqa: RUF009
    """Nobody resets: the task and its way back take turns in our tasks (`sim.embedded.two_way`)."""
    pushed: tyro.conf.Suppress[str] = _needs("", "has_pushes")  # noqa: RUF009
    """Episodes may be pushed: the arm, or a thing (`sim.embedded.pushes`); empty: none is."""
    begin_along: tyro.conf.Suppress[bool] = _needs(False, "has_snapshots")  # noqa: RUF009
    """Episodes may begin in states taken along demonstrations (`sim.embedded.snapshot_starts`)."""
    world_python: Path | None = _needs(None, "runs_elsewhere")  # noqa: RUF009
    """A Python interpreter of its own for a Gymnasium env, with numpy, gymnasium and what the env needs; nothing of
    robolearn need be there."""

    workers: str = ""
    """Workers that the worlds are spread over: a number of processes, ray for actors of Ray (extra ray) on this machine
    or the cluster of RAY_ADDRESS, ray:<number> for so many here, or ray://<host>:<port> of a cluster. The policy stays
    here. The results are the same; a worker that dies is started again."""

    def __post_init__(self) -> None:
        if self.reward == OWN_REWARDS[0]:  # one world, one name
            object.__setattr__(self, "reward", OWN_REWARDS[1])

    @property
    def family(self) -> Family:
        """The family of the task. Raises `BadInput`: an unknown task. Whether a world of another maker exists is found
        out by building it."""
        name, colon, _ = self.task.partition(":")
        family = FAMILIES.get(name if colon else "")
        if family is None or (not colon and self.task not in task_names()):
            raise BadInput("task", got=self.task, available=world_names())
        return family

    @property
    def arm(self) -> str:
        """The name of the arm, or of the pair of arms."""
        if self.robot:
            return self.robot
        from sim.tasks import TASKS

        name = own_task(self.task)
        return PAIR if name in TASKS and TASKS[name]().arms > 1 else ROBOT

    def check(self) -> None:
        """Raise `BadInput` for an unknown task, an option that its family has not, or a reward that no world has."""
        family = self.family
        if self.reward not in OWN_REWARDS:
            hint = "`robolearn reward score` has a reward model score stored episodes"
            raise BadInput("--reward of worlds", got=self.reward, available=OWN_REWARDS, hint=hint)
        if len(tasks := tasks_of(self.task)) > 1:
            expected = "one of them, or a command that takes all: collect, evaluate, finetune"
            raise BadInput(f"task {self.task}", got=f"a suite of {len(tasks)}", expected=expected, available=tasks)
        for option in fields(self):
            needed = option.metadata.get("needs")
            if needed and getattr(self, option.name) != option.default and not getattr(family, needed):
                name = option.name.replace("_", " ")
                able = [other.form for other in FAMILIES.values() if other.form and getattr(other, needed)]
                ours = task_names() if getattr(FAMILIES[""], needed) else ()
                expected = "an embedded task" if ours else "a task that has it"
                raise BadInput(f"task {self.task}", got=f"option {name}", expected=expected, available=(*ours, *able))

    def build(self, num_envs: int) -> Env:
        """`num_envs` worlds. Raises `BadInput`: what `check` refuses, or a value that the worlds do not have."""
        self.check()
        if self.workers:
            return resolve_name("sim.bridge.remote:spread")(self, num_envs)
        return self.family.build(self, num_envs)

    def matching(self, *interfaces: Interface) -> WorldConfig:
        """The same worlds with what policies of these interfaces need: cameras, image size, the feature `COUSIN`; where
        an arm is simulated also the first one's action kind, and its arm unless another is asked for."""
        pictures = {k: s for interface in interfaces for k, s in interface.observation.items() if is_image(s)}
        found = self
        if pictures:
            cameras = (*self.cameras, *(key.removeprefix("images.") for key in pictures))
            edge = next(iter(pictures.values())).shape[0]
            found = replace(found, cameras=tuple(dict.fromkeys(cameras)), image_size=edge)
        if self.cousins == "none" and any(COUSIN in interface.observation for interface in interfaces):
            found = replace(found, cousins="twin")
        if any(DISTRACTOR in interface.observation for interface in interfaces):
            found = replace(found, distractor=True)
        if not self.family.simulates_arm:
            return found
        from robots import PAIRS, ROBOTS

        first = interfaces[0]
        if first.embodiment in (*ROBOTS, *PAIRS) and not self.robot:
            found = replace(found, robot=first.embodiment)
        elif not self.robot:
            log.warning(
                "no arm here is called %s: the package or the folder (ROBOLEARN_ROBOTS) that brings it is missing",
                first.embodiment,
            )
        return replace(found, action_kind=first.action_kind) if first.action_kind in _action_kinds() else found

    def drawn(self) -> dict[str, Any]:
        """Option → value, for the configuration of a run: what no interface holds, where not the default. Of a
        file of dynamics or cousins, or a station's folder, the content counts, too: another one of that name is
        another world."""
        names = ("reward", "start_range", "looks", "dynamics", "cousins", "distractor", "station")
        values = {option.name: (getattr(self, option.name), option.default) for option in fields(self)}
        found = {name: values[name][0] for name in names if values[name][0] != values[name][1]}
        if "dynamics" in found:
            from robots.stations.folder import DYNAMICS, in_station

            if (file := in_station(Path(self.dynamics), DYNAMICS)).is_file():
                found["dynamics_sha256"] = sha256_file(file)
        if "cousins" in found and Path(self.cousins).is_file():
            found["cousins_sha256"] = sha256_file(Path(self.cousins))
        return found

    def differences(self) -> list[str]:
        """The differences between cousins of the scene, in words; empty where there are none."""
        from sim.embedded.cousins import load_cousins

        found = load_cousins(self.cousins)
        return found.said() if found else []

    def words(self) -> list[str]:
        """The flags of task, arm and all that `drawn` returns, as words of a command line."""
        flags = {"robot", "world_python", "sim_device", *self.drawn()}
        return ["--task", self.task, *words_of(self, flags, changed=True)]


FAMILIES: Table[Family] = with_plugins(
    "worlds", SHIPPED, lambda found: isinstance(found, Family), lambda found: found.form.partition(":")[0]
)
"""The part before the colon of a task's name → its family."""


def own_task(name: str) -> str:
    """The task of ours that `name` stands for: ``lift`` and ``isaaclab:lift`` are one task in two kinds of physics.
    Names of other tasks are left as they are."""
    maker, _, task = name.rpartition(":")
    family = FAMILIES.get(maker)
    return task if maker and family is not None and family.simulates_arm else name


def tasks_of(name: str) -> tuple[str, ...]:
    """The tasks that `name` stands for: those of a suite, such as ``metaworld:MT10``, or the name itself."""
    maker, _, suite = name.partition(":")
    family = FAMILIES.get(maker)
    tasks = () if family is None else family.suites.get(suite, ())
    return tuple(f"{maker}:{task}" for task in tasks) or (name,)


def make_env(task: str, num_envs: int, **options: Any) -> Env:
    """`num_envs` worlds of `task`; `options` are the other fields of `WorldConfig`. Raises `BadInput`: an unknown task,
    an option that it does not have, or a value out of range."""
    unknown = options.keys() - {option.name for option in fields(WorldConfig)}
    if unknown:
        known = [option.name for option in fields(WorldConfig)]
        raise BadInput("option of make_env", got=min(unknown), available=known)
    return WorldConfig(task, **options).build(num_envs)
