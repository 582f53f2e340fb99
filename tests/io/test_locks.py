"""Locks against real processes: killed, forked, waiting, looking on."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from robolearn.io.locks import Lock, LockHeld, is_locked

HOLD = """
import multiprocessing, sys, time
from pathlib import Path
from robolearn.io.locks import Lock
lock = Lock(Path(sys.argv[1]))
worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
worker.start()
print(worker.pid, flush=True)
sys.stdin.read()
lock.release()
print("released", flush=True)
time.sleep(60)
"""


class Holder:
    """A process that holds a lock, and the process id of a worker that it has forked since."""

    def __init__(self, path: Path) -> None:
        command = [sys.executable, "-c", HOLD, str(path)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.worker = int(self.process.stdout.readline())

    @property
    def pid(self) -> int:
        return self.process.pid

    def release(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        assert self.process.stdout.readline() == "released\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)


@pytest.fixture
def hold() -> Iterator[Callable[[Path], Holder]]:
    holders: list[Holder] = []

    def start(path: Path) -> Holder:
        holders.append(Holder(path))
        return holders[-1]

    yield start
    for holder in holders:
        holder.kill()
        os.kill(holder.worker, signal.SIGKILL)
        for stream in (holder.process.stdin, holder.process.stdout):
            assert stream is not None
            stream.close()


def test_another_process_is_refused_with_the_holders_id(tmp_path: Path, hold: Callable[[Path], Holder]) -> None:
    path = tmp_path / "lock"
    holder = hold(path)
    with pytest.raises(LockHeld, match=f"process {holder.pid}$") as refused:
        Lock(path)
    assert refused.value.holder == str(holder.pid) and is_locked(path)
    holder.release()
    with Lock(path) as lock:
        assert lock.held and path.read_text() == f"{os.getpid()}\n"


def test_a_killed_holder_leaves_no_lock_though_its_forked_worker_lives(
    tmp_path: Path, hold: Callable[[Path], Holder]
) -> None:
    path = tmp_path / "lock"
    holder = hold(path)
    holder.kill()
    os.kill(holder.worker, 0)  # it is alive
    deadline = time.monotonic() + 10.0
    while is_locked(path):  # until the worker, which may not have run yet, has closed what it was forked with
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert path.exists()
    Lock(path).release()


def test_a_forked_worker_neither_holds_nor_releases(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with Lock(path) as lock:
        child = os.fork()
        if not child:
            held = lock.held
            lock.release()
            del lock
            os._exit(3 if held else 0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert lock.held and is_locked(path)
        with pytest.raises(LockHeld):
            Lock(path)


def test_a_program_that_is_started_does_not_keep_the_lock(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False) as child:
        lock.release()
        assert not is_locked(tmp_path / "lock")
        Lock(tmp_path / "lock").release()
        child.communicate(b"\n")


def test_this_process_itself_is_refused_and_release_may_be_called_twice(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = Lock(path)
    with pytest.raises(LockHeld, match=f"process {os.getpid()}"):
        Lock(path)
    assert lock.held
    lock.release()
    lock.release()
    assert not lock.held and path.exists() and not is_locked(path)


def test_a_file_that_nobody_holds_is_no_lock(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "none")
    (tmp_path / "stale").write_text("1\n")
    assert not is_locked(tmp_path / "stale")
    Lock(tmp_path / "stale").release()


def test_an_onlooker_is_no_holder(tmp_path: Path) -> None:
    """The shared lock of one who looks is neither a lock to another who looks, nor in the way of an owner for long."""
    path = tmp_path / "lock"
    Lock(path).release()
    with path.open() as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        assert not is_locked(path)
        threading.Timer(0.03, fcntl.flock, (look, fcntl.LOCK_UN)).start()
        with Lock(path) as lock:
            assert lock.held and is_locked(path)


def test_a_look_does_not_disturb_the_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with Lock(path):
        assert all(is_locked(path) for _ in range(100))
        assert path.read_text() == f"{os.getpid()}\n"
        with pytest.raises(LockHeld, match=f"{os.getpid()}"):  # nor does one who was refused
            Lock(path)
        assert is_locked(path) and path.read_text() == f"{os.getpid()}\n"


@pytest.mark.long
def test_one_who_waits_has_it_when_the_holder_dies(tmp_path: Path, hold: Callable[[Path], Holder]) -> None:
    path = tmp_path / "lock"
    holder = hold(path)
    threading.Timer(0.3, holder.process.kill).start()
    begun = time.monotonic()
    with Lock(path, float("inf")) as lock:
        assert lock.held and 0.2 < time.monotonic() - begun < 10


def _take(path: Path, barrier: threading.Barrier, results: multiprocessing.SimpleQueue) -> None:
    barrier.wait()
    try:
        lock = Lock(path)
    except LockHeld:
        results.put(0)
    else:
        results.put(os.getpid())
        assert lock.held
        time.sleep(1.0)


@pytest.mark.long
def test_of_processes_that_begin_together_one_wins(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    results, barrier = context.SimpleQueue(), context.Barrier(6)
    workers = [context.Process(target=_take, args=(tmp_path / "lock", barrier, results)) for _ in range(6)]
    for worker in workers:
        worker.start()
    answers = [results.get() for _ in workers]
    for worker in workers:
        worker.join(10)
    winners = [answer for answer in answers if answer]
    assert len(winners) == 1 and (tmp_path / "lock").read_text() == f"{winners[0]}\n"
