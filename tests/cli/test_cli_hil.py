"""`robolearn hil`: both halves by one command, each by its own, certificates, what is refused, and kills."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from robolearn.cli.hil.commands import HilRun
from robolearn.cli.main import main
from robolearn.runs import read_metrics

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-c", "import sys; from robolearn.cli.main import main; sys.exit(main())"]
SMALL = ["--width", 16, "--depth", 1, "--critics", 2, "--batch", 16, "--warmup", 20, "--utd", 0.5]
PROPOSALS = [*SMALL, "--proposals", 2, "--backup-proposals", 1]


def run(*args: Any) -> int:
    return main([str(arg) for arg in args])


def start(*args: Any, **environment: str) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment}
    return subprocess.Popen(
        [*PROGRAM, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
        stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


@pytest.mark.realtime  # two processes, and a bound on how long they need to end
def test_a_run_and_its_resumption(bc: Path, demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both halves by one command; more steps by --resume."""
    first = ["hil", "run", "--policy", bc, "--task", "lift", "--demos", demos, "--operator", "scripted", *PROPOSALS]
    assert run(*first, "--out", tmp_path / "a", "--env-steps", 120, "--console", 0, "--json") == 0
    said = capsys.readouterr()
    assert "console: http://127.0.0.1:" in said.err and not (tmp_path / "a" / "spool" / "console").exists()
    result = json.loads(said.out.splitlines()[-1])
    assert {"success", "env_steps", "robot_minutes", "intervention_rate", "updates", "utd", "wall_s", "period_ms"} <= (
        result.keys()
    )
    assert result["env_steps"] >= 120 and result["robot_minutes"] == pytest.approx(result["env_steps"] / 20 / 60)
    assert result["updates"] == int(0.5 * (result["env_steps"] - 20))
    rows = list(read_metrics(tmp_path / "a"))
    assert sum(row["episode_steps"] for row in rows) == result["env_steps"] == rows[-1]["env_steps"]
    assert {"success", "interventions", "takeovers"} <= rows[0].keys()

    assert run(*first, "--out", tmp_path / "a", "--env-steps", 200, "--json") == 2  # a folder that is not empty
    assert "--resume" in capsys.readouterr().err
    assert run(*first, "--out", tmp_path / "a", "--env-steps", 200, "--resume", "--json") == 0
    more = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert more["env_steps"] >= 200 and more["updates"] == int(0.5 * (more["env_steps"] - 20))
    # A run that is over has nothing left to do: its actor comes to hear that, and both end.
    begun = time.monotonic()
    assert run(*first, "--out", tmp_path / "a", "--env-steps", 200, "--resume", "--json") == 0
    again = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert time.monotonic() - begun < 40.0 and again["env_steps"] == more["env_steps"] and again["finished"]
    (spool,), (log,) = ((tmp_path / "a" / name).glob("*.transitions") for name in ("spool", "log"))
    assert spool.read_bytes() == log.read_bytes()
    assert run("dataset", "import", tmp_path / "a", "--out", tmp_path / "set", "--json") == 0
    stored = json.loads(capsys.readouterr().out.splitlines()[-1])
    rows = list(read_metrics(tmp_path / "a"))
    assert stored["format"] == "hil" and stored["episodes"] == len(rows) and stored["frames"] == again["env_steps"]
    assert stored["successes"] == sum(row["success"] for row in rows)


