"""The one loop that imitation and reinforcement learning share: iterate, log, save, export; resume exactly.

Policies are kept on the way: the best one by evaluation, every k-th checkpoint; training may end early.

policy/              the last policy, as without this
best/                the policy of the best evaluation so far
checkpoints/000020/  the policy after iteration 20

A policy is evaluated from its exported folder, on starts of their own: choosing among evaluations flatters the chosen
one, so its success is to be measured once more, elsewhere.
"""

from __future__ import annotations

import logging
import math
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import tyro

from robolearn.core import BadInput
from robolearn.io.atomic import replace_folder
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
    minutes: float = 0.0,
) -> dict[str, Any]:
    """Bring `trainer` to its last iteration, from the latest state of `run` if it has one.

    With `minutes` above 0 no iteration begins once so many have passed, over all resumptions.

    After every `checkpoint_every` iterations and at the end the state is saved and the policy exported. Logged
    rows have ``step`` (the iteration), ``wall_s`` (seconds of work since the run began, over all resumptions) and
    ``iteration_s``. Ctrl-C lets the iteration end and saves it; a second Ctrl-C stops at once.

    Returns ``{"iterations", "wall_s", "resumed_at", "out_of_time"}``; the last is true where iterations are left.

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

    def out_of_time() -> bool:
        return 0 < 60 * minutes <= wall_s()

    with _deferred_interrupt() as interrupted:
        i = start
        ended = i >= trainer.iterations or (i > 0 and out_of_time())  # one at least: a run has a policy
        while not ended:
            iteration_began = time.monotonic()
            metrics = dict(trainer.iterate(i))
            iteration_s = time.monotonic() - iteration_began
            run.log(i, {**metrics, "iteration_s": iteration_s, "wall_s": wall_s()})
            if progress is not None:
                progress(i + 1, metrics)
            i += 1
            ended = i >= trainer.iterations or out_of_time()  # asked once: what ends here is saved
            saved = i % checkpoint_every == 0 or ended or interrupted()
            if saved:
                save(i)
            if saved and interrupted():  # also one that came while it was being saved, but never an unsaved iteration
                raise KeyboardInterrupt
    left = trainer.iterations - i
    if left > 0:
        log.warning("ended by its %g minutes: about %d iterations are left", minutes, left)
    return {"iterations": i, "wall_s": wall_s(), "resumed_at": start, "out_of_time": left > 0}


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


BEST, CHECKPOINTS = "best", "checkpoints"


@dataclass(frozen=True)
class KeepConfig:
    """Evaluations of a training on its way, and the policies kept of it."""

    every: Annotated[int, tyro.conf.arg(name="eval-every")] = 0
    """Iterations between two evaluations on the way, the best of which is kept in best/; 0: none."""
    episodes: Annotated[int, tyro.conf.arg(name="eval-episodes")] = 100
    """Episodes of each of them, and of the evaluation of the exported policy at the end; 0: none."""
    keep_every: int = 0
    """Iterations between two policies that are kept in checkpoints/; 0: none but the last."""
    patience: int = 0
    """End early after so many evaluations without a better one; 0: never."""

    def __post_init__(self) -> None:
        for name, flag in (("every", "eval-every"), ("episodes", "eval-episodes"), ("keep_every", "keep-every"),
                           ("patience", "patience")):  # fmt: skip
            if getattr(self, name) < 0:
                raise BadInput(f"--{flag}", got=getattr(self, name), expected="0 or more")
        if self.every and not self.episodes:
            raise BadInput("--eval-every", got=self.every, expected="an --eval-episodes of at least 1 with it")
        if self.patience and not self.every:
            raise BadInput("--patience", got=self.patience, expected="--eval-every with it: it counts evaluations")


@dataclass(frozen=True)
class PolicyScore:
    """Performance of a policy, with its interval.

    Attributes:
      metric: ``"success"``, or ``"return"`` in worlds that report none.
    """

    metric: str
    value: float
    low: float
    high: float


class Kept:
    """A trainer around another one: it evaluates and keeps, and changes nothing else.

    Args:
      trainer: what learns.
      run: the folder in which policies are kept.
      config: how often.
      judge: how good the policy in a folder is; not called where `config.every` is 0.
    """

    def __init__(self, trainer: Trainer, run: Run, config: KeepConfig, judge: Callable[[Path], PolicyScore]) -> None:
        self.trainer, self.run, self.config, self._judge = trainer, run, config, judge
        self.best, self.best_at, self._since, self._stopped = -math.inf, 0, 0, 0
        for flag, every in (("--eval-every", config.every), ("--keep-every", config.keep_every)):
            if every > trainer.iterations:
                log.warning("%s %d is more than the iterations of this run, %d: nothing comes of it",
                            flag, every, trainer.iterations)  # fmt: skip

    @property
    def iterations(self) -> int:
        """Number of iterations in all; those done, where training has ended early."""
        return self._stopped or self.trainer.iterations

    def iterate(self, i: int) -> dict[str, float]:
        """Iteration `i`, and what is evaluated and kept after it."""
        metrics, done, config = dict(self.trainer.iterate(i)), i + 1, self.config
        if config.keep_every and done % config.keep_every == 0:
            self._keep(self.run.path / CHECKPOINTS / f"{done:06d}")
        if config.every and done % config.every == 0:
            metrics |= self._evaluate(done)
        return metrics

    def _evaluate(self, done: int) -> dict[str, float]:
        beside = self._exported()
        found = self._judge(beside)
        self._since += 1
        if found.value > self.best:
            self.best, self.best_at, self._since = found.value, done, 0
            replace_folder(beside, self.run.path / BEST)
        else:
            shutil.rmtree(beside)
        if self.config.patience and self._since >= self.config.patience:
            self._stopped = done
        name = f"eval_{found.metric}"
        return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}

    def _keep(self, place: Path) -> None:
        place.parent.mkdir(exist_ok=True)
        replace_folder(self._exported(), place)

    def _exported(self) -> Path:
        beside = self.run.path / ".kept.new"
        shutil.rmtree(beside, ignore_errors=True)  # what a kill left
        beside.mkdir()
        self.trainer.export(beside)
        return beside

    def export(self, path: Path) -> None:
        self.trainer.export(path)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """That of the trainer, and which evaluation was the best."""
        tensors, meta = self.trainer.state()
        best = self.best if math.isfinite(self.best) else None
        return tensors, {**meta, "kept": [best, self.best_at, self._since, self._stopped]}

    def load_state(self, tensors: dict[str, Tensor], meta: Mapping[str, Any]) -> None:
        """The inverse of `state`; also of one of a trainer that nothing was kept of."""
        rest = dict(meta)
        best, self.best_at, self._since, self._stopped = rest.pop("kept", (None, 0, 0, 0))
        self.best = -math.inf if best is None else best
        self.trainer.load_state(tensors, rest)
