"""Training on a set that is twice as large as memory, beside the same set in memory: two processes, in turn.

One process may take half of what the set's pictures take unpacked (RLIMIT_DATA, which anybody may set), and reads what
it needs from a disk whose files the system has been made to forget; the other has no limit. This file is both: the
functions that start the processes, and, run as ``python -m robolearn.bench.memory SET LIMIT BATCH``, a process.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import resource
import sys
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from robolearn.bench.measuring import MeasuringProcess, in_turn, rate
from robolearn.core import RobolearnError
from robolearn.core.machine import available_memory, resolve_device

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
    log.info("training in memory and beyond it")
    with training_process(root, 0) as in_memory, training_process(root, limit) as on_disk:
        processes = {"cached": in_memory, "limited": on_disk}
        for process in processes.values():
            process.answer()  # that it is ready
        turns = {name: partial(process.measure, seconds / ROUNDS) for name, process in processes.items()}
        cached, limited = map(median, in_turn(turns, ROUNDS).values())
    return {
        "ratio": limited / cached,
        "cached_windows_per_s": cached,
        "limited_windows_per_s": limited,
        "limit_bytes": limit,
        "pictures_bytes": size,
    }


def training_process(root: Path, limit: int) -> MeasuringProcess:
    """A process that trains on the set `root` with so many bytes of memory (0: no limit) when it is asked to."""
    words = [sys.executable, "-P", "-m", "robolearn.bench.memory", str(root), str(limit), str(BATCH)]
    # Arrow's own allocator reserves 1 GiB at once, which a limit counts as taken.
    return MeasuringProcess(words, _failed, env=os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"})


def _failed(said: str) -> RobolearnError:
    return RobolearnError(f"training beyond memory failed: {' | '.join(said.strip().splitlines()[-3:])}")


def main(root: Path, limit: int, batch: int) -> None:
    """Train on `root` for as many seconds as each line of stdin says, and print the rate."""
    if limit:
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        limit = limit if most == resource.RLIM_INFINITY else min(limit, most)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
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
    done = itertools.count()

    def step() -> float:
        trainer.iterate(next(done))
        return batch

    print("{}", flush=True)
    for line in sys.stdin:
        if limit:
            _forget(root)
        print(json.dumps({"windows_per_s": rate(step, float(line))}), flush=True)


def _forget(root: Path) -> None:
    """Let the system forget what it keeps of the frame cache in memory."""
    for path in (root / ".cache/frames").rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
