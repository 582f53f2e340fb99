"""Demonstrations of another maker's control as those of an arm. The judge is robosuite: its controller made the motion,
and its own kinematics say where the hand was."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.core import ArraySpec, BadInput, Episode, Interface
from robolearn.data import Dataset
from robolearn.data.convert.for_arm import for_arm
from robolearn.data.convert.source import EpisodeDraft, EpisodeSource
from robots.stations import load_contract

sys.path.insert(0, str(Path(__file__).parents[2] / "programs"))
import libero_file

T, STATION = libero_file.STEPS, load_contract("sim")


@pytest.fixture(scope="module")
def robosuites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two demonstrations in LIBERO's layout."""
    path = tmp_path_factory.mktemp("libero") / "demos.hdf5"
    libero_file.write(path)
    return path


@pytest.fixture(scope="module")
def imported(robosuites: Path, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    out = tmp_path_factory.mktemp("arm") / "set"
    words = ["--robot", "sim", "--map", "obs/agentview_rgb=images.front", "--out", str(out)]
    assert main(["dataset", "import", str(robosuites), *words]) == 0
    return Dataset.open(out)


@pytest.mark.long
def test_the_hand_is_where_robosuite_has_it(robosuites: Path, imported: Dataset) -> None:
    names = imported.interface.observation["proprio"].names
    at = names.index("tcp_x")
    with h5py.File(robosuites) as file:
        for e in range(2):
            ours, theirs = imported.episode(e).observation["proprio"], file[f"data/demo_{e}/obs/ee_pos"][()]
            apart = (
                ours[:, at : at + 3] - theirs
            )  # its arm stands on a table, its tool's centre is another by millimetres
            assert np.ptp(theirs, axis=0).max() > 0.05
            np.testing.assert_allclose(apart, np.broadcast_to(apart.mean(0), apart.shape), atol=0.001 + 0.004 * e)
            fingers = file[f"data/demo_{e}/obs/gripper_states"][()]
            np.testing.assert_allclose(ours[:, names.index("gripper_width")], fingers[:, 0] - fingers[:, 1], atol=1e-5)


@pytest.mark.long
def test_the_actions_lead_an_arm_along_the_same_way(imported: Dataset) -> None:
    """Set-points of the station's own control, one after the other from the first joints, end at the file's last."""
    from robots import make_control

    control = make_control("tcp_delta", STATION.robot, STATION.control_hz)
    for e in range(2):
        episode = imported.episode(e)
        joints = episode.observation["proprio"][:, :7].astype(np.float64)
        q = joints[:1]
        for t in range(T - 1):
            q, _ = control.targets(q, None, episode.action[t : t + 1])
        start = STATION.robot.chain.forward(joints[:1])[0]
        goal, reached = (STATION.robot.chain.forward(one)[0] for one in (joints[-1:], q))
        assert np.linalg.norm(goal - start) > 0.05 and np.linalg.norm(reached - goal) < 0.005


@pytest.mark.long
def test_the_gripper_closes_where_theirs_did(imported: Dataset) -> None:
    grip = imported.episode(0).action[:, -1]
    assert (grip[: T // 2] == 1).all() and (grip[T // 2 :] == -1).all()  # ours opens with 1, robosuite's closes


@pytest.mark.long
def test_what_is_said(robosuites: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: str, code: int = 0) -> str:
        assert main(["dataset", "import", str(robosuites), "--robot", *words, "--out", str(tmp_path / "set")]) == code
        both = capsys.readouterr()
        return both.err if code else both.out

    renamed = ("--map", "obs/agentview_rgb=images.front")
    assert "camera: got agentview; available: front, wrist. --map NAME=images.front renames it" in said("sim", code=2)
    assert "expected none. The contract says it" in said("sim", "--action-kind", "tcp_delta", code=2)
    assert "got 10 Hz in the file, expected 20 Hz" in said("sim", *renamed, "--hz", "10", code=2)
    assert "joints: 6 positions" in said("ur5e", "--no-images", code=2)
    assert "joints of 3 numbers" in said("sim", "--no-images", "--map", "obs/ee_pos=joints", code=2)
    text = said("sim", *renamed)
    assert "tcp_delta actions of sim that lead to the joints a frame later" in text
    assert "the file's action is more than 0, as its fingers did" in text
    assert "robolearn deploy --policy runs/… --robot sim" in text


def changed(episode: Callable[[dict[str, np.ndarray], np.ndarray], np.ndarray]) -> EpisodeSource:
    """An episode of a resting arm with closing fingers, whose features and actions `episode` changes."""
    t = np.arange(T)
    seen = {
        "joints": np.tile(np.asarray(STATION.robot.home, np.float32), (T, 1)),
        "gripper": np.linspace(0.08, 0.0, T, dtype=np.float32)[:, None],
    }
    action = episode(seen, np.stack([*np.zeros((6, T)), np.ones(T)], 1).astype(np.float32))
    held = Interface({k: ArraySpec(v.shape[1:]) for k, v in seen.items()}, ArraySpec((7,)), 20.0, "panda", "native")
    whole = Episode(seen, action, (t == T - 1).astype(np.float32), True, True, False, task="lift")
    return EpisodeSource(held, [EpisodeDraft(whole, name="demo_0")], 1)


def test_joints_in_degrees_and_fingers_in_millimetres_are_refused() -> None:
    def degrees(seen: dict[str, np.ndarray], action: np.ndarray) -> np.ndarray:
        seen["joints"] = np.rad2deg(seen["joints"])
        return action

    def millimetres(seen: dict[str, np.ndarray], action: np.ndarray) -> np.ndarray:
        seen["gripper"] = 1000 * seen["gripper"]
        return action

    with pytest.raises(BadInput, match=r"demo_0: panda_joint\d at frame 0: got .* rad"):
        list(for_arm(changed(degrees), STATION).drafts)
    with pytest.raises(BadInput, match=r"demo_0: gripper at frame 0: got 80\.000, expected at most 0\.08 m"):
        list(for_arm(changed(millimetres), STATION).drafts)


def test_a_command_that_no_finger_follows_is_refused() -> None:
    def resting(seen: dict[str, np.ndarray], action: np.ndarray) -> np.ndarray:
        seen["gripper"][:] = 0.04
        return action

    with pytest.raises(BadInput, match="fingers that do not follow"):
        for_arm(changed(resting), STATION)


def test_fingers_may_stand_beside_the_joints() -> None:
    """As ManiSkill's qpos; its gripper opens with 1."""

    def beside(seen: dict[str, np.ndarray], action: np.ndarray) -> np.ndarray:
        width = seen.pop("gripper")
        seen["joints"] = np.concatenate([seen["joints"], width / 2, width / 2], axis=1)
        return -action

    (draft,) = for_arm(changed(beside), STATION).drafts
    assert (draft.episode.action[:, -1] == -1).all() and np.abs(draft.episode.action[:, :6]).max() < 1e-3
    names = STATION.interface.observation["proprio"].names
    np.testing.assert_allclose(
        draft.episode.observation["proprio"][:, names.index("gripper_width")], np.linspace(0.08, 0.0, T), atol=1e-6
    )


def test_the_motion_beyond_an_action_is_counted() -> None:
    def leaping(seen: dict[str, np.ndarray], action: np.ndarray) -> np.ndarray:
        seen["joints"][T // 2 :, 0] += 0.5
        return action

    source = for_arm(changed(leaping), STATION)
    list(source.drafts)
    assert any(note.startswith("2.5% of the motions are beyond") for note in source.account.changed)


@pytest.mark.parametrize(("opens", "shuts"), [(1.0, 0.0), (0.0, 1.0), (1.0, -1.0), (-1.0, 1.0)])
def test_commands_of_any_two_numbers(opens: float, shuts: float) -> None:
    def commanded(seen: dict[str, np.ndarray], action: np.ndarray) -> np.ndarray:
        seen["gripper"][:, 0] = np.where(np.arange(T) < T // 2, 0.08, 0.0)
        action[:, -1] = np.where(np.arange(T) < T // 2, opens, shuts)
        return action

    (draft,) = for_arm(changed(commanded), STATION).drafts
    np.testing.assert_array_equal(draft.episode.action[:, -1], np.where(np.arange(T) < T // 2, 1.0, -1.0))


@pytest.mark.long
def test_an_episode_that_this_arm_cannot_have_is_left_out_by_choice(robosuites: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(robosuites, tmp_path / "demos.hdf5"))
    with h5py.File(path, "a") as file:
        file["data/demo_0/obs/joint_states"][3, 2] = 9.0
    words = ["dataset", "import", str(path), "--robot", "sim", "--no-images", "--out", str(tmp_path / "set")]
    assert main(words) == 2
    assert main([*words, "--skip-bad"]) == 0
    assert Dataset.open(tmp_path / "set").episodes == 1
