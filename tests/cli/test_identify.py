"""``robolearn identify``: bad input in a line, the filter between motion and arm, and the way to a dynamics file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hardware.calibration.motion import drive
from robolearn.cli.identify import AS_MODELLED, NO_BETTER, Errors, course, drift, verdict
from robolearn.cli.main import main
from robolearn.core import RobolearnError
from robots import PANDA
from robots.dynamics import DynamicsConfig, Spread
from robots.dynamics_file import load_dynamics, write_dynamics
from robots.motion_log import MotionLog
from robots.stations import load_contract
from sim.realtime import RealtimeWorld

REST = np.tile(PANDA.home, (2000, 1))


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--robot", "fr3"], "fr3 is a real arm, and there is no terminal to ask on before it moves"),
        (
            ["--robot", "fr3", "--yes", "--dynamics", "mild"],
            "--dynamics on fr3, a real arm: got mild, expected none, or",
        ),
        (["--robot", "fr3", "--rehearse", "--log", "rest.npz"], "--rehearse: got it with --log"),
        (["--rehearse"], "--rehearse: contract sim: got simulated: true, expected a real station"),
        (["--speed", "0"], "--speed: got 0.0, expected above 0, at most 1"),
        (["--log", "none.npz"], "--log: got none.npz, which is not there"),
        (["--log", "fr3.npz"], "got the arm fr3, expected panda"),
        (["--log", "short.npz"], "expected at least 5 s"),
        (["--log", "nan.npz"], "measured of shape (2000, 7), not finite"),
        (["--log", "half.npz"], "got no commanded, expected arrays robot, period, commanded, measured"),
        (["--log", "text.npz"], "got another kind of file, expected an .npz"),
        (["--log", "degrees.npz"], "got commanded -131.8 of panda_joint4, expected -3.072 to -0.0698 rad. The unit of"),
        (["--log", "rest.npz", "--dynamics", "mild"], "got mild with --log, expected one of them"),
        (["--dynamics", "fr3.json"], "got of the arm fr3, expected of panda"),
        (["--before", "fr3.json"], "got of the arm fr3, expected of panda"),
        (["--seconds", "3"], "--seconds: got 3.0, expected 10 to 600"),
        (["--seconds", "12"], "--seconds, --held-out: got 12 s, 0.25 of them held out, expected 5 s held out or more"),
        (
            ["--log", "rest.npz", "--held-out", "0.3"],
            "motion: got 10.0 s of motion, 3.0 s of them held out, expected 5 s",
        ),
        (["--held-out", "0.9"], "--held-out: got 0.9, expected 0.1 to 0.5"),
    ],
)
def test_bad_input_is_a_line(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    MotionLog("panda", 0.005, REST, REST).save(Path("rest.npz"))
    MotionLog("fr3", 0.005, REST, REST).save(Path("fr3.npz"))
    MotionLog("panda", 0.005, REST[:20], REST[:20]).save(Path("short.npz"))
    MotionLog("panda", 0.005, REST, np.full_like(REST, np.nan)).save(Path("nan.npz"))
    np.savez("half.npz", robot="panda", period=0.005, measured=REST)
    MotionLog("panda", 0.005, np.degrees(REST), np.degrees(REST)).save(Path("degrees.npz"))
    Path("text.npz").write_text("no archive")
    write_dynamics(Path("fr3.json"), DynamicsConfig("x", {"gain": Spread("normal", (1.0,), (0.0,))}, "fr3"))
    assert main(["identify", *words, "--out", "out"]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") <= 2
    assert not Path("out").exists()


@pytest.mark.long
def test_the_filter_is_between_the_motion_and_the_arm() -> None:
    """A motion out of the joint's box is clamped to it; one that jumps is stopped, and the reason told."""
    contract = load_contract("sim")
    beyond = REST[:400].copy()
    beyond[:, 6] += np.linspace(0.0, 2.3, 400)  # 3.09 rad, beyond 2.8973
    world, reached = RealtimeWorld("lift", 0), []
    command = world.command
    world.command = lambda q, width=None: (reached.append(q), command(q, width))  # type: ignore[assignment]
    log = drive(world, contract, beyond)
    np.testing.assert_array_equal(reached, log.commanded)
    assert contract.limits.upper[6] - 0.01 < log.commanded[:, 6].max() <= contract.limits.upper[6]
    speed = np.abs(np.diff(log.commanded, axis=0)).max(0) / log.period
    assert (speed <= contract.limits.velocity * (1 + 1e-9)).all()
    jump = REST[:400].copy()
    jump[200:, 0] += 1.0
    with pytest.raises(RobolearnError, match=r"the safety filter stopped the motion after \d+\.\d s: \w+"):
        drive(RealtimeWorld("lift", 0), contract, jump)


