"""Worlds in another interpreter: the same results, and each fault named in one line."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.core import BadInput, RobolearnError
from sim.adapters import AdapterVectorEnv, make_gym
from sim.bridge import pools, process
from sim.bridge.far import idle
from sim.registry import WorldConfig

HERE = Path(__file__).parent
TASK = "gym:other_maker:Odd-v0"
sys.path.insert(0, str(HERE))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter that has numpy and gymnasium, and nothing else of ours."""
    return importlib.import_module("lent_python").make(tmp_path_factory.mktemp("theirs") / "env")


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE)


@pytest.mark.long
def test_it_gives_what_gymnasium_gives_in_this_process(python: str) -> None:
    """The judge is Gymnasium's own env, stepped by hand with the actions in its own bounds."""
    importlib.import_module("other_maker")
    from sim.bridge.far.world import start_seed

    env = make_gym(TASK, 3, workers=2, python=python)
    try:
        assert env.interface.control_hz == 25 and env.max_episode_steps == 8 and env.reports_success
        assert env.interface.observation["proprio"].names == ("robot.place.0", "robot.place.1", "target.0")
        first, _ = env.reset(seed=11)
        rng = np.random.default_rng(0)
        chunk = rng.uniform(-1, 1, (3, 5, 2)).astype(np.float32)
        observation, reward, terminated, truncated, infos = env.step_chunk(chunk)
        rest = rng.uniform(-1, 1, (3, 40, 2)).astype(np.float32)  # longer than the memory was laid out for
        after = env.step_chunk(rest, active=np.array([True, False, True]))
        for w in range(3):
            own = gymnasium.make("Odd-v0", disable_env_checker=True)
            start, _ = own.reset(seed=start_seed(11, w, 0))
            np.testing.assert_allclose(first["proprio"][w, :2], start["robot"]["place"], rtol=1e-6)
            total = [own.step(2.0 * action.astype(np.float64)) for action in chunk[w]]
            np.testing.assert_allclose(observation["proprio"][w, :2], total[-1][0]["robot"]["place"], rtol=1e-6)
            np.testing.assert_allclose(reward[w], sum(step[1] for step in total), rtol=1e-5)
            np.testing.assert_allclose(infos["step_rewards"][w], [step[1] for step in total], rtol=1e-6)
            assert infos["success"][w] and not terminated[w] and not truncated[w]
            if w == 1:
                np.testing.assert_array_equal(after[0]["proprio"][1], observation["proprio"][1])
                continue
            last = [own.step(2.0 * action.astype(np.float64)) for action in rest[w, :3]][-1]
            np.testing.assert_allclose(after[4]["final_obs"]["proprio"][w, :2], last[0]["robot"]["place"], rtol=1e-6)
            again, _ = own.reset(seed=start_seed(11, w, 1))
            np.testing.assert_allclose(after[0]["proprio"][w, :2], again["robot"]["place"], rtol=1e-6)
        assert after[3].tolist() == [True, False, True] and after[4]["steps"].tolist() == [3, 0, 3]
        assert after[4]["_final_obs"].tolist() == [True, False, True]
    finally:
        env.close()


def test_nothing_of_ours_is_in_the_other_interpreter_nor_needed(python: str) -> None:
    env = make_gym("gym:other_maker:Interpreter-v0", 1, python=python)
    version, found, _ = env.reset(seed=0)[0]["proprio"][0]
    env.close()
    assert (version, found) == (sys.version_info[1], 0)


