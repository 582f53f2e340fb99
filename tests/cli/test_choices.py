"""What help and errors list comes from the registries: whatever is added there is listed without another line."""

from __future__ import annotations

import importlib
import shutil
from dataclasses import replace

import pytest

import robots
import sim.tasks
from policies.settings import POLICIES
from robolearn.cli.main import main
from robolearn.data import Dataset
from robots.stations import CONTRACTS, contract_file
from sim.experts import QUALITIES
from sim.registry import FAMILIES, Family, WorldConfig


def words(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    """What a command prints, without the frame that it is set in."""
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    return " ".join(capsys.readouterr().out.replace("│", " ").split())


@pytest.mark.parametrize("command", ["deploy", "record", "dataset import", "dataset export"])
def test_help_lists_the_contracts_that_are_there(capsys, monkeypatch, tmp_path, command: str) -> None:
    for file in CONTRACTS.glob("*.yaml"):
        shutil.copy(file, tmp_path)
    shutil.copy(CONTRACTS / "fr3.yaml", tmp_path / "xarm.yaml")
    monkeypatch.setattr(contract_file, "CONTRACTS", tmp_path)
    assert "available: fr3, sim, so101, ur5e, xarm, <path>.yaml" in words(capsys, *command.split())


def test_help_and_errors_list_the_robots_that_are_there(capsys, monkeypatch) -> None:
    monkeypatch.setitem(robots.ROBOTS, "xarm", robots.FR3)
    listed = "available: panda, fr3, ur5e, so101, xarm, panda_pair, fr3_pair, so101_pair"
    assert listed in words(capsys, "benchmark", "safety")
    assert main(["benchmark", "safety", "--robot", "pand"]) == 2
    assert f"{listed} (did you mean panda?)" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["collect", "evaluate", "quickstart", "benchmark rl"])
def test_help_lists_the_arms_that_the_tasks_are_for(capsys, monkeypatch, command: str) -> None:
    monkeypatch.setitem(robots.ROBOTS, "xarm", robots.FR3)
    assert "available: panda, fr3, ur5e, so101, xarm, panda_pair, fr3_pair)" in words(capsys, *command.split())


@pytest.mark.parametrize("command", ["collect", "record", "quickstart", "benchmark rl"])
def test_help_lists_the_qualities_of_demonstrations_that_are_there(capsys, monkeypatch, command: str) -> None:
    monkeypatch.setitem(QUALITIES, "tired", QUALITIES["poor"])
    kinds = "failures, missed, dropped, wrong_place, nearly, pushed_away, frozen, distractor"
    assert f"available: expert, narrow, fair, mixed, poor, {kinds}, tired)" in words(capsys, *command.split())


@pytest.mark.parametrize("command", ["collect", "deploy", "record"])
def test_help_lists_the_tasks_that_are_there(capsys, monkeypatch, command: str) -> None:
    monkeypatch.setitem(sim.tasks.TASKS, "stack", sim.tasks.TASKS["lift"])
    ours = "lift, lift_to, pick_place, peg_insert, peg_insert_tight, lift_two, handover, lift_back, pick_place_back"
    assert f"available: {ours}, stack" in words(capsys, command)


def test_a_task_is_a_file_and_a_line(capsys, monkeypatch, tmp_path) -> None:
    (tmp_path / "hoist.py").write_text(
        "from dataclasses import dataclass\nfrom sim.tasks.lift import Lift\n\n\n"
        "@dataclass(frozen=True)\nclass Hoist(Lift):\n    name: str = 'hoist'\n    max_episode_steps: int = 80\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sim.tasks.TASKS, "hoist", importlib.import_module("hoist").Hoist)
    assert "pick_place_back, hoist, robosuite:<Name>" in words(capsys, "finetune")
    out = tmp_path / "demonstrations"
    assert main(["collect", "--task", "hoist", "--quality", "expert", "--episodes", "2", "--out", str(out)]) == 0
    assert "100.0% of them, expert demonstrations of hoist" in capsys.readouterr().out


def test_a_robot_is_a_spec_and_a_line(capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.setitem(robots.ROBOTS, "longarm", replace(robots.PANDA, name="longarm"))
    assert "so101, longarm" in words(capsys, "collect")
    out = tmp_path / "demonstrations"
    assert main(["collect", "--robot", "longarm", "--quality", "expert", "--episodes", "2", "--out", str(out)]) == 0
    assert "100.0% of them" in capsys.readouterr().out
    assert Dataset.open(out).interface.embodiment == "longarm"
    assert main(["collect", "--robot", "shortarm", "--out", str(tmp_path / "other")]) == 2
    assert "longarm" in capsys.readouterr().err


def test_a_family_of_worlds_is_a_file_and_a_line(capsys, monkeypatch, tmp_path) -> None:
    (tmp_path / "pendulums.py").write_text(
        "from sim.adapters.gym_env import make_gym\n\n\n"
        "def make(config, num_envs):\n"
        "    return make_gym('gym:gymnasium:Pendulum-v1', num_envs, workers=0)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(FAMILIES, "swing", Family("swing:<Name>", "pendulums:make"))
    assert ", libero:<suite>/<number>, swing:<Name>)" in words(capsys, "evaluate")
    assert main(["collect", "--task", "lit", "--out", str(tmp_path / "out")]) == 2
    assert "swing:<Name>" in capsys.readouterr().err
    assert main(["collect", "--task", "swing:Up", "--looks", "mild", "--out", str(tmp_path / "out")]) == 2
    assert "task swing:Up: got option looks, expected an embedded task" in capsys.readouterr().err
    env = WorldConfig("swing:Up").build(2)
    assert (env.num_envs, env.interface.action.size) == (2, 1)
    env.close()


@pytest.mark.long
@pytest.mark.parametrize("command", ["train", "distill"])
@pytest.mark.parametrize("kind", POLICIES)
def test_every_kind_of_policy_has_its_flags(command: str, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--policy", kind, "--help"])
    assert ended.value.code == 0
    assert f"{FIRST_FLAG[kind]} " in capsys.readouterr().out


FIRST_FLAG = {
    "flow": "--denoise-steps",
    "diffusion": "--noise-schedule-steps",
    "regression": "--regression-steps",
    "act": "--kl-weight",
}