def test_what_has_changed_since_is_listed() -> None:
    """By hand: 0.1 apart with deviations of 0.01 and 0.02 is 4.5 deviations; 0.05 is 2.2."""
    before = DynamicsConfig("a", {"gain": Spread("normal", (1.0, 1.0), (0.01, 0.01))})
    now = DynamicsConfig("b", {"gain": Spread("normal", (1.1, 1.05), (0.02, 0.02))})
    found = drift(before, now)
    assert [d["name"] for d in found] == ["gain.0"]
    assert found[0]["sigmas"] == pytest.approx(0.1 / 0.0005**0.5)


def test_the_course_over_several_results_has_intervals() -> None:
    """By hand: 1.96 deviations, not below the parameter's bound; a parameter that one file does not have."""
    first = DynamicsConfig("a", {"gain": Spread("normal", (1.0, 1.2), (0.01,))})
    second = DynamicsConfig("b", {"gain": Spread("normal", (1.1, 1.2), (0.01, 0.02))})
    now = DynamicsConfig(
        "c", {"gain": Spread("normal", (1.2, 1.2), (0.02, 0.02)), "backlash": Spread("normal", (0.001,), (0.001,))}
    )
    found = course([first, second, now])
    assert [one["value"] for one in found["gain.0"] if one] == [1.0, 1.1, 1.2]
    assert found["gain.0"][0] == {"value": 1.0, "low": pytest.approx(0.9804), "high": pytest.approx(1.0196)}
    assert found["gain.1"][2]["high"] == pytest.approx(1.2392)  # type: ignore[index]
    assert found["backlash.0"] == [None, None, {"value": 0.001, "low": 0.0, "high": pytest.approx(0.00296)}]