def test_our_paths_do_not_reach_it(python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A workstation's PYTHONPATH has packages of another Python."""
    monkeypatch.setenv("PYTHONPATH", str(HERE.parents[1]))
    monkeypatch.setenv("PYTHONHOME", str(HERE))
    env = make_gym("gym:other_maker:Interpreter-v0", 1, python=python)
    assert env.reset(seed=0)[0]["proprio"][0, 1] == 0
    env.close()


FAULTS = {
    "dies": r"world 1 of gym:other_maker:Odd-v0: its worker process ended with exit code 7; its last words: "
    '"out of patience"',
    "exits": r"world 1 of gym:other_maker:Odd-v0 failed: SystemExit: the licence ran out",
    "asks": r"world 1 of gym:other_maker:Odd-v0 failed: EOFError",
    "another shape": r"world 1 of gym:other_maker:Odd-v0 failed: observation 'robot.place' has the shape \(3,\), its "
    r"space says \(2,\)",
}


@pytest.mark.long
@pytest.mark.parametrize("habit", FAULTS)
def test_a_fault_while_it_steps_is_named(python: str, habit: str) -> None:
    env = make_gym(TASK, 2, workers=1, python=python, kwargs={"habit": habit})
    env.reset(seed=0)
    with pytest.raises(RobolearnError, match=FAULTS[habit]) as caught:
        env.step_chunk(np.zeros((2, 3, 2), np.float32), active=np.array([False, True]))
    assert "\n" not in str(caught.value)
    env.close()


def test_nan_truncates_and_is_named(python: str, caplog: pytest.LogCaptureFixture) -> None:
    env = make_gym(TASK, 1, python=python, kwargs={"habit": "nan"})
    env.reset(seed=0)
    _, _, terminated, truncated, infos = env.step_chunk(np.zeros((1, 3, 2), np.float32))
    env.close()
    assert truncated[0] and not terminated[0] and infos["steps"][0] == 2
    assert "world 0 of gym:other_maker:Odd-v0: non-finite proprio: episode 0 truncated" in caplog.text


@pytest.mark.long
def test_a_fault_while_it_is_made_is_named(python: str) -> None:
    with pytest.raises(BadInput, match="SystemExit while making Odd-v0: no licence found"):
        make_gym(TASK, 1, python=python, kwargs={"habit": "exits while made"})
    dead = 'exit code 3 while it started; its last words: "segmentation of the ground failed"'
    with pytest.raises(RobolearnError, match=dead):
        make_gym(TASK, 2, python=python, kwargs={"habit": "dies while made"})
    with pytest.raises(BadInput, match=r"got Even-v0, expected a registered id; available: Interpreter-v0, Odd-v0"):
        make_gym("gym:other_maker:Even-v0", 1, python=python)
    with pytest.raises(BadInput, match=r"no module other_makr is installed, and no other_makr.py .*Did you mean"):
        make_gym("gym:other_makr:Odd-v0", 1, python=python)
    with pytest.raises(BadInput, match="camera of gym:other_maker:Odd-v0: got front; available: render"):
        make_gym(TASK, 1, python=python, cameras=("front",))


@pytest.mark.long
@pytest.mark.realtime
def test_a_hang_ends_and_is_named(python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "STEP_S", 1.5)
    env = make_gym(TASK, 3, workers=1, python=python, kwargs={"habit": "hangs"})
    env.reset(seed=0)
    pid = env._pool.pids()[0]
    env.step_chunk(np.zeros((3, 1, 2), np.float32))
    with pytest.raises(RobolearnError, match=r'world 2 of .* hangs: no answer within 2 s; its last words: "step 2"'):
        env.step_chunk(np.zeros((3, 1, 2), np.float32), active=np.array([False, False, True]))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.long
@pytest.mark.realtime
def test_what_it_prints_and_a_slow_start_are_said_once(
    python: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(process, "TELL_S", 1.0)
    caplog.set_level(logging.INFO)
    env = make_gym(TASK, 2, workers=2, python=python, kwargs={"habit": "slow"})
    env.reset(seed=0)
    env.close()
    lines = [record.getMessage() for record in caplog.records]
    slow = [line for line in lines if line.startswith(f"{TASK} is still starting: ")]
    assert slow and "UserWarning: a renderer was not found" in "".join(slow) + "".join(lines)
    said = [line for line in lines if line.startswith(f"{TASK} prints while it starts")]
    assert len(said) == 1 and "lines before" in said[0]
    assert f"{TASK}: observations of float64 are kept as float32" in lines
    assert capfd.readouterr() == ("", "")


@pytest.mark.long
@pytest.mark.realtime
def test_it_dies_with_its_parent(python: str, tmp_path: Path) -> None:
    """A parent that is killed can say nothing, and a world that is stuck in a call would not hear it."""
    script = (
        "import sys, numpy as np\nfrom sim.adapters import make_gym\n"
        f"env = make_gym({TASK!r}, 2, workers=2, python={python!r}, kwargs={{'habit': 'hangs'}})\n"
        "env.reset(seed=0)\nenv.step(np.zeros((2, 2), np.float32))\nprint(*env._pool.pids(), flush=True)\n"
        "env.step(np.zeros((2, 2), np.float32))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment)
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    time.sleep(0.3)  # both are in the call that never comes back
    assert len(pids) == 2 and all(Path(f"/proc/{pid}").exists() for pid in pids)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_what_is_no_interpreter_is_refused(python: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").write_text("no program")
    (tmp_path / "text").chmod(0o755)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    bare = str(tmp_path / "bare/bin/python")
    cases = {
        "/no/such": "--world-python /no/such: got no such file, expected a Python interpreter",
        str(Path(python).parents[1]): f"got a folder, expected a Python interpreter. In an environment it is {python}",
        str(tmp_path / "text"): "got a file that cannot be run",
        "/bin/ls": "--world-python /bin/ls: got another program, expected a Python interpreter",
        bare: f"got no gymnasium there, expected numpy and gymnasium. Run: {bare} -m pip install numpy gymnasium",
    }
    for given, line in cases.items():
        with pytest.raises(BadInput) as caught:
            make_gym(TASK, 1, python=given)
        assert line in str(caught.value) and "\n" not in str(caught.value)
    command = ["collect", "--task", "robosuite:Lift", "--world-python", python, "--out", str(tmp_path / "set")]
    assert main(command) == 2
    assert "task robosuite:Lift: got option world python" in capsys.readouterr().err


def test_an_old_interpreter_is_named() -> None:
    """The boot code is what any Python 3 can read."""
    boot = process.BOOT.format(oldest=(99, 0), init="", folder="")
    done = subprocess.run([sys.executable, "-c", boot], capture_output=True, text=True)
    assert done.stderr == f"it is Python {sys.version_info[0]}.{sys.version_info[1]}\n"


def test_a_hang_in_this_process_is_named_once(monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    monkeypatch.setattr(pools, "STEP_S", 0.1)
    worlds = [idle.build() for _ in range(3)]
    step, said = (
        worlds[1].step,
        "world 1 of idle hangs: no answer within 0 s. It runs in this process, which cannot end it",
    )

    def stuck(action):
        for _ in range(100):
            time.sleep(0.05)
            if said in caplog.text:
                time.sleep(0.3)  # long enough to say it again
                break
        return step(action)

    monkeypatch.setattr(worlds[1], "step", stuck)
    before = set(threading.enumerate())
    env = AdapterVectorEnv(pools.LocalPool(worlds), 3)
    env.reset(seed=0)
    time.sleep(0.2)  # nobody is at work: no hang
    with caplog.at_level(logging.WARNING):
        env.step_chunk(np.zeros((3, 1, env.interface.action.size), np.float32))
    env.close()
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith(said)]
    assert len(lines) == 1 and "--sim-threads 1" in lines[0]
    for _ in range(100):
        if not (left := [one for one in set(threading.enumerate()) - before if one.name == "world-watch"]):
            break
        time.sleep(0.05)
    assert not left  # the watch ends with its worlds


def test_a_light_world_gets_a_process_of_its_own_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE)
    env = WorldConfig("gym:counter_env:Counter-v0", threads=1).build(1)
    assert env._pool.pids() != [os.getpid()]  # type: ignore[attr-defined]
    env.close()
