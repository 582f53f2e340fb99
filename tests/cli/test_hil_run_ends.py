"""How `robolearn hil run` ends: a half that refuses, what is left of that try, and what the screen says of a run."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parent))
from teaching import PROGRAM, ROOT, SMALL, records

from robolearn.cli.hil.commands import HilActor, HilRun
from robolearn.cli.main import main
from robolearn.core import BadInput, RobolearnError
from robolearn.data.replay import ReplayStep
from robolearn.deploy import NodeDied, StackProcesses
from robolearn.hil.processes import process_error, tidied
from robolearn.runs.command import Command


def run(*args: Any) -> int:
    return main([str(arg) for arg in args])


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "like"),
    [
        ("--task pick_place", "evaluate --task pick_place"),
        ("--robot fr3 --teleop keyboard", "deploy --robot fr3"),
        ("--task lift --teleop keyboard", "record --robot sim --teleop keyboard --task lift --out {out}"),
    ],
)
def test_nothing_is_started_and_other_commands_say_the_same(
    bc: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: str, like: str
) -> None:
    out = tmp_path / "out"
    monkeypatch.setattr(StackProcesses, "__enter__", lambda self: pytest.fail("something is started"))
    assert run("hil", "run", "--policy", bc, "--out", out, *words.split()) == 2
    said = capsys.readouterr().err.splitlines()
    assert run(*like.format(out=out).split(), "--policy", bc) == 2
    assert said == capsys.readouterr().err.splitlines() and len(said) == 1 and not out.exists()


@pytest.mark.long
@pytest.mark.parametrize("half", ["learner", "actor"])
def test_a_half_that_refuses_says_so_alone_and_leaves_nothing(
    bc: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], half: str
) -> None:
    out = tmp_path / "runs" / "taught"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ["--device", "cuda:77"] if half == "learner" else ["--console", port]
        assert run("hil", "run", "--policy", bc, "--task", "lift", "--out", out, *SMALL, *words) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("robolearn: error: ")]
    about = "cuda:77" if half == "learner" else f"address of the page: got 127.0.0.1:{port}"
    assert about in line and line.count("error") == 1 and "exit code" not in line and " | " not in line
    assert not out.exists()


@pytest.mark.long
def test_the_screen_says_what_it_was_worth_and_the_next_command_works(
    bc: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    words = ["--policy", bc, "--task", "lift", "--operator", "scripted", "--env-steps", 120, *SMALL]
    assert run("hil", "run", *words, "--out", out) == 0
    said = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    stored = json.loads((out / "result.json").read_text())
    assert said["policy"] == str(out / "policy")
    assert said["taught"].startswith(f"{stored['env_steps']:,} control steps in {stored['episodes']} episode")
    assert f"commanded {100 * stored['intervention_rate']:.1f}% of the control steps" in said["operator"]
    assert "intervention" in said["success"] or "without the operator" in said["success"]
    assert not {"period_ms", "finished", "ended"} & said.keys() and "None" not in str(said)
    command, gained = said["next"].split(" : ")
    assert gained == "a verdict on what it gained"
    program, *flags = shlex.split(command)
    assert program == "robolearn" and run(*flags, "--episodes", 2, "--worlds", 2, "--json") == 0
    verdict = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert verdict["policy"] == str(bc) and verdict["against"]["policy"] == str(out)


@pytest.mark.long
def test_each_half_says_what_it_did_and_the_next_command_works(
    bc: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two programs, without --json: each line is compared with what lies on the disk."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    out, spool = tmp_path / "run", tmp_path / "spool"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "ROBOLEARN_HIL_TOKEN": "x" * 20}
    learner = ["hil", "learner", "--policy", bc, "--out", out, "--listen", address, "--env-steps", 120, *SMALL]
    actor = ["hil", "actor", "--policy", bc, "--out", spool, "--learner", address, "--task", "lift", "--operator",
             "scripted"]  # fmt: skip
    halves = [
        subprocess.Popen([*PROGRAM, *map(str, words)], env=env, stdout=subprocess.PIPE, text=True)
        for words in (learner, actor)
    ]
    try:
        screens = [half.communicate(timeout=120)[0] for half in halves]
    finally:
        for half in halves:
            half.kill()
    assert [half.returncode for half in halves] == [0, 0], screens
    learned, played = (dict(line.split(maxsplit=1) for line in screen.splitlines()) for screen in screens)
    stored, found = json.loads((out / "result.json").read_text()), records(tmp_path, bc)
    steps = [record for record in found if isinstance(record, ReplayStep)]
    counted = f"{stored['env_steps']:,} control steps in {stored['episodes']} episode"
    assert len(steps) == stored["env_steps"]
    assert learned["policy"] == str(out / "policy") and learned["taught"].startswith(counted)
    assert played["played"].startswith(counted) and " in lift, as actor" in played["played"]
    share = 100 * sum(step.intervention for step in steps) / len(steps)
    assert played["operator"] == f"commanded {share:.1f}% of the control steps"
    assert played["sent"] == f"all {len(found):,} records, to the learner at {address}"
    assert not {"env_steps", "records", "period_ms", "wall_s.total"} & {*learned, *played}
    assert "None" not in "".join(screens)
    for said in (learned["next"], played["next"]):
        command = said.split(" : ")[0].replace("TASK", "lift").replace("RUN", str(out))
        program, *flags = shlex.split(command)
        assert program == "robolearn" and run(*flags, "--episodes", 1, "--worlds", 1, "--json") == 0
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["against"]["policy"] == str(out)


def test_an_actor_whose_person_had_enough(tmp_path: Path) -> None:
    arm = {"robot": "fr3", "stops": 0, "latency_ms": {"p50": 12.34, "p99": 20.0}, "violations": 0}
    said = {"actor": "left", "episodes": 1, "env_steps": 40, "interventions": 10, "records": 41, "acknowledged": 30,
            "finished": False, "period_ms": {"p50": 50.0, "p99": 51.26}}  # fmt: skip
    actor = HilActor(policy=Path("runs/bc"), out=tmp_path, robot="fr3", teleop="gamepad", learner="h:1")
    lines = printed(actor, said | arm)
    assert lines["played"] == "40 control steps in 1 episode on fr3, as left"
    assert lines["operator"] == "commanded 25.0% of the control steps"
    assert lines["sent"] == f"30 of 41 records; the others are in {tmp_path}"
    assert lines["pace"] == "a control step each 50.0 ms (p99 51.3)" and lines["arm"].startswith("fr3: 0 stops, 0 viol")
    assert lines["next"] == "the same command goes on, and first sends what is left"
    whole = printed(actor, said | arm | {"finished": True, "acknowledged": 41})
    assert whole["next"].startswith("robolearn deploy --policy RUN --robot fr3 : "), "no world has that arm"
    assert "operator" not in printed(actor, said | arm | {"env_steps": 0, "interventions": 0, "period_ms": None})


def test_a_run_that_a_person_ended_is_counted_from_its_episodes(tmp_path: Path) -> None:
    """4 episodes, of which the last 3 count: 2 of them without the operator, 1 of these a success."""
    row = {"cut": False, "episode_steps": 100, "interventions": 0, "success": True}
    rows = [row, row | {"interventions": 60}, row | {"success": False}, row]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps({"step": i} | r) + "\n" for i, r in enumerate(rows)))
    command = HilRun(policy=Path("runs/bc"), out=tmp_path, task="lift", teleop="keyboard", success_window=3)
    lines = shown(command, {"finished": False, "env_steps": 1400, "updates": 7})
    assert lines["taught"] == "1,400 control steps in 4 episodes, 7 updates of proposals, in 61 s"
    assert lines["ended"].startswith("by you, before the 24,000 control steps of the budget")
    assert lines["success"].startswith("66.7% (") and ", 3 episodes) of the last" in lines["success"]
    assert lines["operator"] == "commanded 20.0% of the control steps of the last 3 episodes"
    assert lines["next"].startswith(f"robolearn evaluate --policy runs/bc --against {tmp_path} --task lift : ")


def test_a_run_of_the_operator_alone_has_no_success(tmp_path: Path) -> None:
    row = {"step": 0, "cut": False, "episode_steps": 50, "interventions": 50, "success": True}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    arm = {"robot": "fr3", "stops": 1, "latency_ms": {"p50": 12.34, "p99": 20.0}, "violations": 0}
    command = HilRun(policy=Path("runs/bc"), out=tmp_path, robot="fr3", teleop="keyboard")
    lines = shown(command, {"finished": False, "env_steps": 50, "updates": 1, "arm": arm})
    assert lines["success"] == "not known: no episode went without the operator"
    assert lines["operator"] == "commanded 100.0% of the control steps of the last episode"
    assert "in 1 episode," in lines["taught"]
    assert (
        lines["arm"] == "fr3: 1 stop, 0 violations of the arm's limits, 12.3 ms (p99 20.0) from observation to command"
    )
    assert lines["next"].startswith(f"robolearn deploy --policy {tmp_path} --robot fr3 : "), "no world has that arm"


def shown(command: HilRun, result: dict[str, Any]) -> dict[str, str]:
    """The lines of the screen by their first word."""
    more = {"run": str(command.out), "policy": str(command.out / "policy"), "wall_s": {"run": 61.2}}
    return printed(command, result | more)


def printed(command: Command, result: dict[str, Any]) -> dict[str, str]:
    screen = StringIO()
    command.show(result, Console(file=screen, width=60, soft_wrap=True))
    return dict(re.split(r"\s+", line, maxsplit=1) for line in screen.getvalue().splitlines())  # type: ignore[misc]


def test_the_sentence_of_a_half_is_its_last_one_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "actor.log"
    log.write_text("12:00:00 noise\nrobolearn: error: task: got lft\n")
    refused = process_error("actor", 2, tmp_path)
    assert (str(refused), refused.exit_code, getattr(refused, "__notes__", [])) == ("task: got lft", 2, [])
    failed = process_error("actor", 1, tmp_path)
    assert (str(failed), failed.exit_code, failed.__notes__) == ("task: got lft", 1, [f"logs: {tmp_path}"])
    log.write_text("Traceback\n  line\nKeyError: 'x'\n\n")
    assert str(process_error("actor", 1, tmp_path)) == "the actor node ended with exit code 1: KeyError: 'x'"
    killed = process_error("learner", -9, tmp_path)
    assert isinstance(killed, NodeDied) and str(killed) == "the learner node was killed by SIGKILL"


@pytest.mark.parametrize(
    ("before", "written", "error", "kept"),
    [
        ([], ["logs/a.log", "config.json", "state/1", ".lock"], BadInput("x"), None),
        (["logs/old.log", "note"], ["logs/a.log", "config.json", "spool/x"], BadInput("x"), {"logs", "note"}),
        ([], ["logs/a.log"], RobolearnError("x"), {"logs"}),
        ([], ["config.json", "metrics.jsonl"], BadInput("x"), {"config.json", "metrics.jsonl"}),
    ],
)
def test_a_refusal_leaves_what_was_there_before(
    tmp_path: Path, before: list[str], written: list[str], error: RobolearnError, kept: set[str] | None
) -> None:
    out = tmp_path / "out"
    for name in before:
        write(out / name)
    with pytest.raises(RobolearnError), tidied(out):
        for name in written:
            write(out / name)
        raise error
    assert (set(path.name for path in out.iterdir()) if out.exists() else None) == kept


def test_what_was_played_is_kept(tmp_path: Path) -> None:
    from robolearn.io.append_only import Journal

    with pytest.raises(BadInput), tidied(tmp_path / "out"):
        write(tmp_path / "out" / "config.json")
        journal = Journal(tmp_path / "out" / "spool" / "actor.transitions")
        journal.append(b"a step")
        journal.close()
        raise BadInput("x")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"config.json", "spool"}


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"step": 0}\n')
