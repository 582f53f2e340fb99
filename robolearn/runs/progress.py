"""A progress bar on a terminal, a log line every ten seconds anywhere else. Both go to stderr."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from robolearn.io.log_lines import DRAWN

if TYPE_CHECKING:
    from rich.progress import ProgressColumn, Task
    from rich.table import Table

log = logging.getLogger(__name__)

BAR, SHORTEST_BAR = 28, 8  # columns of the terminal


class Progress:
    """Shows how far a piece of work is; a context manager that is called with what is done.

        with Progress("fine-tuning", total=100, quiet=command.json) as progress:
            progress(done, {"success": 0.93})

    A metric that has no value for once, NaN or None, keeps its last one. On a narrow terminal amount and times stay
    whole; metrics, unit and bar take, in this order, what room is left.

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
        self._known: dict[str, Any] = {}
        self._want_bar = sys.stderr.isatty() if quiet is None else not quiet and sys.stderr.isatty()

    def __enter__(self) -> Progress:
        self._said = self._began = time.monotonic()
        if self._want_bar:
            self._bar = _rich_bar(self.unit)
            self._task = self._bar.add_task(self.description, total=self.total, words=[])
            self._bar.start()
            DRAWN.append(self._above)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            DRAWN.remove(self._above)
            self._bar.stop()
            self._bar = None

    def _above(self, line: str) -> None:
        self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def __call__(self, done: int, metrics: Mapping[str, Any] | None = None) -> None:
        """Show that `done` of `total` is done; a log line estimates the rest by the pace since the first call."""
        words = self._words(metrics or {})
        if self._bar is not None:
            self._bar.update(self._task, completed=done, words=words)
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
            tail = f", {'  '.join(words)}" if words else ""
            if self._first[0] < done < self.total:
                begin, at = self._first
                tail = f", {(now - at) / (done - begin) * (self.total - done):.0f} s left{tail}"
            spent = now - self._began
            log.info("%s: %d of %d%s, %.0f s%s", self.description, done, self.total, unit, spent, tail)
        self._last = done

    def _words(self, metrics: Mapping[str, Any]) -> list[str]:
        keys = [key for key in self.show if key in metrics] if self.show else list(metrics)[:3]
        self._known |= {key: metrics[key] for key in keys if metrics[key] is not None and not _is_nan(metrics[key])}
        return [f"{key} {_number(self._known[key])}" for key in keys if key in self._known]


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _number(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _rich_bar(unit: str) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress
    from rich.table import Column

    amount, times = MofNCompleteColumn(), (TimeElapsedColumn(), TextColumn("<"), TimeRemainingColumn())

    class Fitted(RichProgress):
        """Columns that there is room for."""

        longest = 0  # of the metrics until now: a bar that grew and shrank with them would be restless

        def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
            for task in tasks:  # none before the first is added, one after
                self.columns = self._fitted(task)
            return super().make_tasks_table(tasks)

        def _fitted(self, task: Task) -> tuple[ProgressColumn, ...]:
            def width(column: ProgressColumn) -> int:
                return self.console.measure(column(task)).maximum + 1  # and what parts it from the next one

            room = self.console.width + 1 - sum(map(width, (amount, *times)))
            name = TextColumn("[bold]{task.description}", table_column=Column(no_wrap=True, max_width=max(room - 1, 1)))
            room -= min(width(name), room)
            shown = _beginning(task.fields["words"], room - 1)
            self.longest = min(max(self.longest, len(shown) + bool(shown)), room)
            room -= self.longest
            counted = [TextColumn(unit)] if 0 < len(unit) < room else []
            room -= (len(unit) + 1) * len(counted)
            bar = [BarColumn(min(BAR, room - 1))] if room > SHORTEST_BAR else []
            metrics = [TextColumn(shown, style="cyan", markup=False)] if shown else []
            return name, *bar, amount, *counted, *times, *metrics

    return Fitted(console=Console(stderr=True))


def _beginning(words: list[str], room: int) -> str:
    """As many of the first `words` as fit."""
    shown = ""
    for word in words:
        longer = f"{shown}  {word}" if shown else word
        if len(longer) > room:
            break
        shown = longer
    return shown
