"""``robolearn worlds``: the families of worlds, what each has and needs; install and remove their environments."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any

import tyro

from robolearn.cli.choices import Cousins
from robolearn.cli.dataset.common import megabytes
from robolearn.core import BadInput
from robolearn.core.switches import available
from robolearn.runs.command import PLAIN, Command, print_table
from sim.bridge.environment import size_of
from sim.registry import FAMILIES, Family, WorldConfig

log = logging.getLogger(__name__)
OURS = "robolearn"  # the name of the family of our tasks


def _names() -> dict[str, Family]:
    """Name → family, ours under its name."""
    return {name or OURS: family for name, family in FAMILIES.items()}


def _installable() -> list[str]:
    return [name for name, family in FAMILIES.items() if family.environment is not None]


Installable = Annotated[str, available(_installable)]


def _state(family: Family) -> str:
    """Where it lives, in words."""
    if family.environment is None:
        return "here"
    return "installed" if family.environment.installed else "not installed"


def _tasks(name: str, family: Family, python: str = "") -> list[str] | None:
    """The names of its tasks; None where nobody can list them, or not before it is installed. `python` has it, too."""
    if family.listed_by:
        return list(resolve_name(family.listed_by)())
    if family.environment is None or not (python or family.environment.installed):
        return None
    from sim.adapters.other_makers import task_names

    return task_names(name, python)


@dataclass(frozen=True, kw_only=True)
class WorldsList(Command):
    """List the families of worlds: whether they are installed, their tasks, who demonstrates these, what they need.

    Example: robolearn worlds. See also robolearn worlds show, install and remove.
    """

    def run(self) -> dict[str, Any]:
        """``{"worlds": [{"name", "form", "state", "count", "demonstrator", "cameras", "gpu", "megabytes", "packages",
        "suites"}, …]}``; ``"count"`` of tasks is None where it is open."""
        return {"worlds": [_row(name, family) for name, family in _names().items()]}

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        from rich.table import Column

        rows = []
        for row in result["worlds"]:
            state = f"{row['state']}, {row['megabytes']} MB" if row["megabytes"] else row["state"]
            tasks = str(row["count"] or "any")
            more = (row["demonstrator"] or "–", row["cameras"] or "–", _gpu(row))
            rows.append((row["name"], row["form"] or "by its name", tasks, state, *more))
        kept = [Column(name, no_wrap=True) for name in ("world", "--task", "tasks", "GPU")]  # the others are broken
        heads = (*kept[:3], "state", "expert", Column("cameras", overflow="fold"), kept[3])
        print_table(console, heads, rows, **{**PLAIN, "padding": (0, 2, 0, 0)})
        console.print("\nrobolearn worlds install NAME makes the environment of one that is not installed")


@dataclass(frozen=True, kw_only=True)
class TasksList(Command):
    """List our tasks: what is to be done, how long an episode may take, with which arms.

    Example: robolearn tasks. Tasks of other makers: robolearn worlds.
    """

    def run(self) -> dict[str, Any]:
        """``{"tasks": [{"name", "words", "steps", "seconds", "robots", "reward", "cousins"}, …]}``."""
        from robots import CONTROL_HZ, PAIRS, ROBOTS
        from sim.embedded.task import fits
        from sim.tasks import TASKS

        rows = []
        for name, kind in TASKS.items():
            task = kind()
            steps, every = task.max_episode_steps, [*ROBOTS.items(), *PAIRS.items()]
            robots = [arm for arm, robot in every if fits(robot, name, task.arms)]
            rows.append(
                {
                    "name": name,
                    "words": task.prompt,
                    "steps": steps,
                    "seconds": steps / CONTROL_HZ,
                    "robots": robots,
                    "reward": (kind.__doc__ or "").strip().splitlines()[0],
                    "cousins": task.has_cousins,
                }
            )
        return {"tasks": rows}

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        rows = [(r["name"], r["words"], f"{r['steps']} ({r['seconds']:g} s)", "yes" if r["cousins"] else "no",
                 ", ".join(r["robots"])) for r in result["tasks"]]  # fmt: skip
        print_table(console, ("--task", "what is to be done", "steps", "--cousins", "--robot"), rows, **PLAIN)
        console.print("\nrobolearn worlds lists those of other makers, robolearn worlds show TASK what one observes")


def _row(name: str, family: Family) -> dict[str, Any]:
    environment = family.environment
    return {
        "name": name,
        "form": family.form,
        "state": _state(family),
        "count": len(_tasks(name, family) or ()) if family.listed_by else family.count or None,
        "demonstrator": family.demonstrator,
        "cameras": family.cameras,
        "gpu": family.needs_gpu,
        "megabytes": environment.megabytes if environment else 0,
        "packages": list(environment.packages) if environment else [],
        "suites": list(family.suites),
    }


def _gpu(row: Mapping[str, Any]) -> str:
    return "needed" if row["gpu"] else "no"


@dataclass(frozen=True, kw_only=True)
class WorldsShow(Command):
    """Show a family of worlds and its tasks, or one task: what it observes, what an action means, when it succeeds.

    Example: robolearn worlds show metaworld:reach-v3, or robolearn worlds show lift --cousins held-out
    """

    name: tyro.conf.Positional[str]
    """A family, as `robolearn worlds` lists them, or a task."""
    world_python: Path | None = None
    """A Python interpreter that has the family's packages, in place of the environment that robolearn installs."""
    cousins: Cousins = "none"
    """A range of cousins of the scene, or its file, to be shown what differs between them."""

    def run(self) -> dict[str, Any]:
        """Of a family its row and ``"tasks"``; of a task its interface, limit, rate and notes."""
        families, python = _names(), str(self.world_python or "")
        if self.name in families:
            family = families[self.name]
            if python and not family.runs_elsewhere:
                able = [name for name, other in families.items() if other.runs_elsewhere]
                raise BadInput(f"world {self.name}", got="option world python", available=able)
            return {**_row(self.name, family), "tasks": _tasks(self.name, family, python)}
        if ":" not in self.name and self.name not in (_tasks(OURS, families[OURS]) or ()):
            raise BadInput("world", got=self.name, expected="a family or a task", available=families)
        world = WorldConfig(self.name, world_python=self.world_python, cousins=self.cousins)
        with closing(world.build(1)) as env:
            return {
                "task": env.task,
                "prompt": env.prompt,
                "interface": env.interface.to_json(),
                "max_episode_steps": env.max_episode_steps,
                "reports_success": env.reports_success,
                "continuing": env.continuing,
                "demonstrator": bool(getattr(env, "demonstrates", world.family.simulates_arm)),
                "cousins": world.differences(),
                "says": list(getattr(env, "says", ())),
            }

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        if "task" not in result:
            for key in ("name", "form", "state", "demonstrator", "cameras", "packages", "suites"):
                value = ", ".join(result[key]) if isinstance(result[key], list) else result[key]
                console.print(f"{key:14}{value or '–'}")
            console.print(f"{'GPU':14}{_gpu(result)}")
            tasks = result["tasks"]
            count = f"{result['count']}, " if result["count"] else ""
            listed = f"{count}listed once it is installed" if result["state"] == "not installed" else "not listed"
            console.print(f"{'tasks':14}{f'{len(tasks)}: ' + ', '.join(tasks) if tasks else listed}")
            return
        interface, limit = result["interface"], result["max_episode_steps"]
        arm = "" if interface["embodiment"] == "none" else f", by the {interface['embodiment']}"
        console.print(f"task          {result['task']}: {result['prompt']}{arm}")
        for key, spec in interface["observation"].items():
            few = f": {', '.join(spec['names'])}" if spec["names"] else ""
            console.print(f"observed      {key} {tuple(spec['shape'])}{few}")
        console.print(
            f"action        {interface['action']['shape'][0]} numbers in [-1, 1], {interface['control_hz']:g} Hz"
        )
        console.print(f"episode       {f'at most {limit} steps' if limit else 'until the world ends it'}")
        console.print(
            f"success       {'reported' if result['reports_success'] else 'not reported: judged by its return'}"
        )
        console.print(f"demonstrator  {'yes' if result['demonstrator'] else 'none'}")
        for line in result["cousins"]:
            console.print(f"differs       {line}")
        for line in result["says"]:
            console.print(f"              {line}", markup=False)


