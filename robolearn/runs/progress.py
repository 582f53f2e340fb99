"""A progress bar on a terminal, a log line every ten seconds anywhere else. Both go to stderr."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from typing import Any

log = logging.getLogger(__name__)


class Progress:
    """Shows how far a piece of work is; a context manager that is called with what is done.

        with Progress("fine-tuning", total=100, quiet=command.json) as progress:
            progress(done, {"success": 0.93})

    Args:
      description: a word or two.
      total: how much there is to do.
      unit: what is counted, e.g. ``"episodes"``.
      show: the metrics to show, in this order; by default the first three given.
      quiet: no bar, only log lines. None: as the terminal allows.
      every_s: seconds between log lines.
    """

    def __init__(
        self,
        description: str,
        total: int,
        *,
        unit: str = "",
        show: tuple[str, ...] = (),
        quiet: bool | None = None,
        every_s: float = 10.0,
    ) -> None:
        self.description, self.total, self.unit, self.show = description, total, unit, show
        self.every_s = every_s
        self._bar: Any = None
        self._task: Any = None
        self._said = self._began = time.monotonic()
        self._last = 0
        self._first: tuple[int, float] | None = None
        self._want_bar = sys.stderr.isatty() if quiet is None else not quiet and sys.stderr.isatty()

    def __enter__(self) -> Progress:
        self._said = self._began = time.monotonic()
        if self._want_bar:
            self._bar = _rich_bar(self.unit)
            self._task = self._bar.add_task(self.description, total=self.total, metrics="")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __call__(self, done: int, metrics: Mapping[str, Any] | None = None) -> None:
        """Show that `done` of `total` is done; a log line estimates the rest by the pace since the first call."""
        text = self._text(metrics or {})
        if self._bar is not None:
            self._bar.update(self._task, completed=done, metrics=text)
            return
        now = time.monotonic()
        if self._first is None:  # of resumed work: where it goes on
            self._first = (done, now)
        # The end is logged once; of what is over before it was heard of, not at all.
        open_until_now = self._last < self.total
        ends = done >= self.total and self._said > self._began
        if open_until_now and (ends or now - self._said >= self.every_s):
            self._said = now
            unit = f" {self.unit}" if self.unit else ""
            tail = f", {text}" if text else ""
            if self._first[0] < done < self.total:
                begin, at = self._first
                tail = f", {(now - at) / (done - begin) * (self.total - done):.0f} s left{tail}"
            spent = now - self._began
            log.info("%s: %d of %d%s, %.0f s%s", self.description, done, self.total, unit, spent, tail)
        self._last = done

    def _text(self, metrics: Mapping[str, Any]) -> str:
        keys = [key for key in self.show if key in metrics] if self.show else list(metrics)[:3]
        return "  ".join(f"{key} {_number(metrics[key])}" for key in keys)


def _number(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _rich_bar(unit: str) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    amount = TextColumn("[bold]{task.description}"), BarColumn(bar_width=28), MofNCompleteColumn(), TextColumn(unit)
    metrics = TextColumn("{task.fields[metrics]}", style="cyan")
    times = TimeElapsedColumn(), TextColumn("<"), TimeRemainingColumn()
    return RichProgress(*amount, *times, metrics, console=Console(stderr=True))
