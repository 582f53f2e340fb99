"""Shared by commands that take data sets: opening them for a policy, lists of episodes, and writing a new set."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from robolearn.core import BadInput
from robolearn.runs import Progress
from robolearn.runs.command import Command

if TYPE_CHECKING:
    from rich.console import Console

    from robolearn.data.convert.source import EpisodeSource
    from robolearn.data.reading.reader import Dataset


def episode_list(text: str, count: int, flag: str = "--episodes") -> list[int]:
    """``"0-9,12"`` → the episodes 0 to 9 and 12, each once, in that order. Raises `BadInput`: something else, or an
    episode beyond the `count` that there are."""
    found: list[int] = []
    for part in text.replace(" ", ",").split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if not part:
            continue
        if match is None:
            raise BadInput(flag, got=part, expected="numbers and ranges, such as 0-9,12")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last >= count:
            raise BadInput(flag, got=part, expected=f"episodes from 0 to {count - 1}")
        found += range(first, last + 1)
    if not found:
        raise BadInput(flag, got=repr(text), expected="numbers and ranges, such as 0-9,12")
    return list(dict.fromkeys(found))


def opened_for(policy: Any, paths: Sequence[Path], flag: str) -> list[Dataset]:
    """The data sets at `paths`, which `flag` gave; raises `BadInput` where one does not fit `policy`."""
    from policies.wrappers.prompted import is_prompted, trained_words
    from robolearn.core import check_compatible
    from robolearn.data import Dataset
    from robolearn.data.mixture import check_actions

    sets = [Dataset.open(path) for path in paths]
    if is_prompted(policy.interface):
        named = zip(paths, sets, strict=True)
        sets = [found.with_words(trained_words(policy.interface, f"{flag} {path}")) for path, found in named]
    for path, found in zip(paths, sets, strict=True):
        check_compatible(policy.interface, found.interface, what=f"{flag} {path}", subject="the policy")
        check_actions(found)
    return sets


def write_set(source: EpisodeSource, out: Path, verb: str, quiet: bool) -> dict[str, Any]:
    """Store `source` in `out`, showing progress; the result of the command."""
    return write_sets([source], [out], verb, quiet)[0]


def write_sets(sources: Sequence[EpisodeSource], outs: Sequence[Path], verb: str, quiet: bool) -> list[dict[str, Any]]:
    """Store each of `sources` in its folder of `outs`, all or none, showing progress; the result for each."""
    from robolearn.data.convert.source import write_datasets

    begun = time.perf_counter()
    with ExitStack() as stack:

        def progress(i: int) -> Progress:
            what = verb if len(outs) == 1 else f"{verb} {outs[i].name}"
            return stack.enter_context(Progress(what, total=sources[i].count, unit="episodes", quiet=quiet))

        written = write_datasets(sources, outs, progress)
    total = time.perf_counter() - begun
    return [
        {
            "dataset": str(out),
            **asdict(stored),
            **asdict(source.account),
            "notes": _left_over(out),
            "wall_s": {"total": total},
        }
        for source, out, stored in zip(sources, outs, written, strict=True)
    ]


def _left_over(out: Path) -> list[str]:
    """Remarks on what killed commands have left beside `out`."""
    from robolearn.data.writing.uncommitted import leftovers

    place = out.absolute().parent
    return [f"{left.path} is {left.what}; `robolearn dataset repair {place} --clear` removes it"
            for left in leftovers(place)]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Edit(Command):
    """An edit of one data set into a new one."""

    data: tyro.conf.Positional[Path]
    """The data set; it stays as it is."""
    out: Path
    """The new data set's folder."""

    def source(self, dataset: Dataset) -> EpisodeSource:
        """The episodes of the new set."""
        raise NotImplementedError

    def opened(self) -> EpisodeSource:
        """`source` of the set that is named."""
        from robolearn.data.convert.source import open_numbers

        return self.source(open_numbers(self.data))

    def run(self) -> dict[str, Any]:
        from robolearn.data.convert.source import check_new

        check_new(self.out)
        return write_set(self.opened(), self.out, "writing", self.json)

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        show_stored(result, console)


SHOWN = 20  # lines of a list


def show_stored(result: Mapping[str, Any], console: Console) -> None:
    """One line on what was written, then what was read, left out and changed, and notes."""
    from rich.text import Text

    successes = f", {result['successes']} successes" if "successes" in result else ""
    console.print(
        f"[bold]{result['dataset']}[/bold]: {result['episodes']} episodes, {result['frames']} frames{successes}"
    )
    for name in ("read", "left_out", "changed"):
        lines = list(result.get(name, ()))
        if len(lines) > SHOWN:
            lines[SHOWN - 1 :] = [f"… and {len(lines) - SHOWN + 1} more, which --json lists"]
        for i, line in enumerate(lines or ["nothing"] * bool(result.get("read"))):
            console.print(f"{'' if i else name.replace('_', ' '):<10}", Text(line))
    for note in result.get("notes", ()):
        console.print(f"[yellow]note:[/yellow] {note}")


def megabytes(size: int) -> str:
    """A size in bytes as text."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} B"


def duration(seconds: float) -> str:
    """A duration as text."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
