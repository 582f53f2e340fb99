"""Demonstrations of an SO-101 as LeRobot records them, in degrees: imported, learned from by camera, deployed.

The pose in which the demonstrations end is worked out by hand, and the driver's joint states say where the arm is.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rclpy.node import Node

sys.path.insert(0, str(Path(__file__).parent))
from running import Running

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2 import messages, qos
from hardware.ros2.process import Background
from hardware.safety import SafetyFilter
from robolearn.cli.main import main
from robolearn.data.lerobot.tables import tasks_table
from robots.stations import CONTRACTS, load_contract
from sim import make_env

pytestmark = pytest.mark.long

DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 5
JOINTS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll")
DEGREES = np.array([30.0, -20.0, 15.0, 50.0, 10.0])  # where every episode ends; all less than one radian
RADIANS = np.array([0.523599, -0.349066, 0.261799, 0.872665, 0.174533])  # by π / 180
OPEN_PERCENT, JAW = 40.0, 0.593413  # of −10° to 100°, as its MJCF and the maker's drawing have it: 34°, in radians
EPISODES, FRAMES, HZ, EDGE = 6, 40, 20, 48
LED = np.minimum(1.0, np.arange(1, FRAMES + 1) / 4)[:, None]  # share of the way that the leader has gone by each frame
IMPORT = ("--embodiment", "so101", "--action-kind", "joint_position")
CAMERA = f"""
cameras:
  front: {{topic: camera/front/image_raw, type: sensor_msgs/msg/Image, size: [{EDGE}, {EDGE}], max_age_s: 0.5}}
"""


@pytest.fixture(scope="module")
def filmed() -> tuple[np.ndarray, np.ndarray]:
    """Pictures (E, T, h, w, 3) and joints (E, T, 5) [rad] of an arm that follows its leader into the pose."""
    pictures, joints = [], []
    low, high = np.radians([[-110, -100, -96.83, -95, -157.21], [110, 100, 96.83, 95, 162.79]])
    told = 2 * (LED * RADIANS - low) / (high - low) - 1
    told = np.insert(told, 5, 2 * OPEN_PERCENT / 100 - 1, axis=1).astype(np.float32)
    with contextlib.closing(make_env("lift", 1, robot="so101", cameras=("front",), image_size=EDGE, threads=1)) as env:
        for e in range(EPISODES):
            seen, _ = env.reset(seed=e)
            for action in told:
                pictures.append(seen["images.front"][0].copy())
                joints.append(seen["proprio"][0, :5].copy())
                seen, *_ = env.step(action[None])
    return np.reshape(pictures, (EPISODES, FRAMES, EDGE, EDGE, 3)), np.reshape(joints, (EPISODES, FRAMES, 5))


@pytest.fixture(scope="module")
def lerobots(filmed: tuple[np.ndarray, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A v3.0 set as LeRobot writes one of an SO-101: names, columns and pictures of its own, none of ours."""

    def make(pose: np.ndarray, factor: float, gripper: float) -> Path:
        root = tmp_path_factory.mktemp("lerobot") / "set"
        pictures, joints = filmed
        rows, episodes, count = [], [], EPISODES * FRAMES
        for i, (e, t) in enumerate(np.ndindex(EPISODES, FRAMES)):
            png = cv2.imencode(".png", pictures[e, t, :, :, ::-1])[1].tobytes()
            rows.append({
                "action": [*(LED[t] * pose), gripper], "observation.state": [*(factor * joints[e, t]), gripper],
                "observation.images.front": {"bytes": png, "path": None}, "timestamp": t / HZ,
                "frame_index": t, "episode_index": e, "index": i, "task_index": 0,
            })  # fmt: skip
        for e in range(EPISODES):
            ends = {"dataset_from_index": e * FRAMES, "dataset_to_index": (e + 1) * FRAMES}
            place = {"data/chunk_index": 0, "data/file_index": 0}
            episodes.append({"episode_index": e, "tasks": ["go"], "length": FRAMES, **place, **ends})
        vector = pa.list_(pa.float32(), 6)
        table = pa.Table.from_pylist(rows)
        for name in ("action", "observation.state"):
            at = table.column_names.index(name)
            table = table.set_column(at, name, table[name].cast(vector))
        for name, made in (
            ("data/chunk-000/file-000.parquet", table),
            ("meta/episodes/chunk-000/file-000.parquet", pa.Table.from_pylist(episodes)),
            ("meta/tasks.parquet", tasks_table(["go"])),
        ):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(made, root / name)
        numbers = {"dtype": "float32", "shape": [6], "names": [f"{name}.pos" for name in (*JOINTS, "gripper")]}
        picture = {"dtype": "image", "shape": [EDGE, EDGE, 3], "names": ["height", "width", "channels"]}
        one = {"dtype": "int64", "shape": [1], "names": None}
        index = dict.fromkeys(("frame_index", "episode_index", "index", "task_index"), one)
        features = {"action": numbers, "observation.state": numbers, "observation.images.front": picture, **index}
        info = {
            "codebase_version": "v3.0", "robot_type": "so101_follower", "total_episodes": EPISODES,
            "total_frames": count, "total_tasks": 1, "fps": HZ,
            "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
            "features": {**features, "timestamp": {"dtype": "float32", "shape": [1], "names": None}},
        }  # fmt: skip
        (root / "meta/info.json").write_text(json.dumps(info))
        return root

    return make


