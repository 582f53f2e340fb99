"""A person at the console, as an actor meets them: what the page shows of each step, and what its buttons ask for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from robolearn.core import Interface
from robolearn.core.scene import Scene
from robolearn.hil.person import ActorStatus, Ask
from robolearn.hil.status import NAN, Console, HilCommand, HilMetrics, HilStatus, InControl

ASKS: dict[HilCommand, Ask] = {
    HilCommand.TAKE_OVER: "take over",
    HilCommand.HAND_BACK: "hand back",
    HilCommand.SUCCESS: "success",
    HilCommand.FAILURE: "failure",
    HilCommand.RETURN: "return",
}
IN_CONTROL = {True: InControl.PERSON, False: InControl.POLICY, None: InControl.NOBODY}
ASKS_OF_ARMS: dict[HilCommand, Ask] = {**ASKS, HilCommand.STOP: "halt", HilCommand.RELEASE: "release"}
CURVES_S = 1.0  # between two points of the curves
LOOK_S = 0.02
IMAGES, WIDTH = "images.", "gripper_width"


class PersonAtConsole:
    """A `robolearn.hil.person.Person`.

    STOP holds a simulated world where it is, in `poll`, until it is released: its clock is nobody else's. On an arm it
    is passed on, as long as it lasts.

    Args:
      interface: of the world; joints and the gripper's width are looked up by their names in ``proprio``.
      joints: names of the arm's.
      scene: what stands around the arm, as it is now.
      ending: whether the actor is to end; nothing is held then.
      holds: the world's clock waits; false on an arm.
    """

    def __init__(
        self,
        console: Console,
        interface: Interface,
        joints: Sequence[str],
        scene: Callable[[], Scene] | None = None,
        ending: Callable[[], bool] = lambda: False,
        holds: bool = True,
    ) -> None:
        self._holds = holds
        self._console, self._hz, self._scene, self._ending = console, interface.control_hz, scene, ending
        names = interface.observation["proprio"].names if "proprio" in interface.observation else ()
        self._joints = [names.index(joint) for joint in joints] if set(joints) <= set(names) else []
        self._width = names.index(WIDTH) if WIDTH in names else None
        self._steps = self._since = 0
        self._in_control = InControl.POLICY
        self._drawn_s = -CURVES_S

    def show(self, status: ActorStatus) -> None:
        """See `Person.show`."""
        in_control = IN_CONTROL[status.operator]
        self._since = self._since + 1 if in_control is self._in_control else 0
        self._in_control = in_control
        self._steps += status.operator is not None
        proprio = status.observation.get("proprio")
        self._console.show(
            HilStatus(
                in_control=in_control,
                episode=status.episode,
                seconds=status.step / self._hz,
                robot_minutes=self._steps / self._hz / 60.0,
                message=""
                if status.linked
                else "The learner does not answer: what happens is kept here until it does.",
                in_control_s=self._since / self._hz,
                asks_help=status.asks_help,
                metrics=self._metrics(status),
                joints=None if proprio is None or not self._joints else proprio[0, self._joints].astype(float),
                opening=NAN if proprio is None or self._width is None else float(proprio[0, self._width]),
                images={
                    key.removeprefix(IMAGES): value[0]
                    for key, value in status.observation.items()
                    if key.startswith(IMAGES)
                },
                scene=None if self._scene is None else self._scene(),
            )
        )

    def poll(self) -> Sequence[Ask]:
        """See `Person.poll`."""
        asked = list(self._console.poll())
        if not self._holds:
            return [ASKS_OF_ARMS[command] for command in asked]
        while HilCommand.STOP in asked and HilCommand.RELEASE not in asked and not self._ending():
            time.sleep(LOOK_S)
            asked = list(self._console.poll())
        return [ASKS[command] for command in asked if command in ASKS]

    def _metrics(self, status: ActorStatus) -> HilMetrics | None:
        if time.monotonic() - self._drawn_s < CURVES_S:
            return None
        self._drawn_s, learner = time.monotonic(), status.progress
        return HilMetrics(
            robot_minutes=self._steps / self._hz / 60.0,
            success=learner.success,
            intervention_rate=learner.intervention_rate,
            q=learner.q,
            utd=learner.updates / learner.env_steps if learner.env_steps else NAN,
            latency_ms=status.period.p99 if status.period.count else NAN,
        )
