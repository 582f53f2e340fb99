"""What a user may add about files that do not contain it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from robolearn.core import Interface
from robolearn.data.video.placement import TOLERANCE_S


def outcome_note(outcomes: bool) -> tuple[str, ...]:
    """What becomes of episodes whose success is not recorded."""
    note = "nothing says which episodes succeeded: none is marked as a success, nor as a failure; --outcome says it"
    return () if outcomes else (note,)


@dataclass(frozen=True)
class ReadOptions:
    """Each is None or empty where the file is to be believed.

    Attributes:
      task: the task in words.
      hz: frames per second.
      embodiment: name of the arm.
      action_kind: what an action means, e.g. ``"tcp_delta"``.
      proprio: the features that make up ``proprio``, in order.
      cameras: the cameras to take; None takes all, an empty tuple none.
      success: whether episodes succeeded whose success is not recorded.
      tolerance_s: how far from its frame a picture of a video may be shown [s].
    """

    task: str = ""
    hz: float | None = None
    embodiment: str = ""
    action_kind: str = ""
    proprio: tuple[str, ...] = ()
    cameras: tuple[str, ...] | None = None
    success: bool | None = None
    tolerance_s: float = TOLERANCE_S

    def takes(self, camera: str) -> bool:
        """Whether the images of `camera` are wanted."""
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
