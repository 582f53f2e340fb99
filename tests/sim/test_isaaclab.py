"""Isaac Lab's worlds: the near side on MuJoCo in another interpreter, and what the far side says to Isaac Lab.

The whole way with Isaac Lab itself is ``make test-isaaclab``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.core import BadInput, RobolearnError
from robolearn.core.se3 import quat_to_matrix
from robots import PANDA
from sim.adapters import isaaclab
from sim.bridge.far import isaaclab as far_isaaclab
from sim.experts import make_expert
from sim.registry import WorldConfig
from sim.tasks import TASKS

SIM = Path(__file__).parent


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Path:
    """An interpreter with MuJoCo in the place of Isaac Lab."""
    monkeypatch.chdir(SIM)
    monkeypatch.setattr(isaaclab, "BUILDER", "mujoco_engine:build")
    return Path(sys.executable)


@contextmanager
def worlds(task: str, other: Path, count: int, **options: Any) -> Iterator[Any]:
    env = WorldConfig(task, world_python=other, **options).build(count)
    try:
        yield env
    finally:
        env.close()


@pytest.mark.long
@pytest.mark.parametrize("action_kind", ["tcp_delta", "joint_position"])
def test_the_arm_moves_as_in_the_task_of_the_same_name(other: Path, action_kind: str) -> None:
    ours = WorldConfig("lift", action_kind=action_kind).build(4)
    with worlds("isaaclab:lift", other, 4, action_kind=action_kind) as env:
        assert (env.task, env.prompt, env.max_episode_steps) == ("isaaclab:lift", "lift the cube", 64)
        assert env.interface == ours.interface
        for key, value in ours.reset(seed=5)[0].items():
            np.testing.assert_array_equal(env.reset(seed=5)[0][key], value)
        rng = np.random.default_rng(0)
        scale = np.array([1.0, 1.0, 0.3, 1.0, 1.0, 1.0, 1.0] if action_kind == "tcp_delta" else [0.1] * 8)
        for _ in range(12):
            actions = (scale * rng.uniform(-1, 1, (4, len(scale)))).astype(np.float32)
            seen, expected = env.step(actions)[0], ours.step(actions)[0]
            np.testing.assert_allclose(seen["proprio"], expected["proprio"], atol=2e-5)
            np.testing.assert_allclose(seen["objects"], expected["objects"], atol=1e-4)  # masses differ, and settle
        assert np.abs(seen["objects"][:, 6] - 1).max() > 0.05  # the cubes lie turned
    ours.close()


@pytest.mark.long
def test_scripts_solve_it_and_the_last_observation_is_handed_over(other: Path) -> None:
    with worlds("isaaclab:lift", other, 6) as env:
        seen, _ = env.reset(seed=1)
        first = seen["objects"][:, :3].copy()
        expert = make_expert("isaaclab:lift", env.interface, 6, "expert", 0)
        expert.reset(np.ones(6, bool))
        active, heights = np.ones(6, bool), np.zeros(6)
        while active.any():
            seen, reward, terminated, truncated, infos = env.step(expert.command(seen), active=active)
            ended = active & terminated
            assert (infos["success"] == terminated).all() and (reward == terminated).all() and not truncated.any()
            heights[ended] = infos["final_obs"]["objects"][ended, 2]
            active &= ~ended
        assert (heights > 0.08).all() and (heights < 0.10).all()
        np.testing.assert_allclose(seen["objects"][:, 2], 0.02, atol=1e-3)  # of the next episodes
        assert not np.allclose(seen["objects"][:, :2], first[:, :2], atol=0.005)
        np.testing.assert_allclose(env.reset(seed=1)[0]["objects"][:, :3], first)


@pytest.mark.long
def test_worlds_rest_and_time_limits_are_no_ends(other: Path) -> None:
    with worlds("isaaclab:pick_place", other, 3, reward="dense") as env:
        down = np.tile(np.array([0, 0, 1, 0, 0, 0, 1], np.float32), (3, 1))

        def go(steps: int, active: Any = None) -> tuple[Any, ...]:
            return [env.step(down, active=active) for _ in range(steps)][-1]

        env.reset(seed=2)
        seen = go(2)[0]  # the arms move
        active = np.array([True, False, True])
        after, _, _, _, infos = go(3, active)
        assert infos["steps"].tolist() == [1, 0, 1]
        for key, value in seen.items():
            np.testing.assert_array_equal(after[key][1], value[1])
        assert (after["proprio"][[0, 2], 10] < seen["proprio"][[0, 2], 10] - 0.01).all()
        after = go(3, ~active)[0]
        env.reset(seed=2)
        for key, value in go(5)[0].items():  # rest leaves no trace
            np.testing.assert_allclose(after[key], value, atol=1e-4)
        up = np.zeros((3, 200, 7), np.float32)
        _, _, terminated, truncated, infos = env.step_chunk(up)
        assert truncated.all() and not terminated.any() and env.snapshot() is None


def test_scenes_come_in_pieces_that_hold_the_whole() -> None:
    found = isaaclab.pieces(PANDA, TASKS["pick_place"]())
    assert list(found["things"]) == ["cube"] and "target" not in found["fixed"] + found["things"]["cube"]
    assert "table" in found["fixed"] and "freejoint" not in found["fixed"] and "table" not in found["things"]["cube"]
    assert found["joints"]["panda_joint5"] == [0.0, 300.0, 0.0, 12.0]
    assert found["joints"]["panda_finger_left"] == [0.04, 800.0, 20.0, 35.0]


@pytest.mark.parametrize(
    ("task", "options", "said"),
    [
        ("isaaclab:lift", {}, "got no isaaclab installed.*robolearn worlds install isaaclab .8.* MB"),
        ("isaaclab:peg_insert", {}, "task of isaaclab: got peg_insert; available: lift, lift_to, pick_place"),
        ("isaaclab:lift", {"robot": "so102"}, "robot: got so102"),
        ("isaaclab:lift", {"dynamics": "mild"}, "got option dynamics"),
        ("isaaclab:lift", {"looks": "mild"}, "got option looks"),
        ("lift", {"sim_device": "cpu"}, "got option sim device, .*available: isaaclab:<task>"),
    ],
)
def test_what_it_has_not_is_refused_in_a_line(
    task: str, options: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(BadInput, match=said):
        WorldConfig(task, **options).build(1)


@pytest.mark.long
def test_an_exit_of_isaac_lab_is_named(other: Path) -> None:
    with pytest.raises(RobolearnError, match="world 0 of isaaclab:lift failed: SystemExit: 1"):
        WorldConfig("isaaclab:lift", world_python=other, sim_device="cuda").build(1)


def test_tasks_are_listed_before_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["worlds", "show", "isaaclab"]) == 0
    shown = capsys.readouterr().out
    assert "not installed" in shown and "3: lift, lift_to, pick_place" in shown and "isaaclab==3.0.0" in shown


# --- what is said to Isaac Lab, whose quaternions are xyzw and whose angular velocities are the world's


class Asset:
    """An articulation or a rigid object, in Isaac Lab's own conventions."""

    def __init__(self, torch: Any, count: int, names: list[str]) -> None:
        self.joint_names, zeros = names, lambda n: SimpleNamespace(torch=torch.zeros(count, n))
        self.data = SimpleNamespace(joint_pos=zeros(len(names)), joint_vel=zeros(len(names)), root_link_pose_w=zeros(7),
                                    root_link_vel_w=zeros(6))  # fmt: skip
        self.actuators = SimpleNamespace(target_command=self)

    def set_position_index(self, *, value: Any, joint_ids: Any) -> None:
        self.data.joint_pos.torch[:, joint_ids.long()] = value

    def write_joint_position_to_sim_index(self, *, position: Any, joint_ids: Any, env_ids: Any) -> None:
        self.data.joint_pos.torch[env_ids.long()[:, None], joint_ids.long()] = position

    def write_joint_velocity_to_sim_index(self, *, velocity: Any, joint_ids: Any, env_ids: Any) -> None:
        self.data.joint_vel.torch[env_ids.long()[:, None], joint_ids.long()] = velocity

    def write_root_link_pose_to_sim_index(self, *, root_pose: Any, env_ids: Any) -> None:
        self.data.root_link_pose_w.torch[env_ids.long()] = root_pose

    def write_root_link_velocity_to_sim_index(self, *, root_velocity: Any, env_ids: Any) -> None:
        self.data.root_link_vel_w.torch[env_ids.long()] = root_velocity


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The far side's module, with a stand-in of each package that it imports and this interpreter lacks."""
    modules = {
        "isaaclab.actuators": ("ImplicitActuatorCfg",),
        "isaaclab.app": ("launch_simulation",),
        "isaaclab.assets": ("ArticulationCfg", "AssetBaseCfg", "RigidObjectCfg"),
        "isaaclab.scene": ("InteractiveScene", "InteractiveSceneCfg"),
        "isaaclab.sim": ("SimulationCfg", "SimulationContext", "UsdFileCfg"),
        "isaaclab_newton.physics": ("MJWarpSolverCfg", "NewtonCfg"),
        "mujoco_usd_converter": ("Converter",),
        "pxr": ("Sdf", "Usd"),
    }
    for name, members in modules.items():
        module = ModuleType(name)
        for member in members:
            setattr(module, member, None)
        for part in {name.partition(".")[0], name}:
            monkeypatch.setitem(sys.modules, part, module)
    monkeypatch.delitem(sys.modules, "sim.bridge.far.isaaclab_scene", raising=False)
    yield importlib.import_module("sim.bridge.far.isaaclab_scene")
    sys.modules.pop("sim.bridge.far.isaaclab_scene", None)


