"""A node that films: it notes the scene at the control rate, and a thread of its own draws and writes it.

It only listens, as a process of its own that yields to all others: what drives an arm does not wait for a picture. What
is to be seen is the arm and the scene of a simulation, or the cameras of a real station. A machine that draws more
slowly than the arm moves finishes the film after the run.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hardware.observing.joints import StationJoints
from hardware.recording.rollouts import FAILURE, STOPPED, SUCCESS, TIMEOUT
from hardware.ros2 import messages, qos, topics
from hardware.ros2.observation_inputs import hear_all_joints
from hardware.ros2.runtime import Node
from hardware.ros2.scene import MarkerArray, read_scene
from robolearn.core import BadInput, RobolearnError
from robolearn.core.scene import Scene
from robots.stations import AnyContract

log = logging.getLogger(__name__)

READY = "ready to film"  # logged once everything that can fail was tried
SEES = "sees the arm"  # logged with the first picture
BEHIND = {True: 20_000, False: 200}  # frames that wait to be drawn: a scene is small, pictures of cameras are not
OUTCOME_S = 1.0  # for which the film shows how the last episode ended

Picture = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Seen:
    """The view at one moment.

    Attributes:
      q: (n,) joint positions [rad].
      openings: (1,) of the gripper, of two (1, 2) [m]; NaN: not known.
      scene: around the arm, of a simulation.
      images: camera → picture; of a real station.
      caption: the episode, its time or its outcome; empty before the first.
    """

    q: NDArray[np.float64] | None
    openings: NDArray[np.float64] = field(default_factory=lambda: np.full(1, np.nan))
    scene: Scene | None = None
    images: dict[str, Picture] = field(default_factory=dict)
    caption: str = ""


ENDS = {
    SUCCESS: "solved in {:.1f} s",
    FAILURE: "not solved in {:.1f} s",
    TIMEOUT: "not solved: out of time after {:.1f} s",
    STOPPED: "stopped by the safety filter after {:.1f} s",
}  # fmt: skip


class EpisodeClock:
    """The episode and its time [s] as a caption, then its outcome, until the next one begins. Args: steady time [s]."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._begun, self._ended = clock, 0.0, ""
        self.episode = 0

    @property
    def outcome_shown(self) -> bool:
        """True from an episode's end to the next one's begin."""
        return bool(self._ended)

    def begin(self) -> None:
        """An episode begins."""
        self.episode, self._begun, self._ended = self.episode + 1, self._clock(), ""

    def end(self, outcome: str, seconds: float) -> None:
        """It ended with one of `hardware.recording.rollouts.OUTCOMES` after `seconds`."""
        self._ended = ENDS[outcome].format(seconds)

    def caption(self) -> str:
        """The text now."""
        if not self.episode:
            return ""
        return f"episode {self.episode}: {self._ended or f'{self._clock() - self._begun:.1f} s'}"


class Drawer(Protocol):
    """Draws one view; made, used and closed in one thread."""

    def draw(self, seen: Seen) -> Picture: ...

    def close(self) -> None: ...


Write = Callable[[Path, Iterable[Picture], float], object]
"""write(path, pictures, pictures per second) until there are no more."""


class FilmNode(Node):
    """The node `film`. `make_drawer` makes the drawer of a contract and a task, `write` writes the film. Args: see
    `Node`."""

    stop_limit_s = 170.0

    def __init__(self, make_drawer: Callable[[AnyContract, str], Drawer], write: Write, **station: Any) -> None:
        super().__init__("film", **station)
        self._make_drawer, self._write = make_drawer, write
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def configure(self) -> None:
        if not self.value("out"):
            raise BadInput("parameter out", got="nothing", expected="a file")
        self.contract = c = self.any_station()
        self._joints, self._scene = StationJoints(c), None
        self._frames: queue.SimpleQueue[Callable[[], Seen] | None] = queue.SimpleQueue()
        self._newest: dict[str, Any] = {}
        self._most, self._lost, self._sees = BEHIND[c.simulated], 0, False
        self._episodes = EpisodeClock()
        self.hear(messages.String, topics.ROLLOUT, self._on_rollout, qos.latched(10))
        if c.simulated:
            hear_all_joints(self, c, self._joints, self._on_joints)
            self.hear(MarkerArray, topics.SIM_SCENE, self._on_scene, qos.latched())
        else:
            for name, camera in c.cameras.items():
                kind = messages.message_type(camera.type)
                self.hear(kind, camera.topic, self._on_image(name), qos.sensor(2))
        self._thread = threading.Thread(target=self._film, name="film", daemon=True)
        self._thread.start()
        self.beat(1.0 / c.control_hz, self._tick)

    def begin_stop(self, reason: str) -> None:
        if self._thread is None:
            return
        self.take_all()
        if self._episodes.outcome_shown and (seen := self._look()) is not None:
            for _ in range(round(OUTCOME_S * self.contract.control_hz)):
                self._frames.put(seen)
        self._frames.put(None)

    def stopped(self) -> bool:
        done = self._thread is None or not self._thread.is_alive()
        if done and self._failure is not None and self.error is None:
            error = self._failure
            self.error = error if isinstance(error, RobolearnError) else RobolearnError(f"no film: {error!r}")
        return done

    def _on_rollout(self, message: Any, info: Any) -> None:
        said = json.loads(message.data)
        if said["outcome"]:
            self._episodes.end(said["outcome"], said["seconds"])
        else:
            self._episodes.begin()

    def _on_joints(self, arm: str, message: Any, info: Any) -> None:
        self._joints.update(*messages.named(message), messages.seconds(message.header.stamp), arm=arm)

    def _on_scene(self, message: Any, info: Any) -> None:
        self._scene = read_scene(message) or self._scene

    def _on_image(self, name: str) -> Callable[[Any, Any], None]:
        return lambda message, info: self._newest.__setitem__(name, message)

    def _tick(self) -> None:
        if self._failure is not None:
            self.done = True
            return
        self.take_all()
        seen = self._look()
        if seen is None:
            return
        if not self._sees:
            self._sees = True
            log.info(SEES)
        if self._frames.qsize() >= self._most:
            self._lost += 1
            return
        self._frames.put(seen)

    def _look(self) -> Callable[[], Seen] | None:
        """Content of the next picture, in the thread that draws; None while a part was never seen."""
        c, caption = self.contract, self._episodes.caption()
        if c.simulated:
            q, scene = self._joints.q, self._scene
            seen = Seen(q, self._joints.openings, scene, caption=caption)
            return None if q is None or scene is None else lambda: seen
        newest = dict(self._newest)
        if len(newest) < len(c.cameras):
            return None
        return lambda: Seen(
            None,
            images={name: messages.picture(newest[name], camera) for name, camera in c.cameras.items()},
            caption=caption,
        )

    def _film(self) -> None:
        try:
            drawer = self._make_drawer(self.contract, self.value("task"))
            try:
                log.info(READY)
                self._write(Path(self.value("out")), self._pictures(drawer), self.contract.control_hz)
            finally:
                drawer.close()
        except Exception as error:
            self._failure = error
            log.debug("no film", exc_info=True)
        if self._lost:
            log.warning("this machine draws too slowly: %d pictures are missing in the film", self._lost)

    def _pictures(self, drawer: Drawer) -> Iterator[Picture]:
        while (seen := self._frames.get()) is not None:
            yield drawer.draw(seen())
