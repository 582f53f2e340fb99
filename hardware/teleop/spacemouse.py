"""A 3Dconnexion SpaceMouse: six axes under one hand, the left button grips, the right one begins and ends episodes.

hidapi carries the reports (its wheels bring their own library), PySpaceMouse has the models and decodes the reports, in
ROS's convention: x forward, y left, z up. The cap springs back, so it is its own dead-man.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from hardware.teleop.device import RECORDING, EpisodeEvent, Sample, Status
from hardware.teleop.mapping import MOTIONS, Axis, AxisDevice, MappingConfig, MotionConfig
from hardware.teleop.terminal import EPISODE_HELP
from hardware.teleop.wrapped import reopened
from robolearn.core.errors import BadInput
from robolearn.core.installation import install_command
from robolearn.core.specs import Interface

if TYPE_CHECKING:
    from robots import RobotSpec

# Pressed out of the middle it reports a hundred times a second; at rest not at all.
SILENCE_S = 0.5
MOST_REPORTS = 256  # at one sample: more is a device gone mad, and would block
HELP = f"push, pull, turn and tilt the cap · left button gripper · right button start, then success · {EPISODE_HELP}"

CONFIG = MappingConfig(axes={motion: Axis(motion) for motion in MOTIONS}, dead_zone=0.08, expo=0.5)


def hid_library() -> Any:
    """hidapi: on Linux over hidraw, which needs no driver to be taken from the kernel; `BadInput` without it."""
    for name in ("hidraw", "hid"):
        with contextlib.suppress(ImportError):
            module = importlib.import_module(name)
            if hasattr(module, "enumerate") and hasattr(module, "device"):
                return module
    raise BadInput("spacemouse", got="no hidapi", expected="hidapi", hint=install_command("teleop"))


def _pyspacemouse() -> Any:
    try:
        return importlib.import_module("pyspacemouse")
    except (ImportError, OSError) as error:
        raise BadInput(
            "spacemouse", got=f"no PySpaceMouse ({error})", expected="pyspacemouse", hint=install_command("teleop")
        ) from error


def found(hid: Any) -> list[tuple[bytes, Any]]:
    """The SpaceMice that are plugged in: path and PySpaceMouse's `DeviceInfo`, without opening them."""
    specs = {(spec.vendor_id, spec.product_id): spec for spec in _pyspacemouse().get_device_specs().values()}
    mice = []
    for one in hid.enumerate():
        spec = specs.get((one["vendor_id"], one["product_id"]))
        # Receivers and the big models are keyboards too; usage 8 of page 1 is the multi-axis controller.
        other = one.get("usage_page") and (one["usage_page"], one.get("usage")) != (1, 8)
        if spec is not None and not other:
            mice.append((one["path"], spec))
    return mice


class _Handle:
    """Source of PySpaceMouse: an open hidapi device, its short reports filled up with zeros."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self.reports = 0

    def read(self, size: int) -> bytes:
        data = bytes(self._device.read(size))
        self.reports += bool(data)
        return data.ljust(size, b"\0") if data else b""

    def close(self) -> None:
        self._device.close()


@dataclass(frozen=True)
class SpaceMouseConfig(MotionConfig):
    """A 3Dconnexion SpaceMouse."""

    name: ClassVar[str] = "spacemouse"
    help: ClassVar[str] = HELP

    def build(self, interface: Interface, robot: RobotSpec, **parts: Any) -> SpaceMouse:
        return SpaceMouse(interface, robot, index=self.index, speed=self.speed, **parts)


class SpaceMouse(AxisDevice):
    """A `Device` of a SpaceMouse; a terminal, where there is one, gives the other episode keys.

    Args:
      hid: hidapi's module, or another with its `enumerate` and `device`; for the other options see `AxisDevice`.
    """

    name = "spacemouse"
    mapping = CONFIG
    moving = False  # see `Clutch`
    reconnect = reopened

    def __init__(self, interface: Interface, robot: RobotSpec, *, hid: Any = None, **options: Any) -> None:
        super().__init__(interface, robot, silence_s=SILENCE_S, **options)
        self._hid = hid
        self._mouse: Any = None
        self._handle: _Handle | None = None
        self._pressed = [False, False]
        self._state = ""

    def open(self) -> None:
        self._connect()
        self.open_keys()

    def _connect(self) -> None:
        library = _pyspacemouse()
        hid = self._hid or hid_library()
        mice = found(hid)
        path, spec = self._pick(mice, (spec.name for _, spec in mice))
        device = hid.device()
        try:
            device.open_path(path)
            device.set_nonblocking(True)
        except OSError as error:
            where, hint = path.decode(errors="replace"), "This user may not open it: robolearn doctor has the udev rule"
            raise BadInput(f"spacemouse {spec.name} at {where}", got=error, hint=hint) from error
        self._handle = _Handle(device)
        ros = library.apply_axis_convention(spec, library.AxisConvention.ROS)
        self._mouse = library.SpaceMouseDevice(ros, self._handle)
        self._pressed = [False, False]
        self._begin(f"{spec.name}: {HELP}")

    def _disconnect(self) -> None:
        if self._mouse is not None:
            self._mouse.close()
            self._mouse = self._handle = None

    def sample(self, observation: Mapping[str, NDArray] | None) -> Sample:
        events = self.key_events()
        axes, grips, rights = self._read()
        events += rights * (EpisodeEvent.SUCCESS if self._state == RECORDING else EpisodeEvent.START,)
        self.moving = grips > 0 or self._motion.moves(axes)
        engaged = self._watchdog.alive(must_speak=any(axes.values()))
        action = self._motion.action(axes, observation, toggles=grips) if engaged else None
        return Sample(action, engaged, events, self._watchdog.newest, self._watchdog.why or self._confirm.note)

    def show(self, status: Status) -> None:
        super().show(status)
        self._state = status.state

    def _read(self) -> tuple[dict[str, float], int, int]:
        """Axes in [-1, 1], and how often the left and the right button went down since the last call."""
        axes: dict[str, float] = dict.fromkeys(MOTIONS, 0.0)
        downs = [0, 0]
        if self._mouse is None or self._handle is None or not self._watchdog.alive(must_speak=False):
            return axes, 0, 0
        try:
            for _ in range(MOST_REPORTS):
                heard = self._handle.reports
                state = self._mouse.read()
                if self._handle.reports == heard:
                    break
                self._watchdog.report()
                before, self._pressed = self._pressed, self._two(state.buttons)
                downs = [n + (now and not was) for n, now, was in zip(downs, self._pressed, before, strict=True)]
        except (OSError, ValueError) as error:
            self._watchdog.fail(f"unplugged ({error})")
            return axes, 0, 0
        state = self._mouse._state  # the property `state` reads one more report
        return {motion: float(getattr(state, motion)) for motion in MOTIONS}, downs[0], downs[1]

    def _two(self, buttons: list[int]) -> list[bool]:
        """The left and the right button, or the first two keys of models with many."""
        state = dict(zip(self._mouse.info.button_names, buttons, strict=False))
        pairs = (("LEFT", "BTN_1"), ("RIGHT", "BTN_2"))
        return [bool(next((state[name] for name in pair if name in state), False)) for pair in pairs]