def test_states_are_turned_into_isaac_labs_conventions_and_back(far: Any) -> None:
    torch = importlib.import_module("torch")
    robot, thing = Asset(torch, 3, ["b", "a"]), Asset(torch, 3, [])
    scene = far.IsaacScene(robot, [thing], ["a", "b"], torch.arange(9.0).reshape(3, 3), lambda: None)
    quat = np.array([0.5, 0.1, -0.7, 0.5], np.float32)  # wxyz
    quat /= np.linalg.norm(quat)
    qpos = np.concatenate([[0.1, 0.2], [0.5, -0.1, 0.3], quat]).astype(np.float32)[None]
    qvel = np.array([[1.0, 2.0, 0.3, 0.4, 0.5, 2.0, -1.0, 0.5]], np.float32)
    scene.put(np.array([1]), qpos, qvel)
    assert robot.data.joint_pos.torch[1].tolist() == pytest.approx([0.2, 0.1])
    np.testing.assert_allclose(thing.data.root_link_pose_w.torch[1], [3.5, 3.9, 5.3, *quat[1:], quat[0]], rtol=1e-6)
    spin = quat_to_matrix(quat[None].astype(float))[0] @ qvel[0, 5:]
    np.testing.assert_allclose(thing.data.root_link_vel_w.torch[1], [0.3, 0.4, 0.5, *spin], rtol=1e-5)
    found = scene.state()
    np.testing.assert_allclose(found[0][1], qpos[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[1][1], qvel[0], rtol=1e-5)
    assert not found[1][[0, 2]].any()


@pytest.mark.parametrize(("found", "got"), [("2.3.1", "2\\.3\\.1"), (PackageNotFoundError("isaaclab"), "no isaaclab")])
def test_another_version_names_what_mends_it(found: Any, got: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far_isaaclab, "version", Mock(side_effect=[found]))
    with pytest.raises(BadInput, match=rf"got {got}, expected 3\.x.*Run: robolearn worlds install isaaclab"):
        far_isaaclab.build("isaaclab:lift", 0.005, "auto")


def test_a_gpu_is_taken_where_there_is_one_and_refused_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert [far_isaaclab.device_for(wanted) for wanted in ("auto", "cpu", "cuda")] == ["cuda:0", "cpu", "cuda:0"]
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert [far_isaaclab.device_for(wanted) for wanted in ("auto", "cpu")] == ["cpu", "cpu"]
    with pytest.raises(BadInput, match="--sim-device: got cuda, expected cpu: the worlds' interpreter finds no GPU"):
        far_isaaclab.device_for("cuda")
