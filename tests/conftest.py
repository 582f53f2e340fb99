"""For all tests."""

from __future__ import annotations

import gc
import hashlib
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from robolearn.core.machine import ordinary_priority

# A shell that starts the tests in the background lets them ignore Ctrl-C, and with them the programs that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Ten ROS domains for each of up to four workers of a session; a file that starts nodes adds a number of its own.
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
SESSION = os.getppid() if WORKER else os.getpid()
os.environ["ROS_DOMAIN_ID"] = str(1 + (4 * SESSION + int(WORKER.removeprefix("gw") or 0)) % 10 * 10)


# Those that take a worker longest, first; the others follow in the order of their names. Seconds of one core.
LONGEST = (
    "cli/test_cli_hil.py",  # 50
    "rl/test_rl_runner.py",  # 40
    "cli/test_cli_learning.py",  # 40
    "cli/test_learning_lift.py",  # 30
    "rl/test_rl_off_policy.py",
    "data/tools/test_damaged_videos.py",
    "bench/test_benchmark_hil.py",
    "examples/test_examples.py",
    "cli/test_cli_bad_input.py",
    "data/test_data_repair.py",
    "rl/test_rl_resume.py",
    "bench/test_benchmark_data.py",
    "sim/test_experts.py",
    "rl/test_rl_devices.py",
    "house/test_wheel.py",
    "sim/test_adapters_robosuite.py",
    "sim/test_operator.py",
    # against the clock:
    "cli/test_record.py",  # 70
    "cli/test_deploy.py",  # 70
    "hardware/teleop/test_browser_chromium.py",
    "cli/test_record_interventions.py",
    "bench/test_benchmark_faults.py",
    "hardware/test_faults_processes.py",
    "launch/test_launch_spawn.py",
    "hardware/test_station_watch.py",
    "hil/console/test_console_chromium.py",
    "hardware/test_record_node.py",
)


STARTED = time.monotonic()
ALL_LONG = re.compile(r"^pytestmark = .*mark\.long", re.MULTILINE)
NO_TIME = "not reached in the time that these tests have"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("robolearn")
    group.addoption("--seconds", type=float, help="tests that have not begun by then are left out, and counted")
    group.addoption("--draw", default="", help="with --seconds: a word that draws the order of the files")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    seconds = item.config.getoption("--seconds")
    if seconds is not None and time.monotonic() - STARTED > seconds:
        pytest.skip(NO_TIME)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left = [report.nodeid for report in terminalreporter.stats.get("skipped", []) if NO_TIME in str(report.longrepr)]
    if left:
        files = len({name.partition("::")[0] for name in left})
        words = f"{len(left)} tests of {files} files were {NO_TIME}, {config.getoption('--seconds'):g} s"
        terminalreporter.write_line(f"{words}: make test-all runs them")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files all of whose tests are long are not even read where none of them is to run."""
    if "not long" not in config.option.markexpr or collection_path.suffix != ".py":
        return None
    return True if ALL_LONG.search(collection_path.read_text()) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Two million objects of libraries and tests live until the end: no garbage collection looks through them.

    Every other worker reads the folders from the last to the first. The first to read a file compiles it for pytest's
    assertions: so each worker does half of them.
    """
    tests = Path(__file__).parent
    whole = [session.startpath / name for name in session.config.args] == [tests]
    if whole and int(WORKER.removeprefix("gw") or 0) % 2:
        rooms = {path.relative_to(tests).parts[0] for path in tests.glob("*/**/test_*.py")}
        session.config.args = [str(tests / room) for room in sorted(rooms, reverse=True)]
    gc.disable()
    done = yield
    gc.collect()
    gc.freeze()
    gc.enable()
    return done


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Longest files first: a worker that gets one of them at the end would leave the others idle."""
    if draw := config.getoption("--draw"):
        items.sort(key=lambda item: hashlib.sha256(f"{draw} {item.path}".encode()).digest())
        return
    rank = {str(Path(__file__).parent / name): place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (rank.get(str(item.path), len(rank)), item.path))


@pytest.fixture
def no_default_device() -> Iterator[None]:
    """A tensor that is made without saying where has no content: what computes with it fails, as on a GPU."""
    import torch

    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


@pytest.fixture(autouse=True)
def ordinary_threads() -> Iterator[None]:
    """A test that encodes by a library alone leaves no thread of the highest priority behind (see `ordinary_priority`).

    Nodes that later tests start in this process would inherit it, and nothing else would run.
    """
    with ordinary_priority():
        yield


@pytest.fixture
def no_terminal() -> Iterator[int]:
    """What a device reads that shall not read the terminal of the tests."""
    read, write = os.pipe()
    yield read
    os.close(read)
    os.close(write)
