"""Plug-ins that are wrong or gone, judged by pip: two packages that it installed, in a program of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from policies.storage.checkpoint import load_policy
from robolearn.core import BadInput
from robots import PANDA

pytestmark = pytest.mark.long

# Module of the package "bad-lab 0.1", and its entry points: room → name → object; "other-lab 2.0" has one of its names.
ENTRIES: dict[str, dict[str, str]] = {
    "tasks": {
        "fine": "bad_lab:Fine", "lift": "bad_lab:Fine", "misnamed": "bad_lab:Fine", "argful": "bad_lab:argful",
        "nothing": "bad_lab:nothing", "exits": "bad_exit:X", "raises": "bad_raise:X", "older": "bad_old:X",
        '"sp ace"': "bad_lab:Fine", '"gym:x"': "bad_lab:Fine",
    },
    "task": {"typo": "bad_lab:Fine"},
    "worlds": {"lost": "bad_lab:LOST", "odd": "bad_lab:ODD", "form": "bad_lab:FORM"},
    "robots": {"panda": "bad_lab:PANDA", "other_arm": "bad_lab:ARM", "lab_arm": "bad_lab:ARM"},
    "teleoperators": {"pedals": "bad_lab:Pedals", "nameless": "bad_lab:Nameless"},
    "formats": {"rag": "bad_lab:RAG"},
    "policies": {"twin": "bad_lab:Twin", "heir": "bad_lab:Heir", "abstract": "bad_lab:Abstract"},
    "rewards": {"modelless": "bad_lab:Modelless"},
    "algorithms": {"pageless": "bad_lab:Pageless"},
}  # fmt: skip
MODULES = {
    "bad_raise": 'raise RuntimeError("the licence server\\ndoes not answer")',
    "bad_exit": 'import sys; sys.exit("no licence")',
    "bad_old": "from sim.embedded.task import NameOfAnOlderRelease as X",
    "bad_lab": """
from dataclasses import dataclass
from pathlib import Path

from hardware.teleop.device import TeleopConfig
from hardware.teleop.keyboard import KeyboardConfig
from policies.settings import FlowConfig, PolicyConfig
from robolearn.data.convert.formats.config import FormatConfig
from robolearn.rewards.config import RewardConfig
from robolearn.rl.settings import AlgorithmConfig
from sim.registry import Family
from sim.tasks.lift import Lift

print("welcome to the bad lab")
HERE = Path(__file__).parent
ARM, PANDA = HERE / "bad_arms" / "lab_arm", HERE / "bad_arms" / "panda"
LOST, ODD, FORM = (Family(*pair) for pair in (("lost:<Name>", "bad_lab:gone"), ("odd:<Name>", "bad_lab:argful"),
                                              ("foam:<Name>", "bad_lab:argful")))


@dataclass(frozen=True)
class Fine(Lift):
    name: str = "fine"


def argful(a, b):
    return Lift()


def nothing():
    return None


def torn(path):
    raise OverflowError("the tape is torn")


RAG = FormatConfig("rag", "a rag", here=torn)


class Pedals(KeyboardConfig):
    pass


class Nameless(TeleopConfig):
    pass


@dataclass(frozen=True)
class Twin(FlowConfig):
    name = "twin"


class Heir(FlowConfig):
    pass


class Abstract(PolicyConfig):
    name = "abstract"


class Modelless(RewardConfig):
    name = usage = "modelless"


class Pageless(AlgorithmConfig):
    title = "none"
""",
}


def project(name: str, version: str, modules: list[str], entries: dict[str, dict[str, str]], more: str = "") -> str:
    lines = ["[build-system]", 'requires = ["setuptools"]', 'build-backend = "setuptools.build_meta"', "[project]"]
    lines += [f'name = "{name}"', f'version = "{version}"', "[tool.setuptools]", f"py-modules = {modules}", more]
    for room, named in entries.items():
        lines += [f'[project.entry-points."robolearn.{room}"]', *(f'{key} = "{found}"' for key, found in named.items())]
    return "\n".join(lines)


def write_arm(folder: Path, name: str) -> None:
    folder.mkdir(parents=True)
    names = ("joints", "home", "velocity", "acceleration", "jerk", "effort")
    facts = {one: list(getattr(PANDA, one)) for one in names} | {"name": name, "source": "a test"}
    (folder / "robot.yaml").write_text(json.dumps(facts))
    (folder / "model.xml").write_bytes(PANDA.mjcf.read_bytes())
    (folder / "station.yaml").write_text(f"robot: {name}\n")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed both, each of a wheel that it built without a network."""
    top = tmp_path_factory.mktemp("lab")
    bad, other, site = top / "bad", top / "other", top / "site"
    for folder in (bad, other):
        folder.mkdir()
    for name, text in MODULES.items():
        (bad / f"{name}.py").write_text(text)
    for name in ("lab_arm", "panda"):
        write_arm(bad / "bad_arms" / name, name)
    (bad / "bad_arms" / "__init__.py").touch()
    data = 'packages = ["bad_arms"]\n[tool.setuptools.package-data]\nbad_arms = ["**"]'
    (bad / "pyproject.toml").write_text(project("bad-lab", "0.1", list(MODULES), ENTRIES, data))
    (other / "other_lab.py").write_text("from bad_lab import Fine\n")
    entries = {"tasks": {"fine": "other_lab:Fine"}}
    (other / "pyproject.toml").write_text(project("other-lab", "2.0", ["other_lab"], entries))
    command = ["-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(site)]
    subprocess.run([sys.executable, *command, str(bad), str(other)], check=True)
    return site


def run(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))}
    return subprocess.run([sys.executable, *words], env=environ, capture_output=True, text=True, check=False)


