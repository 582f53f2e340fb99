"""Training on a set that is twice as large as memory, beside the same set in memory: two processes, in turn.

One process may take half of what the set's pictures take unpacked (RLIMIT_DATA, which anybody may set), and reads what
it needs from a disk whose files the system has been made to forget; the other has no limit. This file is both: the
functions that start the processes, and, run as ``python -m robolearn.bench.memory SET LIMIT BATCH``, a process.
"""

from __future__ import annotations

import logging
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

log = logging.getLogger(__name__)

TIMES = 2  # the set's pictures over the limit
LEAST = 1_200_000_000  # bytes that a process needs besides the pictures: torch, the policy, a batch
BATCH = 64  # windows of a gradient step
ROUNDS = 5  # measurements of training, whose median counts


def beyond_memory(root: Path, seconds: float) -> dict[str, Any] | None:
    """Rates of training on the set `root`, whose frame cache lies beside it, in memory and beyond it.

    Args:
      seconds: of training, in each process.

    Returns:
      ``{"ratio", "cached_windows_per_s", "limited_windows_per_s", "limit_bytes", "pictures_bytes"}``, the ratio that of
      the rates; None for a set too small for a limit that a process can live with, or too large for the memory of this
      machine.

    Raises:
      RobolearnError: a process ended before it had measured.
    """
    from robolearn.core.machine import available_memory
    from robolearn.data import Dataset
    from robolearn.data.reading.cache import MEMORY_SHARE

    dataset = Dataset.open(root, cache="beside")
    size = sum(dataset.frames * height * width * 3 for height, width, _ in (r.shape for r in dataset.readers.values()))
    limit, free = int(size / TIMES), available_memory()
    if limit < LEAST:
        what = "no training beyond memory: %.1f GB of pictures are too few for a limit; larger --scales have more"
        log.info(what, size / 1e9)
        return None
    if size > MEMORY_SHARE * free:
        what = "no training beyond memory: to compare with, %.1f GB of pictures have to fit into half of %.1f GB"
        log.info(what, size / 1e9, free / 1e9)
        return None
    processes = {"cached": _Trained(root, 0), "limited": _Trained(root, limit)}
    rates: dict[str, list[float]] = {name: [] for name in processes}
    try:
        for process in processes.values():
            process.next()  # that it is ready
        # In turn, so that a machine whose speed drifts treats both alike; the first round warms up.
        for turn in range(ROUNDS + 1):
            for name, process in processes.items():
                rate = process.measure(seconds / ROUNDS)
                if turn:
                    rates[name].append(rate)
    finally:
        for process in processes.values():
            process.close()
    cached, limited = median(rates["cached"]), median(rates["limited"])
    return {
        "ratio": limited / cached,
        "cached_windows_per_s": cached,
        "limited_windows_per_s": limited,
        "limit_bytes": limit,
        "pictures_bytes": size,
    }


class _Trained:
    """A process that trains on the set `root` with so many bytes of memory (0: no limit) when it is asked to."""

    def __init__(self, root: Path, limit: int) -> None:
        words = [sys.executable, "-P", "-m", "robolearn.bench.memory", str(root), str(limit), str(BATCH)]
        # Arrow's own allocator reserves 1 GiB at once, which a limit counts as taken.
        environment = os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"}
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self._process: subprocess.Popen[str] = subprocess.Popen(words, env=environment, text=True, **pipes)

    def measure(self, seconds: float) -> float:
        """Windows per second over this time."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return float(self.next())

    def next(self) -> str:
        """The next line that it prints."""
        from robolearn.core import RobolearnError

        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            said = self._process.communicate()[1].strip().splitlines()[-3:]
            raise RobolearnError(f"training beyond memory failed: {' | '.join(said)}")
        return line

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def main(root: Path, limit: int, batch: int) -> None:
    """Train on `root` for as many seconds as each line of stdin says, and print the rate."""
    if limit:
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        limit = limit if most == resource.RLIM_INFINITY else min(limit, most)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    from robolearn.core.machine import resolve_device
    from robolearn.data import Dataset
    from robolearn.data.reading.cache import OnDemand
    from robolearn.train.imitation import ImitationTrainer
    from robolearn.train.settings import ImitationConfig

    config = ImitationConfig(batch=batch, steps_per_iteration=1)
    dataset = Dataset.open(root, cache="beside")
    trainer = ImitationTrainer.of_dataset(config, dataset, resolve_device("auto"))
    in_memory = [not isinstance(dataset.images(camera), OnDemand) for camera in dataset.cameras]
    if in_memory != [not limit] * len(in_memory):
        sys.exit(
            f"cameras in memory: got {in_memory}, expected {'none' if limit else 'all'}; too little memory is free"
        )
    done = 0
    print("ready", flush=True)
    for line in sys.stdin:
        if limit:
            _forget(root)
        begun, first = time.perf_counter(), done
        while (taken := time.perf_counter() - begun) < float(line):
            trainer.iterate(done)
            done += 1
        print((done - first) * batch / taken, flush=True)


def _forget(root: Path) -> None:
    """Let the system forget what it keeps of the frame cache in memory."""
    for path in (root / ".cache/frames").rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
