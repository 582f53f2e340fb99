"""A bag on disk, read through `rosbags`: its topics, their messages in the order of arrival, and its episodes.

Begin and end of the episodes are the messages on the topic of episode events.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robolearn.core import BadInput, RobolearnError
from robolearn.core.errors import first_line
from robolearn.core.installation import install_command
from robolearn.data.convert.bags.arrival import recorded_twice

SUFFIXES = (".mcap", ".db3")


@dataclass(frozen=True)
class Message:
    """One message.

    Attributes:
      topic: where it was sent.
      logged_ns: when it was recorded [ns].
      content: its fields, as `rosbags` gives them.
    """

    topic: str
    logged_ns: int
    content: Any

    @property
    def stamp_ns(self) -> int:
        """Its header's stamp [ns]; 0 where it has none."""
        header = getattr(self.content, "header", None)
        return 0 if header is None else header.stamp.sec * 1_000_000_000 + header.stamp.nanosec


class Bag:
    """The bag at `path`: a rosbag2 folder, or a single .mcap or .db3 file.

    Attributes:
      topics: topic → message type, of those whose messages can be read.
      unreadable: topic → why its messages cannot be.
      begin_ns, end_ns: when the first and the last message were recorded [ns].

    Raises:
      BadInput: there is none, or it is damaged.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not is_bag(self.path):
            raise BadInput(f"bag {path}", got=_found(self.path), expected="a rosbag2 folder, or an .mcap or .db3 file")
        with self._open() as reader:
            self._store, reasons = _types(reader.connections)
            self.topics: dict[str, str] = {}
            self.unreadable: dict[str, str] = {}
            for one in reader.connections:
                encoding = one.ext.serialization_format
                why = f"its messages are {encoding}" if encoding != "cdr" else reasons.get(one.msgtype)
                if why is None:
                    self.topics[one.topic] = one.msgtype
                else:
                    self.unreadable[one.topic] = why
            self.unreadable = {topic: why for topic, why in self.unreadable.items() if topic not in self.topics}
            counts = sum(connection.msgcount for connection in reader.connections)
            self.begin_ns, self.end_ns = (int(reader.start_time), int(reader.end_time)) if counts else (0, 0)
        if not counts:
            raise BadInput(f"bag {path}", got="no messages", expected="some")

    def twice(self) -> tuple[tuple[int, int], ...]:
        """(earliest, latest) [ns] of times that the recorder's clock went through twice. All of the index is read for
        it. Raises `BadInput`: the bag is damaged."""
        with self._open() as reader:
            return recorded_twice(reader)

    def messages(self, topics: Collection[str], begin_ns: int = 0, end_ns: int | None = None) -> Iterator[Message]:
        """The messages of `topics` recorded in [begin_ns, end_ns), in the order of their arrival. Raises `BadInput`:
        the bag is damaged."""
        with self._open() as reader:
            wanted = [one for one in reader.connections if one.topic in topics and one.topic in self.topics]
            if not wanted:
                return
            for connection, logged, raw in reader.messages(wanted, start=begin_ns or None, stop=end_ns):
                yield Message(connection.topic, logged, self._store.deserialize_cdr(raw, connection.msgtype))

    @contextmanager
    def _open(self) -> Iterator[Any]:
        rosbags()
        from rosbags.rosbag2 import Reader

        try:
            with ExitStack() as opened:
                with _any_schema():
                    reader = opened.enter_context(Reader(self.path))
                yield reader
        except (RobolearnError, GeneratorExit):
            raise
        except Exception as error:  # a damaged file fails anywhere in the library, in its own words or in Python's
            got = f"one that cannot be read ({first_line(error)})"
            hint = "A recording that was cut off can be repaired by `ros2 bag reindex` or `mcap recover`"
            raise BadInput(f"bag {self.path}", got=got, expected="a whole one", hint=hint) from error


@contextmanager
def _any_schema() -> Iterator[None]:
    """Let `rosbags` open a file that has schemas of other languages, or no text, for which it refuses all of it."""
    from rosbags.rosbag2 import storage_mcap

    usual = storage_mcap.get_msgdef, storage_mcap.read_string

    def definition(schema: Any) -> Any:
        try:
            return usual[0](schema)
        except KeyError:
            return usual[0](None)

    try:
        storage_mcap.get_msgdef = definition
        storage_mcap.read_string = lambda bio: storage_mcap.read_bytes(bio).decode(errors="replace")
        yield
    finally:
        storage_mcap.get_msgdef, storage_mcap.read_string = usual


def _types(connections: Collection[Any]) -> tuple[Any, dict[str, str]]:
    """The types of the messages, and type → why it is not among them.

    Bags in sqlite3 from before Iron do not contain the definitions of their messages: those of today's ROS stand in.
    """
    _, typesys = rosbags()
    usual, store = typesys.get_typestore(typesys.Stores.LATEST), typesys.get_typestore(typesys.Stores.EMPTY)
    reasons: dict[str, str] = {}
    for one in connections:
        kind, text = one.msgdef.format.name, one.msgdef.data
        try:
            if kind == "MSG":
                found = typesys.get_types_from_msg(text, one.msgtype)
            elif kind == "IDL":
                parts = text.split("=" * 80 + "\n")
                texts = [part.partition("\n")[2] for part in parts[1:]] if len(parts) > 1 else [text]
                found = dict(item for part in texts for item in typesys.get_types_from_idl(part).items())
            elif one.msgtype in usual.fielddefs:
                found = usual.fielddefs
            else:
                reasons[one.msgtype] = f"no definition of {one.msgtype}"
                continue
            store.register({name: fields for name, fields in found.items() if name not in store.fielddefs})
            if one.digest and (own := store.hash_rihs01(one.msgtype)) != one.digest:
                reasons[one.msgtype] = f"its definition is another one: {own[:16]}…, expected {one.digest[:16]}…"
        except Exception as error:  # in the library's own words or in Python's
            reasons[one.msgtype] = f"the definition of {one.msgtype} cannot be read ({first_line(error)})"
    return store, reasons


def is_bag(path: Path) -> bool:
    """True where `path` looks like a bag."""
    return (path / "metadata.yaml").is_file() or (path.is_file() and path.suffix in SUFFIXES)


def rosbags() -> tuple[Any, Any]:
    """The modules `rosbags.highlevel` and `rosbags.typesys`. Raises `BadInput`: the library is not installed."""
    try:
        import rosbags.highlevel
        import rosbags.typesys
    except ImportError as error:
        hint = install_command("formats")
        raise BadInput("bags", got=f"no library to read them ({error})", expected="rosbags", hint=hint) from None
    return rosbags.highlevel, rosbags.typesys


def _found(path: Path) -> str:
    if not path.exists():
        return "nothing there"
    return "a folder without metadata.yaml" if path.is_dir() else "another file"


EPISODE_EVENTS = "/robolearn/episode_event"
"""std_msgs/String of JSON: {"event": "start" | "success" | "failure" | "discard" | "redo", "task": words, optional}.

