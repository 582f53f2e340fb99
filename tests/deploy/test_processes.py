"""The nodes' processes: watched, ended in order, told apart by name. Real ones, short and small."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from robolearn.core import BadInput, RobolearnError
from robolearn.deploy import NodeDied, Program, StackProcesses

pytestmark = pytest.mark.realtime

HERE = Path(__file__).resolve().parents[2]
SLEEPS = "exec sleep 60"
# Ends at SIGINT with a line in a common file; `trap` only works between two commands.
POLITE = "trap 'echo {name} >> {order}; exit 0' INT; echo up; while :; do sleep 0.02; done"


def sh(name: str, script: str) -> Program:
    return Program(name, ("sh", "-c", script))


def polite(name: str, order: Path) -> Program:
    return sh(name, POLITE.format(name=name, order=order))


def up(logs: Path, *names: str) -> None:
    """Wait for their first word."""
    end = time.monotonic() + 10
    while not all((logs / f"{name}.log").read_text() for name in names):
        assert time.monotonic() < end
        time.sleep(0.01)


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def until(condition, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def test_they_end_in_order_one_after_the_other(tmp_path: Path) -> None:
    order = tmp_path / "order"
    names = ("policy", "streamer", "safety", "arm")
    with StackProcesses([polite(name, order) for name in names], tmp_path / "logs") as nodes:
        up(tmp_path / "logs", *names)
        nodes.check()
        assert tuple(nodes.pids) == names and nodes.codes == {}
    assert order.read_text().split() == list(names)
    assert nodes.codes == dict.fromkeys(names, 0) and nodes.pids == {}


NODES = ("policy", "streamer", "safety", "sim_arm")


@pytest.mark.parametrize("killed", NODES)
def test_a_killed_node_is_named_and_the_others_are_ended(tmp_path: Path, killed: str) -> None:
    with pytest.raises(NodeDied, match=f"the {killed} node was killed by SIGKILL") as caught:  # noqa: SIM117
        with StackProcesses([sh(name, SLEEPS) for name in NODES], tmp_path) as nodes:
            pids = nodes.pids
            os.kill(pids[killed], signal.SIGKILL)
            nodes.wait(10.0)
    assert (caught.value.name, caught.value.code, caught.value.exit_code) == (killed, -9, 1)
    assert all(gone(pid) for pid in pids.values())


@pytest.mark.parametrize(
    ("script", "says", "exit_code"),
    [
        ("echo noise; echo 'error: task: got lifd' >&2; echo more; exit 2", "exit code 2: task: got lifd", 2),
        ("echo 'robolearn: error: task: got lifd'; echo more; exit 2", "exit code 2: task: got lifd", 2),
        ("seq 1 20; exit 3", "exit code 3: 15 | 16 | 17 | 18 | 19 | 20", 1),
        ("exit 0", "the arm node ended with exit code 0", 1),
    ],
)
def test_a_node_that_ends_by_itself_is_quoted(tmp_path: Path, script: str, says: str, exit_code: int) -> None:
    with StackProcesses([sh("arm", script)], tmp_path) as nodes, pytest.raises(NodeDied) as caught:
        nodes.wait(10.0)
    assert says in str(caught.value) and caught.value.exit_code == exit_code


def test_whoever_does_not_listen_is_killed_with_its_children(tmp_path: Path) -> None:
    deaf = sh("deaf", "trap '' INT; sleep 60 & echo $!; wait; sleep 60")
    with StackProcesses([deaf, polite("arm", tmp_path / "order")], tmp_path) as nodes:
        up(tmp_path, "deaf", "arm")
        child = int((tmp_path / "deaf.log").read_text())
        began = time.monotonic()
        nodes.stop(0.3)
    assert 0.3 <= time.monotonic() - began < 5.0
    assert nodes.codes == {"deaf": -9, "arm": 0}
    until(lambda: gone(child))


def test_a_halted_node_is_ended_too(tmp_path: Path) -> None:
    with StackProcesses([polite("policy", tmp_path / "order")], tmp_path) as nodes:
        up(tmp_path, "policy")
        os.kill(nodes.pids["policy"], signal.SIGSTOP)
        nodes.stop(0.2)
    assert nodes.codes == {"policy": -9}


def test_time_passes_while_all_live(tmp_path: Path) -> None:
    with StackProcesses([sh("arm", SLEEPS)], tmp_path) as nodes:
        began = time.monotonic()
        nodes.wait(0.1)
    assert 0.1 <= time.monotonic() - began < 5.0


def test_a_program_that_is_not_there_leaves_nothing_running(tmp_path: Path) -> None:
    nodes = StackProcesses([sh("policy", SLEEPS), Program("arm", ("/nowhere/at/all",))], tmp_path)
    with pytest.raises(OSError, match="nowhere"), nodes:
        raise AssertionError("never gets here")
    assert nodes.pids == {} and nodes.codes["policy"] < 0


@pytest.mark.parametrize("folder", ["file", "file/sub", "/proc/nowhere", "/proc"])
def test_logs_that_cannot_be_written_are_bad_input(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").touch()
    nodes = StackProcesses([sh("arm", SLEEPS)], tmp_path / folder)
    with pytest.raises(BadInput, match=rf"^logs .*{folder}.*: got .*, expected a folder to write to$"), nodes:
        raise AssertionError("never gets here")
    assert nodes.pids == {}


def test_environment_and_log(tmp_path: Path) -> None:
    program = sh("arm", "echo $GREETING; echo $ROBOLEARN_PARENT >&2; exec sleep 60")
    with StackProcesses([program], tmp_path / "deep" / "logs", {"GREETING": "hello"}):
        until(lambda: len((tmp_path / "deep" / "logs" / "arm.log").read_text().split()) == 2)
    assert (tmp_path / "deep" / "logs" / "arm.log").read_text().split() == ["hello", str(os.getpid())]


@pytest.mark.long
def test_several_interrupts_do_not_leave_children(tmp_path: Path) -> None:
    """Ctrl-C twice: the second one while the first is being dealt with."""
    program = f"""
import sys, time
from pathlib import Path
from robolearn.deploy import StackProcesses, Program
slow = "trap 'sleep 0.5; exit 0' INT; echo up; while :; do sleep 0.02; done"
with StackProcesses([Program("slow", ("sh", "-c", slow)),
                Program("next", ("sh", "-c", "exec sleep 60"))], Path({str(tmp_path)!r})) as nodes:
    print(*nodes.pids.values(), flush=True)
    nodes.wait(60)
"""
    env = {**os.environ, "PYTHONPATH": str(HERE)}
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=env, text=True,
                              stderr=subprocess.DEVNULL)  # fmt: skip
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    up(tmp_path, "slow")
    parent.send_signal(signal.SIGINT)
    time.sleep(0.2)
    parent.send_signal(signal.SIGINT)
    assert parent.wait(10) != 0
    assert len(pids) == 2 and all(gone(pid) for pid in pids)


def test_died_is_an_error_of_ours() -> None:
    assert issubclass(NodeDied, RobolearnError)