@pytest.mark.long
def test_a_hidden_arm_is_found_and_the_result_is_a_dynamics_file(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    hidden = tmp_path / "hidden.yaml"
    hidden.write_text("parameters: {gain: 0.85, damping: 1.3, command_delay: 0.04, joint_noise: 0.0002}\n")
    out = tmp_path / "found"
    length = ["--seconds", "16", "--held-out", "0.45"]
    assert main(["identify", "--dynamics", str(hidden), *length, "--out", str(out), "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["held_out"]["ratio"] < 0.1
    assert result["parameters"]["command_delay.0"]["value"] == pytest.approx(0.04, abs=0.001)
    inside = [result["parameters"][f"gain.{i}"] for i in range(7)]
    assert sum(p["low"] <= 0.85 <= p["high"] for p in inside) >= 5
    config = load_dynamics(result["dynamics"])
    assert config.robot == "panda" and set(config.spreads) > {"gain", "link_mass", "joint_noise"}
    assert str(hidden) not in (out / "report.html").read_text()
    RealtimeWorld("lift", 0, dynamics=result["dynamics"])


@pytest.mark.long
@pytest.mark.parametrize("noise", [0.0, 5e-4])
def test_an_arm_that_is_as_modelled_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, noise: float
) -> None:
    """Nothing hidden but, in the second case, encoder noise, which no fit predicts: the model is as good as any."""
    from robots.excitation import excitation

    monkeypatch.chdir(tmp_path)
    contract = load_contract("sim")
    log = drive(RealtimeWorld("lift", 0), contract, excitation(PANDA, 11.0, 1.0 / contract.stream_hz, 0))
    measured = log.measured + noise * np.random.default_rng(0).standard_normal(log.measured.shape)
    MotionLog("panda", log.period, log.commanded, measured).save(Path("motion.npz"))
    assert main(["station", "lab", "--contract", "sim"]) == 0
    words = ["--robot", "lab", "--log", "motion.npz", "--held-out", "0.4", "--write", "--out", "out", "--json"]
    assert main(["identify", *words]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    for part in ("fitted", "held_out"):
        assert result[part]["nominal_mrad"] == pytest.approx(1e3 * noise, rel=0.05, abs=1e-3), "by hand: the noise"
    if result["held_out"]["ratio"] >= 1.0:  # by chance it may be below, and the posterior is a file then
        assert (result["rejected"], result["as_modelled"], result["dynamics"]) == (None, AS_MODELLED, None)
        assert not Path("out/dynamics.json").exists() and not Path("lab/dynamics.json").exists()
        assert AS_MODELLED in Path("out/report.html").read_text()
    else:
        assert noise and result["dynamics"] and not result["as_modelled"]


def test_the_verdict_on_a_fit_that_predicts_nothing_better() -> None:
    """The model counts as right only where it predicts the fitted part, too, within a twentieth."""
    assert verdict(Errors(9.0, 1.0), Errors(9.0, 1.0)) == (None, None)
    assert verdict(Errors(1.04, 1.0), Errors(1.0, 1.0)) == (None, AS_MODELLED)
    assert verdict(Errors(0.0, 0.0), Errors(0.0, 0.0)) == (None, AS_MODELLED)
    assert verdict(Errors(1.06, 1.0), Errors(1.0, 1.001)) == (NO_BETTER, None)
    assert verdict(Errors(200.0, 3.0), Errors(0.0, 200.0)) == (NO_BETTER, None), "it has changed in between"


@pytest.mark.long
def test_joint_states_that_are_stamped_early_are_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """A motion of the simulated arm whose measurements are stamped 10 ms before they were made."""
    from robots.excitation import excitation

    contract = load_contract("sim")
    targets = excitation(PANDA, 11.0, 1.0 / contract.stream_hz, 0)
    log = drive(RealtimeWorld("lift", 0), contract, targets)
    found = []
    for early in (0, 2):
        kept = len(log.commanded) - 2
        shifted = MotionLog("panda", log.period, log.commanded[:kept], log.measured[early : kept + early])
        path, out = shifted.save(tmp_path / f"{early}.npz"), tmp_path / f"out-{early}"
        assert main(["identify", "--log", str(path), "--held-out", "0.4", "--out", str(out), "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
    assert [one["measured_early"] for one in found] == [False, True]
    assert [one["as_modelled"] for one in found] == [AS_MODELLED, None]
    assert found[1]["parameters"]["command_delay.0"]["value"] < 1e-4


@pytest.mark.long
def test_a_fit_that_predicts_no_better_than_the_model_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """An arm that is 0.2 s late while the fit looks on, and as modelled while it is judged."""
    from robots.excitation import excitation

    monkeypatch.setattr("sim.identification.fit.ROUNDS", 1)
    monkeypatch.setattr("sim.identification.fit.EVALUATIONS", 2)
    contract = load_contract("sim")
    log = drive(RealtimeWorld("lift", 0), contract, excitation(PANDA, 11.0, 1.0 / contract.stream_hz, 0))
    changes = round(0.6 * len(log.commanded))
    commanded = np.concatenate([log.commanded[40:changes], log.commanded[changes:]])
    late = np.concatenate([log.measured[: changes - 40], log.measured[changes:]])
    path = MotionLog("panda", log.period, commanded, late).save(tmp_path / "late.npz")
    lab, out = tmp_path / "lab", tmp_path / "out"
    spreads = {"command_delay": Spread("normal", (0.0,), (0.001,))}
    for week in ("week-1", "week-2"):
        (tmp_path / week).mkdir()
    assert main(["station", str(lab), "--contract", "sim"]) == 0
    words = ["--robot", str(lab), "--log", str(path), "--held-out", "0.4", "--write", "--out", str(out)]
    earlier = [
        write_dynamics(tmp_path / week / "dynamics.json", DynamicsConfig("x", spreads)) for week in ("week-1", "week-2")
    ]
    words += ["--before", *map(str, earlier)]
    assert main(["identify", *words]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert f"rejected {NO_BETTER}, and nothing into the station" in shown
    assert "finetune" not in shown and "version 2" not in shown
    assert not (out / "dynamics.json").exists() and not (lab / "dynamics.json").exists()
    assert [one.name for one in (lab / "versions").iterdir()] == ["1"]
    page = (out / "report.html").read_text()
    assert NO_BETTER in page and "week-2" in page and "0 (0 to 0.00196)" in page
