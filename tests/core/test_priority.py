"""Threads keep, and hand on, the priority that they were given last."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from robolearn.core.machine import own_schedule, set_schedule, threads

LIBC = ctypes.CDLL(None)


def in_a_thread(work: Callable[[], None]) -> None:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            with suppress(PermissionError):
                work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    assert not thread.is_alive() and not failures, failures


def remembered() -> tuple[int, int]:
    """What the C library takes for the policy and priority of the calling thread."""
    policy, priority = ctypes.c_int(), (ctypes.c_int * 16)()
    own = ctypes.c_ulong(threading.get_ident())
    assert LIBC.pthread_getschedparam(own, ctypes.byref(policy), priority) == 0
    return policy.value, priority[0]


def test_what_another_library_asked_for_is_forgotten() -> None:
    def work() -> None:
        own = ctypes.c_ulong(threading.get_ident())
        if LIBC.pthread_setschedparam(own, os.SCHED_FIFO, (ctypes.c_int * 16)(99)):  # as an encoder does
            raise PermissionError
        assert own_schedule() == remembered() == (os.SCHED_FIFO, 99)
        for schedule in ((os.SCHED_FIFO, 7), (os.SCHED_OTHER, 0)):
            set_schedule(threading.get_native_id(), schedule)
            assert own_schedule() == remembered() == schedule
            in_a_thread(lambda given=schedule: _has(given))

    in_a_thread(work)


def _has(schedule: tuple[int, int]) -> None:
    assert own_schedule() == remembered() == schedule


def test_a_thread_of_another_is_set_by_its_id() -> None:
    go, known, ids = threading.Event(), threading.Event(), []

    def wait() -> None:
        ids.append(threading.get_native_id())
        known.set()
        go.wait(10)

    other = threading.Thread(target=wait)
    other.start()
    try:
        assert known.wait(10)
        assert {threading.get_native_id(), ids[0]} <= set(threads())
        with suppress(PermissionError):
            set_schedule(ids[0], (os.SCHED_FIFO, 3))
            assert os.sched_getparam(ids[0]).sched_priority == 3
    finally:
        go.set()
        other.join(10)
    until = time.monotonic() + 10
    while ids[0] in threads() and time.monotonic() < until:  # Python is done with it before the kernel is
        time.sleep(0.01)
    with pytest.raises(ProcessLookupError):
        set_schedule(ids[0], (os.SCHED_OTHER, 0))
