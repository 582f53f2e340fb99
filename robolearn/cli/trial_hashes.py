"""Hashes of what a trial must not change: policies, worlds or arm, and the code between."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import robots
from robolearn.core import BadInput
from robolearn.eval.trials.plan import TrialPlan
from robolearn.io.hashes import sha256, sha256_file, sha256_folder
from robots import PAIRS, ROBOTS
from robots.stations import AnyContract, load_any_contract
from robots.stations.folder import FILES, STATION, VERSIONS
from sim.registry import WorldConfig

LIBRARIES = ("mujoco", "torch", "numpy", "robosuite", "gymnasium")  # versions that decide what an episode is
FILTER = ("hardware", "robots")  # code between a policy node and an arm
DEPLOYMENT = ("robolearn/deploy", "robolearn/bench/emulators", "launch")  # code that starts the nodes
LAUNCH_FILES = (".py", ".xml", ".yaml", ".yml")
TOP = Path(robots.__file__).parents[1]
# Where another interpreter finds a module.
PLACES = (
    "import importlib.util as u, json, sys; s = u.find_spec(sys.argv[1]); "
    "print(json.dumps(s and [*(s.submodule_search_locations or [s.origin])]))"
)


def hash_policy(path: str) -> str:
    """Hash of the files of a policy. Raises `BadInput`: there is none."""
    from policies.storage.config_file import LEROBOT, policy_folder
    from policies.storage.onnx_policy import is_onnx

    if is_onnx(path):
        return sha256_file(Path(path))
    return sha256_folder(Path(path.removeprefix(LEROBOT)) if path.startswith(LEROBOT) else policy_folder(path))


def hashes_of(plan: TrialPlan) -> dict[str, str]:
    """Hashes of what the trial `plan` must not change, besides its policies."""
    return {name: make() for name, make in _parts(plan).items()}


def changed(plan: TrialPlan) -> dict[str, str]:
    """Name of everything that is not as `plan` has it → its hash now, empty where it cannot be read."""
    parts = _parts(plan)
    for one in (one for each in plan.policies.values() for one in each):
        parts[f"policy {one.path}"] = lambda path=one.path: hash_policy(path)
    now: dict[str, str] = {}
    for name, make in parts.items():
        try:
            now[name] = make()
        except (BadInput, OSError):
            now[name] = ""
    return plan.changes(now)


def world_of(setting: Mapping[str, Any]) -> WorldConfig:
    """The worlds that a plan's `setting` describes."""
    values: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in setting.items()}
    if values.get("world_python"):
        values["world_python"] = Path(values["world_python"])
    return WorldConfig(**values)


def _parts(plan: TrialPlan) -> dict[str, Callable[[], str]]:
    """Name → function that computes the hash."""
    task = str(plan.setting["task"])
    parts: dict[str, Callable[[], str]] = {"software": _software, "policy code": lambda: _code("policies")}
    if plan.arm:
        station = plan.arm
        parts["world"] = lambda: sha256(_code("sim"), _code_of_others(WorldConfig(task)))
        parts |= {"filter": lambda: _code(*FILTER), "deployment": lambda: _code(*DEPLOYMENT)}
        parts["arm"] = lambda: _arms(*(part.robot.name for part in _contract(plan.arm).robot.parts))
        parts["station"] = lambda: _beside(*_files(plan.arm))
        if file := plan.setting.get("launch"):
            parts["launch file"] = lambda: _launch_files(Path(file))
    else:
        world = world_of(plan.setting)
        station = world.station
        parts["world"] = lambda: sha256(_code("sim"), _code_of_others(world))
        parts["robots"] = lambda: _code("robots")
        parts["arm"] = lambda: _arms(world.arm, *_made_for(plan))
        for name in ("dynamics", "cousins"):
            if sha := world.drawn().get(f"{name}_sha256"):
                parts[name] = lambda sha=sha: sha
    if station:
        parts["contract"] = lambda: _of_all(_files(station))
    if plan.classifier:
        parts["classifier"] = lambda: _classifier(plan.classifier)
    return parts


def _software() -> str:
    versions: list[str] = []
    for name in LIBRARIES:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return sha256("\n".join(versions))


def _code(*folders: str) -> str:
    return sha256(*(sha256_folder(TOP / name) for name in folders))


def _contract(name: str) -> AnyContract:
    return load_any_contract(name)


def _files(station: str) -> list[Path]:
    """The file of the contract, and of two arms those of theirs."""
    contract = _contract(station)
    return list(dict.fromkeys(Path(one.path) for one in (contract, *contract.arms.values())))


def _of_all(files: list[Path]) -> str:
    """Hash of files; of one its own."""
    each = [sha256_file(path) for path in files]
    return each[0] if len(each) == 1 else sha256(*each)


def _made_for(plan: TrialPlan) -> list[str]:
    """The arms that the plan's policies were made for: their worlds have them where none is named."""
    from policies.storage.loading import needed_by

    return [needed_by(one.path).embodiment for each in plan.policies.values() for one in each]


def _arms(*names: str) -> str:
    """Hash of models and facts of these arms and of the parts of these pairs, of those of one's own, too; versions that
    were kept do not count."""
    known = {name: ROBOTS[name] for name in names if name in ROBOTS}
    known |= {part.robot.name: part.robot for name in names if name in PAIRS for part in PAIRS[name].parts}
    return sha256(*(sha256_folder(known[name].mjcf.parent, leave_out=(VERSIONS,)) for name in sorted(known)))


def _beside(*contracts: Path) -> str:
    """Hash of the files of the stations' folders that `contracts` lie in."""
    there = [path.parent / name for path in contracts for name in FILES if path.name == STATION]
    return sha256(*(f"{path.name} {sha256_file(path)}" for path in there if path.is_file()))


def _launch_files(file: Path) -> str:
    """Hash of a launch file and of those beside it, which it may include."""
    there = {file, *(path for path in file.parent.iterdir() if path.suffix in LAUNCH_FILES and path.is_file())}
    return sha256(*(f"{path.name} {sha256_file(path)}" for path in sorted(there)))


def _classifier(name: str) -> str:
    return sha256_folder(Path(name)) if Path(name).is_dir() else code_of_module(name.partition(":")[0])


def _code_of_others(world: WorldConfig) -> str:
    """Hash of the code of a task or family that is not of `sim`: of plug-ins, and of modules with Gymnasium envs."""
    from sim.tasks import TASKS

    if world.task.startswith("gym:"):
        return code_of_module(world.task.split(":")[1], world.world_python)
    maker = TASKS[world.task].__module__ if world.task in TASKS else world.family.made_by
    return "" if maker.startswith("sim.") else code_of_module(maker.partition(":")[0])


def code_of_module(name: str, python: Path | None = None) -> str:
    """Hash of the package, or the file, that the module `name` is in; of this interpreter, or of `python`."""
    top = name.partition(".")[0]
    if python is not None:
        told = subprocess.run([str(python), "-c", PLACES, top], capture_output=True, text=True, check=False).stdout
        places = json.loads(told or "null") or []
    else:
        spec = PathFinder.find_spec(top, [os.getcwd(), *sys.path])
        places = [] if spec is None else [*(spec.submodule_search_locations or [spec.origin])]
    found = [Path(place) for place in places if place]
    return sha256(*(sha256_folder(one) if one.is_dir() else sha256_file(one) for one in found))