def test_halves_with_certificates_and_ctrl_c(bc: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Over TLS; a stranger is turned away; Ctrl-C leaves a checkpoint and exit code 130."""
    certs = tmp_path / "certs"
    assert run("hil", "certs", "--out", certs, "--json") == 0
    assert json.loads(capsys.readouterr().out)["certs"] == str(certs)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    out = tmp_path / "run"
    learner = start("hil", "learner", "--policy", bc, "--out", out, "--algo", "rlpd", *SMALL, "--listen", address,
                    "--certs", certs, "--env-steps", 10**6)  # fmt: skip
    actor = start("hil", "actor", "--policy", bc, "--task", "lift", "--learner", address, "--certs", certs,
                  "--out", tmp_path / "spool")  # fmt: skip
    try:
        until = time.monotonic() + 90
        while len(list(read_metrics(out))) < 2:
            assert time.monotonic() < until and learner.poll() is None and actor.poll() is None
            time.sleep(0.1)
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), 5) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert plain.recv(10) == b""
        for half in (actor, learner):
            half.send_signal(signal.SIGINT)
        said = [half.communicate(timeout=60)[1] for half in (learner, actor)]
    finally:
        for half in (learner, actor):
            half.kill()
    assert (learner.returncode, actor.returncode) == (130, 130), said
    assert said[0].count("refused") == 1 and "Traceback" not in said[0] + said[1]
    assert list((out / "state").glob("state-*/meta.json"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--algo", "sac"], "proposals"),
        (["run", "--demos", "nowhere"], "nowhere"),
        (["run", "--env-steps", 0], "--env-steps"),
        (["learner", "--listen", "0.0.0.0:7350"], "--certs"),
        (["learner", "--listen", "here"], "HOST:PORT"),
        (["learner", "--token", "short"], "--token"),
        (["learner", "--checkpoint-s", 0], "--checkpoint-s"),
        (["learner", "--resume"], "config.json"),
        (["actor", "--learner", "robot.example:1", "--token", "x" * 20], "--certs"),
        (["actor"], "--token"),
        (["actor", "--name", "../x", "--token", "x" * 20], "actor's name"),
        (["actor", "--task", "pick", "--token", "x" * 20], "pick"),
        (["run", "--dynamics", "midl", "--operator", "scripted"], "dynamics: got midl"),
        (
            ["run", "--dynamics", "mild", "--robot", "sim", "--teleop", "keyboard"],
            "got mild beside --robot, expected none",
        ),
        (["run", "--dynamics", "mild", "--task", "robosuite:Lift"], "option dynamics"),
        (["actor", "--dynamics", "midl", "--token", "x" * 20], "dynamics: got midl"),
    ],
)
def test_bad_input_is_one_line(bc: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list, said: str,
                               monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.delenv("ROBOLEARN_HIL_TOKEN", raising=False)
    assert run("hil", *words, "--policy", bc, "--out", tmp_path / "out") == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("robolearn: error:") and said in error


@pytest.mark.parametrize("half", ["run", "learner"])
def test_demonstrations_by_another_arm_are_refused(
    bc: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], half: str
) -> None:
    other, out = tmp_path / "fr3", tmp_path / "out"
    words = ["--task", "lift", "--robot", "fr3", "--episodes", 1, "--worlds", 1, "--quality", "expert"]
    assert run("collect", *words, "--out", other, "--json") == 0
    capsys.readouterr()
    more = ["--task", "lift", "--operator", "scripted"] if half == "run" else ["--token", "x" * 20]
    assert run("hil", half, "--policy", bc, "--demos", other, "--out", out, *more) == 2
    (error,) = capsys.readouterr().err.strip().splitlines()
    assert f"--demos {other}: the policy was made for panda, this is fr3" in error and not out.exists()


@pytest.mark.parametrize("more", [(), pytest.param(("--scored",), marks=pytest.mark.long)])
def test_a_killed_half_comes_back_and_learns_the_same(tmp_path: Path, more: tuple[str, ...]) -> None:
    """One kill of each at a random moment; `make test-hil-crash` does ten."""
    done = subprocess.run(
        [sys.executable, ROOT / "tests/programs/hil_crash.py", "--kills", "1", "--steps", "400", "--span", "1.5",
         "--lockstep-only", "--keep", tmp_path / "kept", *more],
        capture_output=True, text=True, timeout=240,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kills"] == 2


def test_dynamics_go_to_the_actor() -> None:
    words = HilRun(policy=Path("a"), out=Path("b"), dynamics="mild").actor_words("127.0.0.1:1")
    assert words[words.index("--dynamics") + 1] == "mild"


def test_what_takes_the_arm_for_a_simulator_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["hil", "run", "--policy", "x", "--out", str(tmp_path / "run"), "--algo", "h2o"]) == 2
    assert "--algo: got h2o, expected another one" in capsys.readouterr().err
