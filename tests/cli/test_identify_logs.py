"""``robolearn identify --log DATA``: an arm is found from what `record` kept of it; bad sets are refused in a line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pyarrow.parquet as pq
import pytest

from robolearn.cli.main import main
from robolearn.core.specs import PREDICTED_ACTIONS
from robolearn.data import EpisodeWriter
from robolearn.deploy.logged import held_out
from robots import PANDA
from robots.dynamics_file import load_dynamics
from robots.motion_log import SparseLog
from robots.stations import load_contract

CONTRACT = replace(load_contract("sim"), cameras={})
GAIN, DAMPING, DELAY, STEP = 0.85, 1.3, 9, 0.005  # the delay in steps


class PlainArm:
    """A Panda of other gains and damping, and late, by MuJoCo alone."""

    def __init__(self) -> None:
        self._model = model = mujoco.MjModel.from_xml_path(str(PANDA.mjcf))
        model.opt.timestep, model.opt.integrator = STEP, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
        self._u = [model.actuator(name).id for name in PANDA.joints]
        self._q = [model.joint(name).qposadr[0] for name in PANDA.joints]
        model.actuator_gainprm[self._u, 0] *= GAIN
        model.actuator_biasprm[self._u, 1] *= GAIN
        model.dof_damping[[model.joint(name).dofadr[0] for name in PANDA.joints]] *= DAMPING
        self._data = mujoco.MjData(model)
        self._data.qpos[self._q] = PANDA.home
        self._line = [np.array(PANDA.home)] * (DELAY + 1)

    def command(self, q: np.ndarray) -> None:
        self._line[-1] = q

    def advance(self, seconds: float) -> None:
        assert seconds == STEP
        self._data.ctrl[self._u] = self._line[0]
        self._line = [*self._line[1:], self._line[-1]]
        mujoco.mj_step(self._model, self._data)

    def joint_state(self) -> tuple[Any, np.ndarray, Any]:
        noise = 1e-4 * np.random.default_rng(round(1e6 * self._data.time)).standard_normal(len(self._q))
        return PANDA.joints, self._data.qpos[self._q] + noise, None


@pytest.mark.long
def test_a_hidden_arm_is_found_in_its_recordings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "hardware")
    from logged_rig import record_episodes

    record_episodes(PlainArm(), tmp_path / "data", 6, 110, seed=3)
    out = tmp_path / "found"
    assert main(["identify", "--log", str(tmp_path / "data"), "--out", str(out), "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["held_out"]["ratio"] < 0.1
    found = result["parameters"]
    assert abs(found["command_delay.0"]["value"] - DELAY * STEP) < 0.003
    truth = {"gain": GAIN, "damping": DAMPING, "command_delay": DELAY * STEP, "link_mass": 1.0, "armature": 1.0}
    known = {name: one for name, one in found.items() if one["identified"]}
    inside = [one["low"] <= truth.get(name.split(".")[0], 0.0) <= one["high"] for name, one in known.items()]
    assert len(known) > 15 and np.mean(inside) >= 0.9
    assert {"link_mass.0", "command_delay.0"} & set(result["not_identified"]) == {"link_mass.0"}
    config = load_dynamics(result["dynamics"])
    assert config.robot == "panda" and set(config.spreads) > {"gain", "link_mass", "joint_noise"}
    assert f"--log {tmp_path / 'data'}" in (out / "report.html").read_text() and not (out / "motion.npz").exists()


def rows(path: Path, change: Callable[[dict[str, Any], int], None] = lambda row, k: None, **made: Any) -> Path:
    """Three episodes of 8 s in which one joint swings; `change` alters a row (q, stamps) of the second one."""
    interface = replace(CONTRACT, objects=None).interface
    interface = replace(interface, **made.pop("interface", {}))
    stamps = made.pop("stamps", ("proprio", "action"))
    steps, swing = made.pop("steps", 160), made.pop("swing", 0.3)
    with EpisodeWriter(path, interface, stamps=stamps, task="swing", durable=False) as writer:
        for episode in range(3):
            for k in range(steps):
                now = 1.7e9 + 100 * episode + k / interface.control_hz
                row = {"q": np.array(PANDA.home), "stamps": {"proprio": now - 0.004, "action": now}}
                row["q"][0] += swing * np.sin(0.1 * k)
                if episode == 1:
                    change(row, k)
                proprio = np.zeros(interface.observation["proprio"].size, np.float32)
                proprio[:7] = row["q"]
                writer.add({"proprio": proprio}, np.zeros(7, np.float32), stamps={n: row["stamps"][n] for n in stamps})
            writer.end(success=True, terminated=True)
    return path


def _gap(row: dict[str, Any], k: int) -> None:
    row["stamps"] = {name: at + 0.4 * (k > 50) for name, at in row["stamps"].items()}


def _old(row: dict[str, Any], k: int) -> None:
    row["stamps"]["proprio"] -= 0.3 * (k == 20)


@pytest.mark.long
@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"interface": {"embodiment": "ur5e"}}, "got the arm ur5e, expected panda. --robot names the station"),
        ({"interface": {"control_hz": 10.0}}, "got 10 rows/s, expected the 20 of sim. --robot names the station"),
        ({"interface": {"action_kind": "joint_position"}}, "got actions joint_position, expected tcp_delta"),
        ({"interface": {"extra": {PREDICTED_ACTIONS: {}}}}, "got predicted actions, expected what the arm was sent"),
        ({"stamps": ()}, "got no stamps of action and proprio, expected when each action was sent"),
        ({"stamps": ("action",)}, "got no stamps of proprio"),
        ({"steps": 60}, "3 episodes of 2 s and more, 9.0 s, no joint farther than 0.6 rad"),
        ({"swing": 0.01}, "3 episodes of 2 s and more, 24.0 s, no joint farther than 0.02 rad"),
        ({"change": _gap}, "episode 1: got no action for 0.45 s after row 50"),
        ({"change": _gap}, "robolearn dataset edit drop data --episodes 1 --out data-whole"),
        ({"change": _old}, "episode 1: got joints of row 20 measured 0.30 s before its action"),
    ],
)
def test_bad_input_is_a_line(
    made: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("robolearn.deploy.logged.motion_of_rows", lambda *rows: pytest.fail("it was taken"))
    rows(Path("data"), **made)
    capsys.readouterr()
    assert main(["identify", "--log", "data", "--out", "out"]) == 2
    err = capsys.readouterr().err
    assert said in " ".join(err.split()) and not Path("out").exists()


@pytest.mark.long
def test_a_set_without_commands_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    path = rows(Path("data"))
    info = json.loads((path / "meta/info.json").read_text())
    del info["features"]["action"]
    (path / "meta/info.json").write_text(json.dumps(info))
    for file in path.glob("data/**/*.parquet"):
        pq.write_table(pq.read_table(file).drop_columns("action"), file)
    assert main(["identify", "--log", "data", "--out", "out"]) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert "got no commands (a column action), expected what the arm was sent. robolearn record --robot sim" in err
    assert main(["identify", "--log", "data", "--dynamics", "mild", "--out", "out"]) == 2
    assert "--dynamics: got mild with --log" in capsys.readouterr().err


def test_whole_episodes_are_held_out() -> None:
    """The last ones, of a share of the time at least; one of each at least."""
    made = [SparseLog("x", 0.1, np.zeros((n, 1)), np.zeros((1, 1)), np.array([0.1])) for n in (30, 10, 10, 10)]
    assert [len(part) for part in held_out(made, 0.25)] == [2, 2]
    assert [len(part) for part in held_out(made, 0.1)] == [3, 1]
    assert [len(part) for part in held_out(made[:2], 0.5)] == [1, 1]
    assert held_out(made, 0.1)[1][0] is made[-1]
