"""``robolearn worlds``: what is listed, installed and removed; a family in an environment of its own, end to end."""

from __future__ import annotations

import importlib
import json
import re
import sys
import zipfile
from pathlib import Path

import mujoco
import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.core import BadInput
from robolearn.data import Dataset
from sim.bridge.environment import STAMP, WorldEnvironment
from sim.experts import demonstrator
from sim.registry import FAMILIES, Family, WorldConfig, task_names

SIM = Path(__file__).parents[1] / "sim"
sys.path.insert(0, str(SIM))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of environments, empty; the worlds of the stand-in lie in the current folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(SIM)
    environment = WorldEnvironment("stand_in", ("stand-in==1.0",), 12)
    made_by = "sim.adapters.other_makers:make"
    family = Family("stand_in:<task>", made_by, environment=environment, far="far_stand_in", runs_elsewhere=True)
    monkeypatch.setitem(FAMILIES, "stand_in", family)
    return tmp_path / "cache/robolearn/worlds"


def installed(cache: Path) -> None:
    """The stand-in's environment, as `install` would leave it."""
    importlib.import_module("lent_python").make(cache / "stand_in")
    (cache / "stand_in" / STAMP).write_text(json.dumps({"packages": ["stand-in==1.0"]}))


def test_all_families_are_listed_with_what_they_need(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["worlds", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["worlds"]}
    assert set(rows) == {name or "robolearn" for name in FAMILIES}
    assert rows["robolearn"]["state"] == "here" and rows["metaworld"]["state"] == "not installed"
    assert rows["metaworld"]["packages"][0].startswith("metaworld==") and rows["metaworld"]["megabytes"] > 100
    assert rows["robolearn"]["count"] == len(task_names()) and rows["gym"]["count"] is None
    assert (rows["metaworld"]["count"], rows["metaworld"]["gpu"]) == (50, False)
    assert main(["worlds"]) == 0
    table = capsys.readouterr().out
    for line in (r"--task\s+tasks\s+state\s+expert\s+cameras\s+GPU", r"metaworld:<task>\s+50\s.*its own.*\sno\b"):
        assert re.search(line, table)
    assert main(["worlds", "show", "ogbench"]) == 0
    assert "tasks         5, listed once it is installed" in capsys.readouterr().out
    assert main(["worlds", "show", "robolearn"]) == 0
    assert "lift, lift_to, pick_place" in capsys.readouterr().out


def test_one_that_is_not_installed_names_the_command_that_mends_it(cache: Path, capsys) -> None:
    line = "got no stand_in installed, expected its environment. Run: robolearn worlds install stand_in (12 MB)"
    for command in (["worlds", "show", "stand_in:near"], ["collect", "--task", "stand_in:near", "--out", "x"]):
        assert main(command) == 2
        err = capsys.readouterr().err
        assert line in err and err.count("\n") == 1
    assert main(["worlds", "show", "stand_in"]) == 0
    assert "listed once it is installed" in capsys.readouterr().out
    assert main(["worlds", "remove", "stand_in"]) == 2
    assert "world stand_in: got no environment" in capsys.readouterr().err
    assert main(["worlds", "show", "metawrld"]) == 2
    assert "did you mean metaworld?" in capsys.readouterr().err
    assert main(["worlds", "install", "gym"]) == 2
    assert "got gym, which needs none; available: metaworld" in capsys.readouterr().err
    installed(cache)
    (cache / "stand_in" / STAMP).write_text(json.dumps({"packages": ["stand-in==0.9"]}))
    with pytest.raises(BadInput, match="no stand_in installed"):  # an older one is none
        WorldConfig("stand_in:near").build(1)


@pytest.mark.long
def test_an_interpreter_that_lacks_the_package_is_named_with_the_command(cache: Path, tmp_path: Path, capsys) -> None:
    python = importlib.import_module("lent_python").make(tmp_path / "theirs")
    install = f"{python} -m pip install metaworld==3.1.1 packaging. Or without --world-python: robolearn worlds install"
    collect = ["collect", "--task", "metaworld:reach-v3", "--out", str(tmp_path / "set")]
    for command in (["worlds", "show", "metaworld:reach-v3"], ["worlds", "show", "metaworld"], collect):
        assert main([*command, "--world-python", python]) == 2
        err = capsys.readouterr().err
        assert f"packages of {python}: got no metaworld. Run: {install} metaworld (360 MB)" in err.splitlines()[-1]
    importlib.import_module("lent_python").make(cache / "ogbench")  # an environment that has lost its packages
    (cache / "ogbench" / STAMP).write_text(json.dumps({"packages": ["ogbench==1.2.2"]}))
    assert main(["worlds", "show", "ogbench"]) == 2
    assert "got no ogbench. Run: robolearn worlds install ogbench (540 MB)" in capsys.readouterr().err


@pytest.mark.long
def test_worlds_show_takes_an_interpreter(cache: Path, tmp_path: Path, capsys) -> None:
    flag = ["--world-python", importlib.import_module("lent_python").make(tmp_path / "theirs")]
    assert main(["worlds", "show", "stand_in", *flag]) == 0
    assert "2: near, wide" in capsys.readouterr().out
    assert main(["worlds", "show", "stand_in:near", *flag, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["demonstrator"] is True
    for name, got in (("robosuite", "world robosuite: got option world python; available: gym, metaworld"),
                      ("lift", "task lift: got option world python, expected a task that has it")):  # fmt: skip
        assert main(["worlds", "show", name, *flag]) == 2
        assert got in capsys.readouterr().err


@pytest.mark.long
def test_an_installed_family_demonstrates_and_is_judged(cache: Path, tmp_path: Path, capsys) -> None:
    installed(cache)
    assert main(["worlds", "show", "stand_in"]) == 0
    assert "2: near, wide" in capsys.readouterr().out
    assert main(["worlds", "show", "stand_in:near"]) == 0
    shown = capsys.readouterr().out
    assert "by the point" in shown and "10 Hz" in shown and "at most 40 steps" in shown and "it moves" in shown
    assert main(["worlds", "show", "stand_in:nar"]) == 2
    assert "stand-in task: got nar; available: near, wide (did you mean near?)" in capsys.readouterr().err
    out = str(tmp_path / "set")
    flags = ["--task", "stand_in:near", "--episodes", "6", "--worlds", "3", "--out", out, "--sim-threads", "2"]
    assert main(["collect", *flags, "--quality", "mixed"]) == 2
    assert "got mixed; available: expert" in capsys.readouterr().err
    assert main(["collect", *flags, "--json"]) == 0  # its own expert has one quality, which need not be said
    result = json.loads(capsys.readouterr().out)
    assert (result["robot"], result["episodes"], result["expert_success"]) == ("point", 6, 1.0)
    stored = Dataset.open(out)
    for i in range(6):
        episode = stored.episode(i)
        place = episode.observation["proprio"].astype(np.float64)
        # The expert of the state that was observed, by hand: a slow first step, then straight on, clipped.
        gain = np.where(np.arange(len(place)) == 0, 0.3, 5.0)[:, None]
        expected = np.clip(gain * (np.array([0.5, 0.0]) - place) / 0.1, -1.0, 1.0)
        np.testing.assert_allclose(episode.action, expected, atol=1e-5)
        assert episode.reward[-1] == 1.0 and episode.reward[:-1].sum() == 0.0


def test_a_world_without_an_expert_has_none() -> None:
    env = WorldConfig("gym:gymnasium:Pendulum-v1").build(1)
    with pytest.raises(BadInput, match="scripted expert for task"):
        demonstrator("gym:gymnasium:Pendulum-v1", env, "expert", 0)
    with pytest.raises(BadInput, match="expert of gym:gymnasium:Pendulum-v1: missing"):
        env.demonstrate()  # type: ignore[attr-defined]
    env.close()


@pytest.mark.long
def test_an_environment_is_made_with_pip_and_removed(cache: Path, tmp_path: Path, capsys, caplog, monkeypatch) -> None:
    """A wheel made here, so that no network is needed: 'maker 2.0', one module."""
    wheel = tmp_path / "maker-2.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("maker.py", "VERSION = 2\n")
        file.writestr("maker-2.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: maker\nVersion: 2.0\n")
        file.writestr("maker-2.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("maker-2.0.dist-info/RECORD", "")
    made_by = "sim.adapters.other_makers:make"

    def family(*packages: str, megabytes: int = 20) -> Family:
        return Family("maker:<task>", made_by, environment=WorldEnvironment("maker", packages, megabytes), far="maker")

    monkeypatch.setitem(FAMILIES, "maker", family(str(wheel)))
    assert main(["worlds", "install", "maker", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert f"{wheel}: 20 MB in {cache / 'maker'}" in caplog.messages[0]  # said before
    assert result["bytes"] > 5_000_000 and (cache / "maker/bin/python").exists()
    assert next((cache / "maker/lib").glob("*/site-packages/maker.py")).read_text() == "VERSION = 2\n"
    assert FAMILIES["maker"].environment.installed  # type: ignore[union-attr]
    assert main(["worlds", "remove", "maker"]) == 0
    assert not (cache / "maker").exists()

    monkeypatch.setitem(FAMILIES, "maker", family(str(tmp_path / "none-1.0-py3-none-any.whl")))
    assert main(["worlds", "install", "maker"]) == 1
    assert "pip install" in (err := capsys.readouterr().err) and "ERROR" in err
    assert not (cache / "maker").exists()
    monkeypatch.setitem(FAMILIES, "maker", family("maker", megabytes=10**9))
    assert main(["worlds", "install", "maker"]) == 2
    assert "MB free, expected" in capsys.readouterr().err


def test_our_tasks_are_listed_with_the_arms_that_do_them(capsys: pytest.CaptureFixture[str]) -> None:
    """The arms that are named make a world of the task, and no others."""
    assert main(["tasks", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["tasks"]}
    assert rows["lift"]["words"] == "lift the cube" and rows["lift"]["seconds"] == pytest.approx(3.2)
    for name, row in rows.items():
        assert {"panda", "fr3"} <= set(row["robots"]) or set(row["robots"]) == {"panda_pair", "fr3_pair"}
        if "so101" in row["robots"]:
            WorldConfig(name, robot="so101").build(1).close()
        else:
            with pytest.raises(BadInput, match="so101"):
                WorldConfig(name, robot="so101").build(1)
    assert main(["tasks"]) == 0 and "peg_insert_tight" in capsys.readouterr().out


def test_arms_are_listed_as_mujoco_reads_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["robots", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["robots"]}
    assert rows["ur5e"]["stations"] == ["ur5e"] and rows["panda"]["stations"] == ["sim"] and not rows["fr3"]["own"]
    for row in rows.values():
        model = mujoco.MjModel.from_xml_path(row["model"])
        hinges = int((model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE).sum())
        assert hinges - row["joints"] in (0, 1), "the jaw of one turns, too"
    assert main(["robots"]) == 0 and "80 mm" in capsys.readouterr().out
    assert main(["list"]) == 0 and "robolearn COMMAND" in capsys.readouterr().out
