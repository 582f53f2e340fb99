"""The one loop that imitation and reinforcement learning share: iterate, log, save, export; resume exactly."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from robolearn.core import BadInput
from robolearn.runs.run import Run

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)


class Trainer(Protocol):
    """The work of the loop."""

    @property
    def iterations(self) -> int:
        """Number of iterations in all; an estimate where a budget decides."""
        ...

    def iterate(self, i: int) -> Mapping[str, float]:
        """Do iteration `i` (0-based) and return its metrics."""
        ...

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next iterations depend on: weights, optimiser, random numbers, counters."""
        ...

    def load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """Go on as if what `state` returned had just been reached."""
        ...

    def export(self, path: Path) -> None:
        """Write the policy folder into the new folder `path`. Must not change the state."""
        ...


def run_loop(
    run: Run,
    trainer: Trainer,
    *,
    checkpoint_every: int,
    progress: Callable[[int, Mapping[str, float]], None] | None = None,
) -> dict[str, Any]:
    """Bring `trainer` to its last iteration, from the latest state of `run` if it has one.

    After every `checkpoint_every` iterations and at the end the state is saved and the policy exported. Logged
    rows have ``step`` (the iteration), ``wall_s`` (seconds of work since the run began, over all resumptions) and
    ``iteration_s``. Ctrl-C lets the iteration end and saves it; a second Ctrl-C stops at once.

    Returns ``{"iterations", "wall_s", "resumed_at"}``.

    Raises:
      BadInput: the state is damaged, or of a run that has gone further than its settings say.
      KeyboardInterrupt: after the state was saved.
    """
    from robolearn.runs.checkpoint import load_latest_state, save_state

    if checkpoint_every < 1:
        raise BadInput("checkpoint_every", got=checkpoint_every, expected="at least 1")
    start, before_s = 0, 0.0
    found = load_latest_state(run.state_dir)
    if found is not None:
        tensors, meta = found
        start, before_s = _resume(run, trainer, tensors, meta)
    run.rewind(start)
    began = time.monotonic()

    def wall_s() -> float:
        return before_s + time.monotonic() - began

    def save(done: int) -> None:
        tensors, meta = trainer.state()
        save_state(run.state_dir, tensors, {"iteration": done, "wall_s": wall_s(), "trainer": meta})
        run.export(trainer.export)

    with _deferred_interrupt() as interrupted:
        i = start
        while i < trainer.iterations:
            iteration_began = time.monotonic()
            metrics = dict(trainer.iterate(i))
            iteration_s = time.monotonic() - iteration_began
            run.log(i, {**metrics, "iteration_s": iteration_s, "wall_s": wall_s()})
            if progress is not None:
                progress(i + 1, metrics)
            i += 1
            saved = i % checkpoint_every == 0 or i >= trainer.iterations or interrupted()
            if saved:
                save(i)
            if saved and interrupted():  # also one that came while it was being saved, but never an unsaved iteration
                raise KeyboardInterrupt
    return {"iterations": i, "wall_s": wall_s(), "resumed_at": start}


def _resume(run: Run, trainer: Trainer, tensors: dict[str, Tensor], meta: dict[str, Any]) -> tuple[int, float]:
    from robolearn.runs.checkpoint import restoring

    with restoring(run.state_dir):
        start, before_s = int(meta["iteration"]), float(meta["wall_s"])
        trainer.load_state(tensors, meta["trainer"])
    total = trainer.iterations
    if start > total:
        raise BadInput(f"run {run.path}: total iterations", got=total, expected=f"at least {start}, already done")
    # A kill between the saving and the exporting leaves a policy that is older than the state, or none.
    run.export(trainer.export)
    log.info("resumed %s at iteration %d of %d", run.path, start, total)
    return start, before_s


@contextmanager
def _deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Within, the first Ctrl-C only turns the yielded function true; the second one raises as usual."""
    seen = False

    def note(signum: int, frame: Any) -> None:
        nonlocal seen
        if seen:
            raise KeyboardInterrupt
        seen = True
        log.warning("stopping after this iteration; Ctrl-C again stops at once")

    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or previous is not signal.default_int_handler:
        yield lambda: seen  # only the main thread may handle signals, and another handler stays
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: seen
    finally:
        signal.signal(signal.SIGINT, previous)
