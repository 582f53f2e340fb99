"""What a user may say about files that do not say it themselves."""

from __future__ import annotations

from dataclasses import dataclass


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
    """

    task: str = ""
    hz: float | None = None
    embodiment: str = ""
    action_kind: str = ""
    proprio: tuple[str, ...] = ()
    cameras: tuple[str, ...] | None = None

    def takes(self, camera: str) -> bool:
        """Whether the images of `camera` are wanted."""
        return self.cameras is None or camera in self.cameras