An exported end holds the rest of what a data set stores, see `Ending`: {"terminated": …, "truncated": …,
"frames_ns": […], "interventions": [frame, …], "rewards": [[frame, reward], …], "known": false}.
"""

ENDS = {"success": True, "failure": False}
DROPS = ("discard", "redo")
KNOWN = ("start", *ENDS, *DROPS, "quit")


@dataclass(frozen=True)
class Ending:
    """Fields of an exported end of an episode besides success or failure.

    Attributes:
      frames_ns: when its frames were [ns since the start], rising; empty where they are on the regular grid.
      terminated, truncated: as of `Episode`.
      interventions: the frames in which a teleoperator overrode the policy.
      rewards: (frame, reward) wherever there was one; None for 1 at the end of a success.
      known: whether it is known how the episode ended; otherwise it is called a failure.
    """

    frames_ns: tuple[int, ...] = ()
    terminated: bool = True
    truncated: bool = False
    interventions: tuple[int, ...] = ()
    rewards: tuple[tuple[int, float], ...] | None = None
    known: bool = True

    def to_json(self) -> dict[str, Any]:
        """Fields of the event; `ending_of` reads them."""
        fields: dict[str, Any] = {"terminated": self.terminated, "truncated": self.truncated}
        if self.frames_ns:
            fields["frames_ns"] = self.frames_ns
        if self.interventions:
            fields["interventions"] = self.interventions
        if self.rewards is not None:
            fields["rewards"] = self.rewards
        return fields if self.known else fields | {"known": False}


@dataclass(frozen=True)
class Event:
    """A message on the topic of episode events.

    Attributes:
      at_ns: when it was recorded [ns].
      kind: one of `KNOWN`.
      task: the task in words, or nothing.
      ending: at an end, what else is given of the episode.
    """

    at_ns: int
    kind: str
    task: str = ""
    ending: Ending = field(default_factory=Ending)


@dataclass(frozen=True)
class Span:
    """An episode's time in a bag [ns], and how it ended; `success` is None where the bag has no events."""

    begin_ns: int
    end_ns: int
    success: bool | None
    task: str = ""
    ending: Ending = field(default_factory=Ending)


