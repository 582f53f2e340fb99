"""A person with a device in a simulated world: watches, takes over, hands back, and labels how an episode ended.

The dead-man's switch of the device decides who is in control; a device without one has a clutch
(`hardware.teleop.wrapped`). A take-over begins with one step at rest, the gripper as it was, so that nothing jumps;
after the hand-back the policy begins a new chunk. The device is sampled once before each control step, with the
observation of that step: its motion is in the frame of the tcp *before* the action is executed.

    SUCCESS, FAILURE   the episode ends with that label
    DISCARD, REDO      it is dropped: no outcome, and in no data set; after DISCARD the next waits for START
    QUIT               the actor ends; the running episode has no end, so it counts nowhere

The first episode waits for START. A device that went silent while it steered, or was unplugged, ends the episode, as
the safety filter does on an arm, and the next one waits for START.

`opened_device` and `opened_page` open device and console, with their addresses in files beside the outbox.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.teleop import make_device
from hardware.teleop.browser import Place
from hardware.teleop.browser.viewer import open_window
from hardware.teleop.device import RECORDING, WAITING, Device, EpisodeEvent, Sample, Status
from hardware.teleop.mapping import RobotState, joint_action, resting_opening
from hardware.teleop.supervised import TakeOver
from hardware.teleop.wrapped import clutched, reconnecting
from robolearn.core import BadInput, Interface, Observation
from robolearn.core.machine import searched_before
from robolearn.core.scene import Scene
from robolearn.hil.console import WebConsole
from robolearn.hil.operator_console import ActorStatus, OperatorCommand, OperatorConsole, PageConsole
from robolearn.hil.processes import CONSOLE, TELEOP
from robolearn.io.atomic import write_private
from robots import ROBOTS, RobotSpec

log = logging.getLogger(__name__)

COMMANDS = {
    EpisodeEvent.SUCCESS: OperatorCommand.SUCCESS, EpisodeEvent.FAILURE: OperatorCommand.FAILURE,
    EpisodeEvent.DISCARD: OperatorCommand.RETURN, EpisodeEvent.REDO: OperatorCommand.RETURN,
    EpisodeEvent.QUIT: OperatorCommand.QUIT,
}  # fmt: skip
POLL_S = 0.05  # between two samples of a device while START is awaited
SHOW_EVERY = 2  # control steps between two displays: 10 Hz
WATCHING = "the policy moves the arm"
ASKED = "show the whole way yourself"
BACK = "Press Start when it is back"
START_KEY = "press Start (Enter on a keyboard) at the device"


class DeviceOperator(OperatorConsole):
    """A `robolearn.hil.agent.Operator` and an `OperatorConsole`: a person with a teleoperation device.

    Args:
      device: open; its owner closes it.
      interface, robot: of the world.
      scene: returns the bodies around the arm, as they are now; None where the device shows no scene.
      ending: true once the actor is to end; START is not awaited then.
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
        console: OperatorConsole | None = None,
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
        """Ask the person to show the whole way."""
        self._freely = True

    def command(self, observation: Observation) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        """The result of `poll` for this step."""
        steers = self._action is not None
        action = np.zeros(self._interface.action.size, np.float32) if self._action is None else self._action
        return np.array([steers]), action[None]

    # --- OperatorConsole ----------------------------------------------------------------------------------------

    def show(self, status: ActorStatus) -> None:
        self._status = status
        if self._console is not None:
            self._console.show(status)
        if status.step % SHOW_EVERY == 0:
            self._present(RECORDING, self._message)

    def poll(self) -> Sequence[OperatorCommand]:
        """Sample the device; waits for START where an episode needs it."""
        status = self._status
        assert status is not None
        commands: list[OperatorCommand] = []
        if self._waits and not self._wait():
            commands = [OperatorCommand.QUIT]
        for command in () if self._console is None else self._console.poll():
            commands.append(command)
            if command in (OperatorCommand.TAKE_OVER, OperatorCommand.HAND_BACK):
                self._held = command == OperatorCommand.TAKE_OVER
        sample = self._device.sample(self._seen)
        commands.extend(COMMANDS[event] for event in sample.events if event in COMMANDS)
        self._waits |= EpisodeEvent.DISCARD in sample.events
        slipped = self._turns.mine and not sample.engaged and not self._held and sample.released is False
        lost = slipped or bool(self._gone)
        self._action = self._still(status) if lost else self._turn(sample, status)
        if not lost:
            return commands
        self._message, self._waits = sample.note or "the device was lost", True
        return [*commands, OperatorCommand.RETURN]

    @property
    def _gone(self) -> str:
        """Reason why the device is gone, or empty; it is opened anew while START is awaited."""
        return getattr(self._device, "gone", "")

    @property
    def _seen(self) -> dict[str, NDArray]:
        """Feature → (…) of the one arm."""
        assert self._status is not None
        return {key: np.asarray(value[0]) for key, value in self._status.observation.items()}

    def _turn(self, sample: Sample, status: ActorStatus) -> NDArray[np.float32] | None:
        """Action (Da,) of the person; None where the policy is in control."""
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
        """Wait for START; false where the run ends first."""
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
            time.sleep(POLL_S)
        return False

    def _present(self, state: str, message: str) -> None:
        status = self._status
        assert status is not None
        seen = self._seen
        robot = RobotState(seen, self._robot) if "proprio" in seen else None
        many, seconds = 0, status.step / self._interface.control_hz  # 0: as many as it takes
        shown = Status(
            *(state, message, status.episode, many, status.step, seconds),
            joints=None if robot is None else robot.q,
            images={k.removeprefix("images."): v for k, v in seen.items() if k.startswith("images.")},
            opening=float("nan") if robot is None else robot.width,
            scene=None if self._scene is None else self._scene(),
        )
        self._device.show(shown)


