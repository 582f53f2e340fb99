"""A bag on disk, read through `rosbags`: which topics it has, and their messages in the order of their arrival."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robolearn.core import BadInput, RobolearnError

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
      topics: topic → message type.
      begin_ns: when the first message was recorded [ns].

    Raises:
      BadInput: there is none, or it is damaged.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not is_bag(self.path):
            raise BadInput(f"bag {path}", got=_found(self.path), expected="a rosbag2 folder, or an .mcap or .db3 file")
        with self._open() as reader:
            self.topics = {connection.topic: connection.msgtype for connection in reader.connections}
            counts = sum(connection.msgcount for connection in reader.connections)
            self.begin_ns = int(reader.start_time) if counts else 0
        if not counts:
            raise BadInput(f"bag {path}", got="no messages", expected="some")

    def messages(self, topics: Collection[str], begin_ns: int = 0, end_ns: int | None = None) -> Iterator[Message]:
        """The messages of `topics` recorded in [begin_ns, end_ns), in the order of their arrival.

        Raises:
          BadInput: the bag is damaged.
        """
        with self._open() as reader:
            wanted = [connection for connection in reader.connections if connection.topic in topics]
            if not wanted:
                return
            for connection, logged, raw in reader.messages(wanted, start=begin_ns or None, stop=end_ns):
                yield Message(connection.topic, logged, reader.deserialize(raw, connection.msgtype))

    @contextmanager
    def _open(self) -> Iterator[Any]:
        highlevel, typesys = rosbags()
        try:
            # Bags in sqlite3 from before Iron do not contain the definitions of their messages.
            store = typesys.get_typestore(typesys.Stores.LATEST)
            with highlevel.AnyReader([self.path], default_typestore=store) as reader:
                yield reader
        except (RobolearnError, GeneratorExit):
            raise
        except Exception as error:  # a damaged file fails anywhere in the library, in its own words or in Python's
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            hint = "A recording that was cut off can be mended by `ros2 bag reindex` or `mcap recover`"
            what = f"bag {self.path}"
            raise BadInput(
                what, got=f"one that cannot be read ({reason})", expected="a whole one", hint=hint
            ) from error


def is_bag(path: Path) -> bool:
    """True where `path` looks like a bag."""
    return (path / "metadata.yaml").is_file() or (path.is_file() and path.suffix in SUFFIXES)


def rosbags() -> tuple[Any, Any]:
    """The modules `rosbags.highlevel` and `rosbags.typesys`.

    Raises:
      BadInput: the library is not installed.
    """
    try:
        import rosbags.highlevel
        import rosbags.typesys
    except ImportError as error:
        hint = "pip install 'robolearn[formats]'"
        raise BadInput("bags", got=f"no library to read them ({error})", expected="rosbags", hint=hint) from None
    return rosbags.highlevel, rosbags.typesys


def _found(path: Path) -> str:
    if not path.exists():
        return "nothing there"
    return "a folder without metadata.yaml" if path.is_dir() else "another file"
