"""While a video is encoded no thread has the highest real-time priority, and lesser ones are left alone."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np

from robolearn.core import ArraySpec
from robolearn.core.machine import HIGHEST, make_ordinary, ordinary_priority
from robolearn.data.video.encoder import VideoConfig, VideoEncoder


def priorities() -> list[int]:
    found = []
    for thread in os.listdir("/proc/self/task"):
        try:
            found.append(os.sched_getparam(int(thread)).sched_priority)
        except OSError:
            continue
    return found


def test_an_encoder_at_work_is_an_ordinary_process(tmp_path: Path) -> None:
    spec = ArraySpec((64, 64, 3), "uint8")
    encoder = VideoEncoder(tmp_path / "video.mp4", "images.front", spec, 20.0, VideoConfig())
    for i in range(40):
        encoder.put(np.full((64, 64, 3), i, np.uint8))
    seen = priorities()
    encoder.finish()
    assert len(seen) > 1 and max(seen) < HIGHEST


def test_lesser_priorities_stay() -> None:
    go, asked = threading.Event(), threading.Semaphore(0)
    kept: dict[int, int] = {}

    def work(priority: int) -> None:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
        except PermissionError:  # then an encoder may not either
            return
        finally:
            asked.release()
        go.wait(10)
        kept[priority] = os.sched_getparam(0).sched_priority

    threads = [threading.Thread(target=work, args=(priority,)) for priority in (10, HIGHEST)]
    for thread in threads:
        thread.start()
        assert asked.acquire(timeout=10)
    make_ordinary(HIGHEST)
    go.set()
    for thread in threads:
        thread.join(10)
    assert kept in ({10: 10, HIGHEST: 0}, {})


def test_who_opens_an_encoder_keeps_its_own_priority() -> None:
    seen: list[int] = []

    def work() -> None:
        with suppress(PermissionError):  # then an encoder may not either
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
            with ordinary_priority():
                os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(HIGHEST))  # as SVT-AV1 does
            seen.append(os.sched_getparam(0).sched_priority)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert seen in ([10], [])
