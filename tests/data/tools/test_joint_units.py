"""Joint positions of other systems reach the arm as the same pose: MuJoCo's physics and joint ranges are the judges."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

from policies.storage.config_file import interface_of
from robolearn.cli.main import main
from robolearn.core import BadInput
from robolearn.core.specs import check_compatible
from robolearn.data.convert.formats import writer
from robolearn.data.convert.source import open_numbers
from robots import ROBOTS
from sim import make_env

POSE = np.array([30.0, -20.0, 15.0, 70.0, 10.0])  # of an SO-101's joints [deg]; all in front of it, above the table
IMPORT = ["--embodiment", "so101", "--action-kind", "joint_position", "--hz", "20"]
DEGREES = [*IMPORT, "--unit", "degrees", "--gripper-unit", "percent"]


def folder(path: Path, factor: float = 1.0, gripper: float = 100.0) -> Path:
    """Two episodes that go from zero to `POSE` · `factor` while the gripper opens to `gripper`."""
    path.mkdir()
    share = np.linspace(0.0, 1.0, 12)[:, None]
    action = np.hstack([share * POSE * factor, share * gripper]).astype(np.float32)
    for i in range(2):
        np.savez(path / f"{i}.npz", action=action, proprio=np.zeros((12, 3)))
    return path


def refused(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    assert main([str(arg) for arg in args]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said


@pytest.mark.long
@pytest.mark.parametrize(
    ("factor", "words"),
    [(1.0, ("degrees", "percent", 100.0)), (np.pi / 180, ("radians", "share", 1.0)),
     (np.pi / 180, ("radians", "metres", 0.13)), (1.0, ("degrees", "jaw", 100.0)),
     (np.pi / 180, ("radians", "jaw", 1.74533))],
)  # fmt: skip
def test_the_arm_goes_to_the_pose_that_was_demonstrated(
    tmp_path: Path, factor: float, words: tuple[str, str, float]
) -> None:
    unit, gripper, opened = words
    source = folder(tmp_path / "npz", factor, opened)
    units = ["--unit", unit, "--gripper-unit", gripper]
    assert main(["dataset", "import", str(source), "--out", str(tmp_path / "set"), *IMPORT, *units]) == 0
    last = open_numbers(tmp_path / "set").episode(0).action[-1]
    with contextlib.closing(make_env("lift", 1, robot="so101", threads=1)) as env:
        env.reset(seed=0)
        for _ in range(60):
            observation, *_ = env.step(np.array(last)[None])
    reached = np.degrees(observation["proprio"][0, :5])
    np.testing.assert_allclose(reached, POSE, atol=2.5)  # servos sag under the weight of the arm
    assert observation["proprio"][0, 5] == pytest.approx(0.13, abs=0.005)


def test_minus_one_and_one_are_the_ends_of_mujocos_joint_ranges(tmp_path: Path) -> None:
    assert main(["dataset", "import", str(folder(tmp_path / "npz")), "--out", str(tmp_path / "set"), *DEGREES]) == 0
    model = mujoco.MjModel.from_xml_path(str(ROBOTS["so101"].mjcf))
    low, high = model.jnt_range[:5].T
    dataset = open_numbers(tmp_path / "set")
    pose = low + (dataset.action[:, :5] + 1) / 2 * (high - low)
    np.testing.assert_allclose(np.degrees(pose[11]), POSE, atol=1e-4)
    np.testing.assert_allclose(dataset.action[[0, 11], 5], [-1, 1], atol=1e-6)
    scale = dataset.interface.extra["action_scale"]
    np.testing.assert_allclose(scale["low"][:5], np.degrees(low), rtol=1e-6)
    assert (scale["unit"], scale["gripper"]) == ("degrees", "percent")
    check_compatible(dataset.interface, replace(dataset.interface, extra={}), what="an arm of that kind")


def test_an_export_and_its_import_keep_units_and_numbers(tmp_path: Path) -> None:
    assert main(["dataset", "import", str(folder(tmp_path / "npz")), "--out", str(tmp_path / "set"), *DEGREES]) == 0
    dataset = open_numbers(tmp_path / "set")
    for name in ("npz", "lerobot-v2.1"):
        writer(name)(dataset, tmp_path / name / "out", None)
        assert main(["dataset", "import", str(tmp_path / name / "out"), "--out", str(tmp_path / name / "again")]) == 0
        again = open_numbers(tmp_path / name / "again")
        np.testing.assert_allclose(again.action, dataset.action, atol=1e-6)
        assert again.interface.extra == dataset.interface.extra
    written = np.load(tmp_path / "npz" / "out" / "episode_000000.npz")["action"]
    np.testing.assert_allclose(written[11], [*POSE, 100.0], atol=1e-3)


@pytest.mark.parametrize(
    ("factor", "gripper", "args", "says"),
    [
        (1.0, 100.0, IMPORT, "--unit of joint positions, which span -20 … 100: missing; "),
        (np.pi / 180, 1.0, IMPORT, ": missing; available: "),  # all within [-1.3, 1.3]
        (0.01, 0.9, IMPORT, "--unit of joint positions, which span -0.2 … 0.9: missing"),  # within [-1, 1]
        (1.0, 100.0, [*IMPORT, "--unit", "normalised"], "normalised: got -20 … 100, expected [-1, 1]"),
        (1.0, 100.0, [*IMPORT, "--unit", "radians", "--gripper-unit", "percent"], "positions: shoulder_pan: got 0"),
        (np.pi / 180, 90.0, DEGREES, "which are radians, expected --unit radians"),
        (1.0, 1.0, DEGREES, "expected --gripper-unit share"),
        (1.0, 100.0, [*IMPORT, "--unit", "degrees"], "--gripper-unit of 0 … 100: missing"),
        (1.0, 130.0, DEGREES, "joint positions: gripper: got 0 … 130"),
        (5.0, 100.0, DEGREES, "joint positions: shoulder_pan: got 0 … 150"),
        (1.0, 100.0, [*DEGREES[2:], "--embodiment", "my_arm"], "joint positions: arm: got my_arm; available: panda"),
        (1.0, 100.0, [*DEGREES[2:], "--embodiment", "panda"], "joint positions of panda: got 6 numbers"),
        (1.0, 100.0, ["--hz", "20", "--unit", "degrees"], "got degrees of actions of kind 'native'"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], factor: float, gripper: float, args: list[str], says: str
) -> None:
    source = folder(tmp_path / "npz", factor, gripper)
    assert says in refused(capsys, "dataset", "import", source, "--out", tmp_path / "set", *args)
    assert not (tmp_path / "set").exists()


def test_joints_in_another_order_are_refused(tmp_path: Path) -> None:
    from robolearn.core import ArraySpec, Interface
    from robolearn.data.convert.joint_units import joint_scale

    names = (
        "shoulder_lift.pos",
        "shoulder_pan.pos",
        "elbow_flex.pos",
        "wrist_flex.pos",
        "wrist_roll.pos",
        "gripper.pos",
    )
    interface = Interface({}, ArraySpec((6,), names=names), 20.0, "so101", "joint_position")
    low, high = np.array([-90.0] * 5 + [0.0]), np.array([90.0] * 5 + [100.0])
    with pytest.raises(
        BadInput, match=r"got shoulder_lift\.pos, shoulder_pan\.pos.*expected shoulder_pan, shoulder_lift"
    ):
        joint_scale(interface, "degrees", "", low, high)
    ordered = replace(interface, action=ArraySpec((6,), names=(names[1], names[0], *names[2:])))
    found = joint_scale(ordered, "degrees", "", low, high)
    assert found is not None and found.gripper == "percent"  # LeRobot's gripper.pos


def test_a_leader_that_reaches_a_little_further_is_cut_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = folder(tmp_path / "npz", 3.8)  # shoulder_pan to 114°, whose limit is 110°
    far = np.load(source / "0.npz")["action"]
    far[:, 1:5] /= 3.8
    for i in range(2):
        np.savez(source / f"{i}.npz", action=far, proprio=np.zeros((12, 3)))
    assert main(["dataset", "import", str(source), "--out", str(tmp_path / "set"), *DEGREES]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "shoulder_pan spans 0 … 114; actions beyond its limits -110 … 110 are cut" in said
    assert open_numbers(tmp_path / "set").action[:, 0].max() == 1.0


@pytest.mark.long
def test_sets_policies_and_arms_of_two_scales_are_refused_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sets = []
    for i, factor in enumerate((1.0, 1.5)):  # actions of no stated kind, each by its own extremes
        source = folder(tmp_path / f"npz{i}", factor)
        sets.append(tmp_path / f"set{i}")
        assert main(["dataset", "import", str(source), "--out", str(sets[i]), "--hz", "20"]) == 0
    said = refused(capsys, "train", "--data", *sets, "--out", tmp_path / "both", "--steps", "1")
    assert "scale of the actions: got extremes of a set, 0…45" in said and "expected extremes of a set, 0…30" in said
    assert main(["train", "--data", str(sets[0]), "--out", str(tmp_path / "one"), "--steps", "1"]) == 0
    said = refused(
        capsys, "train", "--data", sets[1], "--from", tmp_path / "one", "--out", tmp_path / "two", "--steps", "1"
    )
    assert "--from" in said and "scale of the actions" in said
    interface = open_numbers(sets[0]).interface
    with pytest.raises(BadInput, match="scale of the actions: got that of the action kind, expected extremes of a set"):
        check_compatible(interface, replace(interface, extra={}), what="policy on the arm")
    with pytest.raises(BadInput, match="scale of the actions"):
        check_compatible(replace(interface, extra={}), interface, what="--data")


def test_a_scale_in_degrees_that_is_not_that_of_the_arm_is_refused(tmp_path: Path) -> None:
    """Edited by hand, or of another model of the arm: −1 and 1 would be other poses on this one."""
    assert main(["dataset", "import", str(folder(tmp_path / "npz")), "--out", str(tmp_path / "set"), *DEGREES]) == 0
    interface, file = open_numbers(tmp_path / "set").interface, tmp_path / "set/meta/info.json"
    scale = interface.extra["action_scale"]
    half = {**scale, "low": [x / 2 for x in scale["low"]], "high": [x / 2 for x in scale["high"]]}
    other = replace(interface, extra={"action_scale": half})
    for one, two in ((interface, other), (other, interface)):
        with pytest.raises(BadInput, match=r"scale of the actions: got degrees, -\d+.*expected degrees, -\d+"):
            check_compatible(one, two, what="--data")
    check_compatible(interface, interface, what="--data")
    text = file.read_text()
    for wrong, said in ((half, "joint limits of so101"), ({**scale, "unit": "turns"}, "got turns")):
        info = json.loads(text)
        for place in (info, info["features"]["action"]["info"]):
            place["robolearn_interface"]["extra"]["action_scale"] = wrong
        file.write_text(json.dumps(info))
        with pytest.raises(BadInput, match=said):
            open_numbers(tmp_path / "set")
    file.write_text(text)
    assert open_numbers(tmp_path / "set").episodes == 2
    with pytest.raises(BadInput, match="joint limits of so101"):
        interface_of({"interface": other.to_json()}, tmp_path / "config.json")
    assert interface_of({"interface": interface.to_json()}, tmp_path / "config.json") == interface


def test_training_on_a_plain_set_in_degrees_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As LeRobot itself writes one: no interface of ours, actions as its motors have them."""
    assert main(["dataset", "import", str(folder(tmp_path / "npz")), "--out", str(tmp_path / "set"), "--hz", "20"]) == 0
    plain = tmp_path / "set"
    dataset = open_numbers(plain)
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = next(plain.glob("data/*/*.parquet"))
    table = pq.read_table(file)
    column = np.tile(np.load(tmp_path / "npz" / "0.npz")["action"], (2, 1)).astype(np.float32)
    at = table.column_names.index("action")
    values = pa.FixedSizeListArray.from_arrays(pa.array(column.reshape(-1)), 6)
    pq.write_table(table.set_column(at, table.schema.field("action"), values), file)
    info = json.loads((plain / "meta/info.json").read_text())
    del info["robolearn_interface"]
    info["features"]["action"].pop("info")
    (plain / "meta/info.json").write_text(json.dumps(info))
    said = refused(capsys, "train", "--data", plain, "--out", tmp_path / "run", "--steps", "1")
    assert "actions: got -20 … 100, expected [-1, 1]" in said and "robolearn dataset import" in said
    assert not (tmp_path / "run").exists() and dataset.episodes == 2
    capsys.readouterr()
    main(["dataset", "validate", str(plain), "--json"])
    notes = json.loads(capsys.readouterr().out.splitlines()[-1])["notes"]
    assert notes[0].startswith("the actions span -20 … 100, and training takes [-1, 1]: `robolearn dataset import ")


@pytest.mark.parametrize("scale", ["degrees", {"low": [0.0], "high": [1.0]}, {"low": ["x"] * 6, "high": [1] * 6}, {}])
def test_a_scale_that_is_none_is_one_line(tmp_path: Path, scale: object) -> None:
    from robolearn.core import ArraySpec, Interface

    plain = Interface({}, ArraySpec((6,)), 20.0)
    with pytest.raises(BadInput, match="action_scale"):
        check_compatible(replace(plain, extra={"action_scale": scale}), plain, what="a stranger's")
