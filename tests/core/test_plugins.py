"""Plug-ins, judged by pip: a package that it installed, beside the checkout, in a program of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from robolearn.core import plugins
from robots import PANDA

pytestmark = pytest.mark.long

PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "my-lab"
version = "1.2"
[tool.setuptools]
py-modules = ["my_lab"]
[project.entry-points."robolearn.tasks"]
hoist = "my_lab:Hoist"
lift = "my_lab:Hoist"
gone = "my_lab:Gone"
word = "my_lab:WORD"
[project.entry-points."robolearn.rewards"]
always = "my_lab:Always"
[project.entry-points."robolearn.algorithms"]
careful = "my_lab:Careful"
[project.entry-points."robolearn.worlds"]
swing = "my_lab:SWING"
[project.entry-points."robolearn.teleoperators"]
foot = "my_lab:Foot"
[project.entry-points."robolearn.policies"]
second_flow = "my_lab:SecondFlow"
[project.entry-points."robolearn.formats"]
tape = "my_lab:TAPE"
[project.entry-points."robolearn.robots"]
my_arm = "my_lab:ARM"
"""
MODULE = """
from dataclasses import dataclass
from pathlib import Path

from hardware.teleop.keyboard import KeyboardConfig
from policies.settings import FlowConfig
from robolearn.data.convert.formats.config import FormatConfig
from robolearn.rewards.config import RewardConfig
from robolearn.rl.settings import ReinFlowConfig
from sim.registry import Family
from sim.tasks.lift import Lift

WORD = "stack"
ARM = Path(__file__).parent / "my_arm"
SWING = Family("swing:<Name>", "my_lab:make")
TAPE = FormatConfig("tape", "a tape", here=lambda path: path.suffix == ".tape")


@dataclass(frozen=True)
class Hoist(Lift):
    name: str = "hoist"


@dataclass(frozen=True)
class Always(RewardConfig):
    name = usage = "always"


@dataclass(frozen=True, kw_only=True)
class Careful(ReinFlowConfig):
    pass


class Foot(KeyboardConfig):
    name = "foot"


@dataclass(frozen=True)
class SecondFlow(FlowConfig):
    name = "second_flow"
"""
TABLES = """
import json
from hardware.teleop import TELEOPERATORS
from policies.settings import POLICIES
from robolearn.core.plugins import plugins
from robolearn.data.convert.formats import FORMATS
from robolearn.rewards.choice import REWARDS
from robolearn.rl.algorithms import ALGORITHMS
from robots import ROBOTS
from robots.stations import contract_names
from sim.registry import FAMILIES
from sim.tasks import TASKS
tables = {"tasks": TASKS, "worlds": FAMILIES, "teleoperators": TELEOPERATORS, "formats": FORMATS, "policies": POLICIES,
          "rewards": REWARDS, "algorithms": ALGORITHMS, "robots": ROBOTS}
named = {room: list(table) for room, table in tables.items()}
print(json.dumps({"tables": named, "stations": contract_names(), "ours": TASKS["lift"].__module__,
                  "plugins": [[p.room, p.name, p.package, p.fault] for p in plugins()]}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the package of a lab."""
    top = tmp_path_factory.mktemp("lab")
    source, site = top / "source", top / "site"
    source.mkdir()
    (source / "pyproject.toml").write_text(PROJECT)
    (source / "my_lab.py").write_text(MODULE)
    command = [
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--target",
        str(site),
        str(source),
    ]
    subprocess.run([sys.executable, *command], check=True)
    arm = site / "my_arm"
    arm.mkdir()
    spec = PANDA
    names = ("joints", "home", "velocity", "acceleration", "jerk", "effort")
    facts = {name: list(getattr(spec, name)) for name in names}
    (arm / "robot.yaml").write_text(json.dumps(facts | {"name": "my_arm", "source": "a test"}))
    (arm / "model.xml").write_bytes(spec.mjcf.read_bytes())
    (arm / "station.yaml").write_text("robot: my_arm\n")
    return site


def run(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))}
    return subprocess.run([sys.executable, *words], env=environ, capture_output=True, text=True, check=False)


def test_an_installed_package_adds_to_every_table(installed: Path) -> None:
    done = run(installed, "-c", TABLES)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    added = {
        "tasks": "hoist", "worlds": "swing", "teleoperators": "foot", "formats": "tape", "policies": "second_flow",
        "rewards": "always", "algorithms": "careful", "robots": "my_arm",
    }  # fmt: skip
    assert {room: name for room, name in added.items() if name in told["tables"][room]} == added
    assert set(added) == set(plugins.ROOMS)
    assert "my_arm" in told["stations"]


def test_what_does_not_fit_is_left_out_and_said(installed: Path) -> None:
    done = run(installed, "-c", TABLES)
    told = json.loads(done.stdout)
    assert told["ours"] == "sim.tasks.lift"
    assert not {"gone", "word"} & set(told["tables"]["tasks"])
    faults = {name: fault for _, name, package, fault in told["plugins"] if fault and package == "my-lab 1.2"}
    assert faults["lift"] == "the name lift is taken by robolearn"
    assert faults["gone"].startswith("AttributeError: module 'my_lab' has no attribute 'Gone'")
    assert faults["word"] == "got 'stack', expected a class or a function that makes a task, as sim.tasks has them"
    assert set(faults) == {"lift", "gone", "word"}
    for name in faults:
        assert f"the plug-in {name} (robolearn.tasks) of my-lab 1.2 is left out: " in done.stderr


def test_a_task_of_a_package_is_demonstrated_by_a_command(installed: Path, tmp_path: Path) -> None:
    main = "import sys; from robolearn.cli.main import main; sys.exit(main(sys.argv[1:]))"
    out = tmp_path / "demonstrations"
    words = ("collect", "--task", "hoist", "--quality", "expert", "--episodes", "2", "--out", str(out), "--json")
    done = run(installed, "-c", main, *words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["episodes"] == 2
