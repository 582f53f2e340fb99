"""Where the episodes of a bag begin and end, by what was said on the topic of episode events."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from robolearn.core import BadInput

ENDS = {"success": True, "failure": False}
DROPS = ("discard", "redo")
KNOWN = ("start", *ENDS, *DROPS, "quit")


@dataclass(frozen=True)
class Event:
    """Something that was said about episodes.

    Attributes:
      at_ns: when it was recorded [ns].
      kind: one of `KNOWN`.
      task: the task in words, or nothing.
      frames_ns: at an end, when its frames were [ns since the start]; empty where they are on the regular grid.
    """

    at_ns: int
    kind: str
    task: str = ""
    frames_ns: tuple[int, ...] = ()


@dataclass(frozen=True)
class Span:
    """An episode's time in a bag [ns], and how it ended; `success` is None where nobody said.

    `frames_ns` are the times of its frames [ns since `begin_ns`] where they are not those of the regular grid.
    """

    begin_ns: int
    end_ns: int
    success: bool | None
    task: str = ""
    frames_ns: tuple[int, ...] = ()


def read_event(text: str, at_ns: int, where: str) -> Event:
    """The event in the JSON `text`; `where` names it in messages."""
    try:
        said = json.loads(text)
        kind, task = said["event"], said.get("task", "")
    except (ValueError, TypeError, KeyError, AttributeError):
        raise BadInput(where, got=repr(text[:60]), expected='JSON such as {"event": "start"}') from None
    if kind not in KNOWN:
        raise BadInput(where, got=f"event {kind!r}", available=KNOWN)
    return Event(at_ns, kind, task if isinstance(task, str) else "", _frames(said.get("frames_ns", ()), where))


def _frames(said: Any, where: str) -> tuple[int, ...]:
    if not isinstance(said, list | tuple) or not all(isinstance(t, int) and t >= 0 for t in said):
        raise BadInput(f"{where}: frames_ns", got=repr(said)[:60], expected="nanoseconds since the start")
    if any(later <= sooner for sooner, later in itertools.pairwise(said)):
        raise BadInput(f"{where}: frames_ns", got="times that do not rise", expected="nanoseconds since the start")
    return tuple(said)


def spans_of(events: Sequence[Event], where: str, begin_ns: int) -> tuple[list[Span], int]:
    """The episodes that were ended by success or failure, and how many were begun and never ended.

    A discarded episode is neither. A start within an episode leaves that one unfinished.

    Args:
      events: in the order of their times.
      where: names the topic in messages.
      begin_ns: of the bag, from which messages count [ns].

    Raises:
      BadInput: an end without a start.
    """
    spans: list[Span] = []
    running: Event | None = None
    unfinished = 0
    for event in events:
        if event.kind == "start":
            unfinished += running is not None
            running = event
        elif event.kind in ENDS:
            if running is None:
                at = f"{where}: {1e-9 * (event.at_ns - begin_ns):.3f} s into the bag"
                raise BadInput(at, got=f"{event.kind!r} of an episode that never began", expected="'start' before it")
            task = event.task or running.task
            spans.append(Span(running.at_ns, event.at_ns, ENDS[event.kind], task, event.frames_ns))
            running = None
        elif event.kind in DROPS:
            # `redo` begins the next one at the arm's own time, with a start of its own.
            running = None
    return spans, unfinished + (running is not None)
