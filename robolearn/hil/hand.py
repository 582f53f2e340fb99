"""A person with a device in a simulated world: watches, takes over, hands back, and labels how an episode ended.

The dead-man of the device decides whose turn it is; a device without one is given a clutch (`hardware.teleop.wrapped`).
Whoever takes over begins with one step at rest, its gripper as it was, so that nothing jumps; whoever hands back leaves
the arm to a new chunk of the policy. The device is asked once before each control step, with the observation of that
step: the frame of the tcp that its motion is turned into is that *before* the action is executed.

    SUCCESS, FAILURE   the episode ends with that label
    DISCARD, REDO      it ends without one; after DISCARD the next waits for START
    QUIT               the actor ends

The first episode waits for START, and so does the next after a device that went silent while it steered, or was
unplugged: that ends the episode, as the safety filter does on an arm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hardware.teleop.device import RECORDING, WAITING, Device, EpisodeEvent, Sample, Status
from hardware.teleop.mapping import RobotState, joint_action, resting_opening
from hardware.teleop.supervised import TakeOver
from robolearn.core import Interface, Observation
from robolearn.core.scene import Scene
from robolearn.hil.person import ActorStatus, Ask, Person
from robots import RobotSpec

LABELS: dict[EpisodeEvent, Ask] = {
    EpisodeEvent.SUCCESS: "success",
    EpisodeEvent.FAILURE: "failure",
    EpisodeEvent.DISCARD: "return",
    EpisodeEvent.REDO: "return",
    EpisodeEvent.QUIT: "stop",
}
LOOK_S = 0.05  # between two looks at a device that is waited for
SHOW_EVERY = 2  # control steps between two looks of the person: 10 Hz
WATCHING = "the policy moves the arm"
ASKED = "show the whole way yourself"
BACK = "START when it is back"
START_KEY = "press START when you are at the device"


class Hand:
    """A `robolearn.hil.agent.Operator` and a `Person`.

    Args:
      device: open; its owner closes it.
      interface, robot: of the world.
      scene: what stands around the arm, as it is now; None where the device shows no scene.
      ending: whether the actor is to end; nobody is waited for then.
      console: a page beside the device, whose buttons count too.
    """

    def __init__(
        self,
        device: Device,
        interface: Interface,
        robot: RobotSpec,
        *,
        scene: Callable[[], Scene] | None = None,
        ending: Callable[[], bool] = lambda: False,
        console: Person | None = None,
    ) -> None:
        self._device, self._interface, self._robot = device, interface, robot
        self._scene, self._ending, self._console = scene, ending, console
        self._turns = TakeOver(interface)
        names = interface.action.names
        self._gripper = names.index("gripper") if "gripper" in names else None
        self._waits = True  # for START
        self._held = self._freely = False
        self._message = ""
        self._status: ActorStatus | None = None
        self._action: NDArray[np.float32] | None = None  # of this step, where the person steers

    # --- Operator -----------------------------------------------------------------------------------------------

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """See `Operator.begin`."""
        self._turns.begin()
        self._held = self._freely = False
        self._device.prepared()

    def steer(self) -> None:
        """The person is asked to show the whole way."""
        self._freely = True

    def command(self, observation: Observation) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        """What `poll` has found for this step."""
        steers = self._action is not None
        action = np.zeros(self._interface.action.size, np.float32) if self._action is None else self._action
        return np.array([steers]), action[None]

    # --- Person -------------------------------------------------------------------------------------------------

    def show(self, status: ActorStatus) -> None:
        """See `Person.show`."""
        self._status = status
        if self._console is not None:
            self._console.show(status)
        if status.step % SHOW_EVERY == 0:
            self._present(RECORDING, self._message)

    def poll(self) -> Sequence[Ask]:
        """Ask the device; waits for START where the person is to say when."""
        status = self._status
        assert status is not None
        asks: list[Ask] = []  # in order
        if self._waits and not self._wait():
            asks = ["stop"]
        for ask in () if self._console is None else self._console.poll():
            asks.append(ask)
            if ask in ("take over", "hand back"):
                self._held = ask == "take over"
        sample = self._device.sample(self._seen)
        asks.extend(LABELS[event] for event in sample.events if event in LABELS)
        self._waits |= EpisodeEvent.DISCARD in sample.events
        slipped = self._turns.mine and not sample.engaged and not self._held and sample.released is False
        lost = slipped or bool(self._gone)
        self._action = self._still(status) if lost else self._turn(sample, status)
        if not lost:
            return asks
        self._message, self._waits = sample.note or "the device was lost", True
        return [*asks, "return"]

    # ------------------------------------------------------------------------------------------------------------

    @property
    def _gone(self) -> str:
        """What the device died of, where it can say; it is opened anew while START is waited for."""
        return getattr(self._device, "gone", "")

    @property
    def _seen(self) -> dict[str, NDArray]:
        """Feature → (…) of the one arm."""
        assert self._status is not None
        return {key: np.asarray(value[0]) for key, value in self._status.observation.items()}

    def _turn(self, sample: Sample, status: ActorStatus) -> NDArray[np.float32] | None:
        """(Da,) of the person's turn; None in the policy's."""
        if not self._turns.mine:
            self._turns.policy(status.executed)
        if sample.engaged or self._held:
            theirs = self._turns.hand(sample)
            self._message = sample.note or "you move the arm"
            return self._still(status) if theirs.action is None else np.clip(theirs.action, -1.0, 1.0)
        self._turns.policy(status.executed)
        self._device.prepared()  # the policy moves the arm
        self._message = (ASKED if self._freely else WATCHING) + (f" ({sample.note})" if sample.note else "")
        return None

    def _still(self, status: ActorStatus) -> NDArray[np.float32]:
        """No motion, the gripper as it was asked for last."""
        state, most = RobotState(self._seen, self._robot), self._robot.gripper.max_width
        if self._interface.action_kind == "joint_position":
            action = joint_action(self._robot, state.q, state.width)
        else:
            action = np.zeros(self._interface.action.size, np.float32)
            if self._gripper is not None:
                action[self._gripper] = 2.0 * resting_opening(state.width, most, 1.0) - 1.0
        if self._gripper is not None and status.executed is not None:
            action[self._gripper] = status.executed[self._gripper]
        return action

    def _wait(self) -> bool:
        """Wait for START; false where the person or somebody else ends it all."""
        while not self._ending():
            self._present(WAITING, f"{self._gone}. {BACK}" if self._gone else START_KEY)
            events = self._device.sample(self._seen).events
            if EpisodeEvent.QUIT in events:
                return False
            if EpisodeEvent.START in events and not self._gone:
                self._waits = False
                self._device.prepared()
                self._present(RECORDING, WATCHING)
                return True
            time.sleep(LOOK_S)
        return False

    def _present(self, state: str, message: str) -> None:
        status = self._status
        assert status is not None
        seen = self._seen
        robot = RobotState(seen, self._robot) if "proprio" in seen else None
        self._device.show(
            Status(
                state=state,
                message=message,
                episode=status.episode,
                episodes=0,  # as many as it takes
                step=status.step,
                seconds=status.step / self._interface.control_hz,
                joints=None if robot is None else robot.q,
                images={k.removeprefix("images."): v for k, v in seen.items() if k.startswith("images.")},
                opening=float("nan") if robot is None else robot.width,
                scene=None if self._scene is None else self._scene(),
            )
        )
