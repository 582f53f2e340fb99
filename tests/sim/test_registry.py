"""Task names → worlds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sim.registry
from robolearn.core import BadInput
from robolearn.runs.run import check_same
from sim.embedded.world import MujocoWorlds
from sim.registry import WorldConfig, make_env, robot_names, task_names


def test_embedded_tasks_by_name() -> None:
    ways_back = ("lift_back", "pick_place_back")
    assert task_names() == (
        "lift",
        "lift_to",
        "pick_place",
        "peg_insert",
        "peg_insert_tight",
        "lift_two",
        "handover",
        *ways_back,
    )
    for name in task_names():
        env = make_env(name, 2, threads=1)
        assert isinstance(env, MujocoWorlds)
        assert (env.task, env.num_envs, env.interface.action_kind) == (name, 2, "tcp_delta")
        assert env.prompt and env.max_episode_steps > 0


def test_options_reach_the_world() -> None:
    env = make_env("lift", 1, reward="dense", shaping_gamma=0.5, action_kind="joint_position", threads=1)
    env.reset(seed=0)
    assert env.interface.action_kind == "joint_position"
    assert env.step(env.action_space.sample())[1][0] < -0.001  # γ Φ − Φ with a small γ
    assert env.batch.nthread == 1


@pytest.mark.parametrize("task", ["lft", "", "isaac:Lift", "Lift", "robosuite", "gym"])
def test_an_unknown_task_lists_the_known(task: str) -> None:
    with pytest.raises(
        BadInput,
        match="lift, lift_to, pick_place, peg_insert, peg_insert_tight, lift_two, handover, lift_back, pick_place_back"
        ", robosuite:<Name>",
    ):
        make_env(task, 1)


def test_robots_by_name() -> None:
    assert robot_names() == ("panda", "fr3", "ur5e", "so101", "panda_pair", "fr3_pair")
    assert make_env("lift", 1, robot="so101", threads=1).interface.action_kind == "joint_position"
    assert make_env("lift", 1, threads=1).interface.embodiment == "panda"
    assert (
        make_env("lift", 1, robot="ur5e", threads=1).interface.observation["proprio"].names[0] == "shoulder_pan_joint"
    )
    with pytest.raises(
        BadInput, match=r"robot: got fr33; available: panda, fr3, ur5e, so101, panda_pair, fr3_pair \(did you mean fr3"
    ):
        make_env("lift", 1, robot="fr33")


def test_a_near_miss_is_suggested() -> None:
    with pytest.raises(BadInput, match="did you mean peg_insert"):
        make_env("peg_inset", 1)


@pytest.mark.parametrize("task", ["gym:nowhere:Id-v0", "robosuite:Lift"])
@pytest.mark.parametrize(
    "option",
    [{"reward": "dense"}, {"action_kind": "joint_position"}, {"robot": "fr3"},
     {"start_range": 0.5}],
    ids=str,
)  # fmt: skip
def test_adapted_tasks_refuse_what_they_cannot_do(task: str, option: dict[str, Any]) -> None:
    name = next(iter(option)).replace("_", " ")
    with pytest.raises(BadInput, match=f"task {task}: got option {name}, expected an embedded task"):
        make_env(task, 1, **option)


@pytest.mark.parametrize(("task", "threads", "workers"), [("gym:a:B-v0", 3, 3), ("robosuite:Lift", 0, None)])
def test_adapted_tasks_get_their_name_and_workers(
    monkeypatch: pytest.MonkeyPatch, task: str, threads: int, workers: int | None
) -> None:
    seen = []

    def make(*args: Any, **options: Any) -> str:
        seen.append((args, options))
        return "the worlds"

    monkeypatch.setattr("sim.adapters.gym_env.make_gym", make)
    monkeypatch.setattr("sim.adapters.robosuite_env.make_robosuite", make)
    made = sim.registry.make_env(task, 5, threads=threads, cameras=("render",), image_size=40)
    assert made == "the worlds"
    assert seen == [((task, 5), {"workers": workers, "cameras": ("render",), "image_size": 40})]


@pytest.mark.parametrize("name", ["arm.yaml", "station"])
def test_a_run_goes_on_with_the_dynamics_that_it_began_with_not_with_a_file_of_that_name(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "station").mkdir()
    file = tmp_path / "arm.yaml" if name == "arm.yaml" else tmp_path / "station" / "dynamics.json"
    file.write_text('{"parameters": {"gain": 0.9}}\n')
    world = WorldConfig("lift", dynamics=str(tmp_path / name))
    began = world.drawn()
    check_same(began, world.drawn(), "run x")
    file.write_text('{"parameters": {"gain": 0.8}}\n')
    with pytest.raises(BadInput, match="dynamics_sha256"):
        check_same(began, world.drawn(), "run x")
    assert world.words() == ["--task", "lift", "--dynamics", world.dynamics] and WorldConfig("lift").drawn() == {}


def test_an_arm_that_nobody_brings_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """A policy's, where a plug-in is not installed any more."""
    world, interface = WorldConfig("lift"), make_env("lift", 1).interface
    assert world.matching(interface).arm == "panda" and not caplog.messages
    assert world.matching(replace(interface, embodiment="kinova3")).arm == "panda"
    (said,) = caplog.messages
    assert said.startswith("no arm here is called kinova3: the package or the folder (ROBOLEARN_ROBOTS) that brings it")
    caplog.clear()
    WorldConfig("lift", robot="fr3").matching(replace(interface, embodiment="kinova3"))  # another one is asked for
    assert not caplog.messages
