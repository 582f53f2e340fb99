"""A format of demonstrations as one config, and the user's facts about files that lack them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from robolearn.core import Interface
from robolearn.data.convert.source import EpisodeSource, Progress
from robolearn.data.reading.reader import Dataset
from robolearn.data.video.container import TOLERANCE_S


def outcome_note(outcomes: bool) -> tuple[str, ...]:
    """A remark where the success of episodes is not recorded."""
    note = "nothing says which episodes succeeded: none is marked as a success, nor as a failure; --outcome says it"
    return () if outcomes else (note,)


@dataclass(frozen=True)
class ReadOptions:
    """Facts that the user gives; each is None or empty where the file is to be believed.

    Attributes:
      task: the task in words.
      hz: frames per second.
      embodiment: name of the arm.
      action_kind: what an action means, e.g. ``"tcp_delta"``.
      proprio: the features that make up ``proprio``, in order.
      cameras: the cameras to take; None takes all, an empty tuple none.
      success: whether episodes succeeded whose success is not recorded.
      tolerance_s: how far from its frame a picture of a video may be shown [s].
      robot: the robot contract that says what the topics of a bag mean, by name or as a file.
    """

    task: str = ""
    hz: float | None = None
    embodiment: str = ""
    action_kind: str = ""
    proprio: tuple[str, ...] = ()
    cameras: tuple[str, ...] | None = None
    success: bool | None = None
    tolerance_s: float = TOLERANCE_S
    robot: str = ""

    def takes(self, camera: str) -> bool:
        """True where the images of `camera` are wanted."""
        return self.cameras is None or camera in self.cameras

    def applied(self, interface: Interface) -> Interface:
        """`interface`, which files brought along, with what the user gives in place of what it has."""
        wanted = {
            key: spec
            for key, spec in interface.observation.items()
            if not key.startswith("images.") or self.takes(key.removeprefix("images."))
        }
        return replace(
            interface,
            observation=wanted,
            control_hz=self.hz or interface.control_hz,
            embodiment=self.embodiment or interface.embodiment,
            action_kind=self.action_kind or interface.action_kind,
        )


FormatReader = Callable[[Path, ReadOptions], EpisodeSource]
"""A path → its episodes."""


class FormatWriter(Protocol):
    """Writes a data set as a new file or folder, whole or not at all; `robot` as in `ReadOptions`."""

    def __call__(self, dataset: Dataset, out: Path, progress: Progress | None = None, *, robot: str = "") -> None: ...


@dataclass(frozen=True)
class FormatConfig:
    """One format.

    Attributes:
      name: the word for ``--format``.
      summary: half a line of description.
      here: true where a path looks like it.
      read, write: None where the format is not read or not written.
      needs_extra: the extra of this distribution that brings its library, or nothing.
    """

    name: str
    summary: str
    here: Callable[[Path], bool]
    read: FormatReader | None = None
    write: FormatWriter | None = None
    needs_extra: str = ""

    @property
    def reads(self) -> bool:
        """True where data sets are made from it."""
        return self.read is not None

    @property
    def writes(self) -> bool:
        """True where data sets are written as it."""
        return self.write is not None

    @property
    def title(self) -> str:
        """For help: the name, and the extra to be installed."""
        return f"{self.name} [{self.needs_extra}]" if self.needs_extra else self.name