@pytest.fixture
def station(tmp_path: Path) -> Path:
    """The shipped contract of the SO-101, with a camera, and the machine code of its filter."""
    (tmp_path / "so101.yaml").write_text((CONTRACTS / "so101.yaml").read_text() + CAMERA)
    contract = load_contract(str(tmp_path / "so101.yaml"))
    SafetyFilter(contract.robot, contract.joints, contract.limits, 1.0 / contract.stream_hz)
    return tmp_path / "so101.yaml"


def trained(data: Path, out: Path, steps: int = 300) -> int:
    words = ("--observe", "images.front", "--steps", str(steps), "--batch", "16", "--initial-noise-std", "0")
    return main(["train", "--data", str(data), "--out", str(out), *words])


@pytest.mark.realtime
@pytest.mark.parametrize(
    ("pose", "factor", "gripper", "units"),
    [
        (DEGREES, 57.29578, OPEN_PERCENT, ("degrees", "percent")),
        (RADIANS, 1.0, OPEN_PERCENT / 100, ("radians", "share")),  # all of it within [-1, 1]
    ],
    ids=["degrees", "radians"],
)
def test_the_arm_ends_in_the_pose_of_the_demonstrations(
    lerobots: Callable[..., Path], station: Path, tmp_path: Path, pose: np.ndarray, factor: float, gripper: float,
    units: tuple[str, str],
) -> None:  # fmt: skip
    data, run = tmp_path / "data", tmp_path / "run"
    words = ("--unit", units[0], "--gripper-unit", units[1])
    assert main(["dataset", "import", str(lerobots(pose, factor, gripper)), "--out", str(data), *IMPORT, *words]) == 0
    assert trained(data, run) == 0
    seen: list[dict[str, float]] = []
    with Background(DOMAIN) as ros:
        node = ros.add(Node("observer", context=ros.context))
        heard = lambda message: seen.append(dict(zip(message.name, message.position, strict=True)))  # noqa: E731
        node.create_subscription(messages.JointState, "/follower/joint_states", heard, qos.sensor(50))
        words = ("deploy", "--rehearse", "--robot", station, "--policy", run, "--episodes", 1, "--seconds", 5)
        running = Running(tmp_path / "logs", *words, domain=DOMAIN)
        code, out, err = running.end()
    assert code == 0, err + running.log()
    result = json.loads(out.splitlines()[-1])
    assert result["violations"] == 0 and result["monitor"]["commands"] > 300, result
    way = np.degrees([[one[name] for name in JOINTS] for one in seen])
    assert np.abs(way[0] - DEGREES).max() > 20, "it began elsewhere"
    np.testing.assert_allclose(way[-1], DEGREES, atol=2.0)
    assert seen[-1]["gripper"] == pytest.approx(JAW, abs=0.05)


def refused(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    """The one line that a command gives which ends with exit code 2."""
    capsys.readouterr()
    assert main([str(arg) for arg in args]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("robolearn: error: ") and "\n" not in said, said
    return said


@pytest.mark.parametrize(
    ("pose", "factor", "gripper", "wrong"),
    [
        (DEGREES, 57.29578, OPEN_PERCENT, {"nothing": "span -20 … 50: missing", "radians": "shoulder_pan: got "}),
        (RADIANS, 1.0, OPEN_PERCENT / 100, {"nothing": "missing", "degrees": "which are radians, expected --unit rad"}),
    ],
    ids=["degrees", "radians"],
)
def test_units_that_are_not_stated_or_wrong_move_no_arm(
    lerobots: Callable[..., Path], station: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], pose: np.ndarray,
    factor: float, gripper: float, wrong: dict[str, str],
) -> None:  # fmt: skip
    """Refused by the import that is to make joint positions, or else by the deployment, before a node is started."""
    theirs = lerobots(pose, factor, gripper)
    for unit, says in wrong.items():
        words = () if unit == "nothing" else ("--unit", unit, "--gripper-unit", "percent" if gripper > 1 else "share")
        assert says in refused(capsys, "dataset", "import", theirs, "--out", tmp_path / "set", *IMPORT, *words)
        assert not (tmp_path / "set").exists()
    assert main(["dataset", "import", str(theirs), "--out", str(tmp_path / "set"), *IMPORT[:2]]) == 0
    assert trained(tmp_path / "set", tmp_path / "run", steps=1) == 0
    logs = tmp_path / "logs"
    words = ("--rehearse", "--robot", station, "--logs", logs, "--domain", DOMAIN)
    said = refused(capsys, "deploy", *words, "--policy", tmp_path / "run")
    assert "it was made for actions of kind native, this has joint_position" in said and not logs.exists()
    raw = ("train", "--data", theirs, "--out", tmp_path / "raw", "--observe", "images.front", "--steps", 1)
    if gripper > 1:
        assert "expected [-1, 1]" in refused(capsys, *raw)
        return
    assert main([str(word) for word in raw]) == 0  # all within [-1, 1], of an arm that is called so101_follower
    said = refused(capsys, "deploy", *words, "--policy", tmp_path / "raw")
    assert "so101_follower" in said and not logs.exists()