def read_event(text: str, at_ns: int, where: str) -> Event:
    """The event in the JSON `text`; `where` names it in messages."""
    try:
        fields = json.loads(text)
        kind, task = fields["event"], fields.get("task", "")
    except (ValueError, TypeError, KeyError, AttributeError):
        raise BadInput(where, got=repr(text[:60]), expected='JSON such as {"event": "start"}') from None
    if kind not in KNOWN:
        raise BadInput(where, got=f"event {kind!r}", available=KNOWN)
    return Event(at_ns, kind, task if isinstance(task, str) else "", ending_of(fields, where))


def ending_of(fields: Mapping[str, Any], where: str) -> Ending:
    """The `Ending` in the fields of an event; what is not there has its default. `where` names it in messages."""
    facts = {}
    for key in ("terminated", "truncated", "known"):
        facts[key] = fields.get(key, getattr(Ending, key))
        if not isinstance(facts[key], bool):
            raise BadInput(f"{where}: {key}", got=repr(facts[key])[:60], expected="true or false")
    frames_ns = _rising(fields.get("frames_ns", ()), f"{where}: frames_ns", "nanoseconds since the start")
    interventions = _rising(fields.get("interventions", ()), f"{where}: interventions", "numbers of frames")
    rewards = fields.get("rewards")
    if rewards is not None:
        try:
            at = _rising([frame for frame, _ in rewards], f"{where}: rewards", "numbers of frames")
            rewards = tuple(zip(at, (float(reward) for _, reward in rewards), strict=True))
        except (TypeError, ValueError):
            raise BadInput(f"{where}: rewards", got=repr(rewards)[:60], expected="[frame, reward] each") from None
    return Ending(frames_ns, interventions=interventions, rewards=rewards, **facts)


def _rising(values: Any, where: str, expected: str) -> tuple[int, ...]:
    if not isinstance(values, list | tuple) or not all(type(n) is int and n >= 0 for n in values):
        raise BadInput(where, got=repr(values)[:60], expected=expected)
    if any(later <= sooner for sooner, later in itertools.pairwise(values)):
        raise BadInput(where, got="numbers that do not rise", expected=expected)
    return tuple(values)


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
            spans.append(Span(running.at_ns, event.at_ns, ENDS[event.kind], task, event.ending))
            running = None
        elif event.kind in DROPS:
            # `redo` begins the next one at the arm's own time, with a start of its own.
            running = None
    return spans, unfinished + (running is not None)