@contextlib.contextmanager
def opened_device(
    name: str, options: Mapping[str, Any], interface: Interface, robot: RobotSpec, folder: Path, *, terminal: bool
) -> Iterator[Device]:
    """The device called `name`, open, with a clutch where it has no dead-man, and opened anew where it was unplugged.

    Args:
      folder: for the address of its page, which only its owner can read.
      terminal: the device shows the state in the terminal.

    Raises:
      BadInput: it is not there, or cannot command this arm.
    """
    own = dict(options)
    with contextlib.ExitStack() as stack:
        if terminal:
            own["out"] = stack.enter_context(_screen())
        stack.enter_context(searched_before())
        device = make_device(name, interface, robot, **own)
        device.open()
        stack.callback(device.close)
        url, notice = getattr(device, "url", ""), getattr(device, "notice", "")
        if url:
            stack.enter_context(_noted(folder / TELEOP, url, "your page"))
            if sys.stderr.isatty():  # not for logs: it has the token
                print(notice, file=sys.stderr, flush=True)
        yield reconnecting(clutched(device), device)


@contextlib.contextmanager
def opened_page(
    port: int | None,
    folder: Path,
    interface: Interface,
    scene: Callable[[], Scene] | None,
    ending: Callable[[], bool],
    *,
    holds: bool = True,
    window: bool = False,
) -> Iterator[Any]:
    """The console's page at `port`, opened in a `window` where that is asked for, or None without one; see
    `PageConsole`."""
    if port is None:
        yield None
        return
    robot = ROBOTS.get(interface.embodiment)
    if robot is None:
        raise BadInput("--console", got=f"a world with {interface.embodiment}", available=ROBOTS)
    with WebConsole(robot, place=Place(port=port)) as console, _noted(folder / CONSOLE, console.url, "the console"):
        if sys.stderr.isatty():  # not for logs: it has the token
            print(console.notice, file=sys.stderr, flush=True)
        if window:
            open_window(console.invitation())
        yield PageConsole(console, interface, robot.joints, scene, ending, holds)


@contextlib.contextmanager
def _noted(path: Path, url: str, what: str) -> Iterator[None]:
    """A file with the address of a page, that only its owner can read, while the page is open."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_private(path, url + "\n")
    log.info("%s is at the address in %s", what, path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _screen() -> Iterator[Any]:
    """Standard error where that is a terminal, else the terminal that is read."""
    if sys.stderr.isatty() or not sys.stdin.isatty():
        yield sys.stderr
        return
    # `hil run` sends the output of its processes to files; the operator looks at the terminal.
    with open(os.open(os.ttyname(sys.stdin.fileno()), os.O_WRONLY | os.O_NOCTTY), "w") as terminal:
        yield terminal