DOCTOR = """
import json
from robolearn.cli.checks.machine import Machine
print(json.dumps([[p.room, p.name, p.package, p.fault] for p in Machine().plugins()]))
"""


def test_each_wrong_plugin_is_left_out_with_its_reason(installed: Path) -> None:
    done = run(installed, "-c", DOCTOR)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()  # what an import prints is not in the result
    assert "welcome to the bad lab" in done.stderr.splitlines()
    found = json.loads(line)
    mine = {(room, name): fault for room, name, package, fault in found if package == "bad-lab 0.1"}
    good = {key for key, fault in mine.items() if not fault}
    assert good == {
        ("tasks", "fine"), ("worlds", "lost"), ("worlds", "odd"), ("robots", "lab_arm"), ("formats", "rag"),
        ("policies", "twin"), ("rewards", "modelless"),
    }  # fmt: skip
    another, word = "its object has the name {!r}, expected that of the entry point, {}", "letters, digits, _, - and ."
    assert {key: fault for key, fault in mine.items() if fault and key[1] not in ("older", "nothing", "typo")} == {
        ("tasks", "lift"): "the name lift is taken by robolearn",
        ("tasks", "misnamed"): another.format("fine", "misnamed"),
        ("tasks", "argful"): "TypeError: argful() missing 2 required positional arguments: 'a' and 'b'",
        ("tasks", "exits"): "SystemExit: no licence",
        ("tasks", "raises"): "RuntimeError: the licence server does not answer",
        ("tasks", "sp ace"): f"got the name 'sp ace', expected {word}",
        ("tasks", "gym:x"): f"got the name 'gym:x', expected {word}",
        ("worlds", "form"): another.format("foam", "form"),
        ("robots", "panda"): "the name panda is taken by robolearn",
        ("robots", "other_arm"): another.format("lab_arm", "other_arm"),
        ("teleoperators", "pedals"): another.format("keyboard", "pedals"),
        ("teleoperators", "nameless"): "got <class 'bad_lab.Nameless'>, expected a TeleopConfig with a build of its "
        "own",
        ("policies", "heir"): another.format("flow", "heir"),
        ("policies", "abstract"): "got <class 'bad_lab.Abstract'>, expected a PolicyConfig with a page, or a build, of "
        "its own",
        ("algorithms", "pageless"): "got <class 'bad_lab.Pageless'>, expected an AlgorithmConfig with a page, or a "
        "build, of its own",
    }  # fmt: skip
    assert mine["tasks", "older"].startswith("ImportError: cannot import name 'NameOfAnOlderRelease'")
    assert mine["tasks", "nothing"].endswith("expected a class or a function that makes a task, as sim.tasks has them")
    assert mine["task", "typo"].startswith("no such group; available: robolearn.tasks, robolearn.worlds, ")
    assert ["tasks", "fine", "other-lab 2.0", "the name fine is taken by bad-lab 0.1"] in found
    for (room, name), fault in mine.items():
        if fault and room != "task":
            assert f"the plug-in {name} (robolearn.{room}) of bad-lab 0.1 is left out: {fault}" in done.stderr


COMMANDS = """
import contextlib, io, json, sys
from robolearn.cli.main import main
told = []
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as done:  # of --help
            code = done.code
    told.append([code, out.getvalue(), err.getvalue().splitlines()[-1:]])
print(json.dumps(told))
"""


def test_commands_go_on_beside_wrong_plugins_and_name_the_one_at_fault(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "film.rag").touch()
    lines = ("collect --help", "tasks --json", "robots --json", "worlds show lost:X", "worlds show odd:X",
             f"dataset import {tmp_path / 'film.rag'} --out {tmp_path / 'out'}")  # fmt: skip
    done = run(installed, "-c", COMMANDS, json.dumps([line.split() for line in lines]))
    assert done.returncode == 0, done.stderr
    listed, tasks, robots, lost, odd, torn = json.loads(done.stdout)
    assert listed[0] == tasks[0] == robots[0] == 0
    assert "fine" in [row["name"] for row in json.loads(tasks[1])["tasks"]]
    arms = {row["name"]: row["package"] for row in json.loads(robots[1])["robots"]}
    assert arms["lab_arm"] == "bad-lab 0.1" and arms["panda"] == ""
    assert lost[0] == odd[0] == 2
    assert lost[2][0].startswith("robolearn: error: task lost:X: bad_lab:gone: got AttributeError: ")
    assert odd[2] == ["robolearn: error: task odd:X: bad_lab:argful: got a Lift, expected an Env"]
    said = "robolearn: error: the plug-in rag (robolearn.formats) of bad-lab 0.1, "
    assert torn[0] == 1 and torn[2][0].startswith(said) and torn[2][0].endswith("OverflowError: the tape is torn")
    assert f"{installed / 'bad_lab.py'}:" in torn[2][0]


SAVE = """
import sys
from policies.policy import ChunkPolicy
from policies.normalize import Normalizer
from policies.settings import POLICIES
from policies.storage.checkpoint import load_policy, save_policy
from sim.registry import make_env
interface = make_env("lift", 1).interface
save_policy(ChunkPolicy(POLICIES["twin"]().build(interface), Normalizer(interface), interface), sys.argv[1])
print(load_policy(sys.argv[1]).config.name)
"""


def test_a_policy_names_the_package_of_its_kind_where_that_is_gone(installed: Path, tmp_path: Path) -> None:
    done = run(installed, "-c", SAVE, str(tmp_path))
    assert done.stdout == "twin\n", done.stderr
    with pytest.raises(BadInput) as said:
        load_policy(tmp_path)  # this process has not the package
    file = f"policy {tmp_path / 'config.json'}: kind"
    assert str(said.value).startswith(f"{file}: got twin, a plug-in of bad-lab 0.1, expected that package, installed.")