@dataclass(frozen=True, kw_only=True)
class WorldsInstall(Command):
    """Make the environment of a family of worlds, in a folder of this user; its tasks then run there by themselves.

    Example: robolearn worlds install metaworld
    """

    name: tyro.conf.Positional[Installable]
    """The family."""

    def run(self) -> dict[str, Any]:
        """``{"world", "python", "packages", "bytes", "wall_s"}``."""
        environment = _environment(self.name)
        begun = time.perf_counter()
        packages = ", ".join(environment.packages)
        log.info(f"{packages}: {environment.megabytes} MB in {environment.folder}, a minute or more by the network")
        environment.install(log.info)
        return {
            "world": self.name,
            "python": str(environment.python),
            "packages": list(environment.packages),
            "bytes": size_of(environment.folder),
            "wall_s": {"total": time.perf_counter() - begun},
        }

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        wall = result["wall_s"]["total"]
        console.print(
            f"installed   {result['world']}, {megabytes(result['bytes'])}, in {wall:.0f} s: {result['python']}"
        )
        console.print(f"next        robolearn worlds show {result['world']}")


@dataclass(frozen=True, kw_only=True)
class WorldsRemove(Command):
    """Remove the environment of a family of worlds.

    Example: robolearn worlds remove metaworld
    """

    name: tyro.conf.Positional[Installable]
    """The family."""

    def run(self) -> dict[str, Any]:
        """``{"world", "bytes"}``."""
        environment = _environment(self.name)
        if not environment.folder.exists():
            raise BadInput(f"world {self.name}", got="no environment", expected="an installed one")
        return {"world": self.name, "bytes": environment.remove()}

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        console.print(f"removed     {result['world']}, {megabytes(result['bytes'])}")


def _environment(name: str) -> Any:
    """The environment of a family. Raises `BadInput`: it has none."""
    if name not in _installable():
        got = f"{name}, which needs none" if name in _names() else name
        raise BadInput("world to install", got=got, available=_installable())
    return FAMILIES[name].environment
