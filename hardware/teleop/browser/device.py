"""Teleoperation from a web page, on this machine or on a phone beside it.

The operator drags a target; at every control step the action is what brings the tcp from where it is towards it, until
it is there: the inverse of `robots.control.TcpDelta`, clipped as a whole so that the tcp goes straight,

    Δp = R_tcpᵀ (p* − p) / 0.02 m,    Δr = log(R_tcpᵀ R*) / 0.10 rad,    a ← a / max(1, ‖a‖_∞) for each of the two

`control_arbiter` decides which page has control, `auth_proxy` whether one may be opened.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hardware.teleop.browser import BrowserConfig, Place, ServedPage
from hardware.teleop.browser.control_arbiter import ControlArbiter
from hardware.teleop.device import RECORDING, WAITING, Sample, Status
from hardware.teleop.mapping import RobotState, joint_action, resting_opening, shortened
from robolearn.core.errors import BadInput, check_choice
from robolearn.core.se3 import matrix_to_rotvec
from robolearn.core.specs import Interface
from robots import DELTA_POS, DELTA_ROT, RobotSpec, make_control

if TYPE_CHECKING:
    from hardware.teleop.browser.page import Page

Array = NDArray[np.float64]

KINDS = ("tcp_delta", "joint_position")


def action_towards(
    kind: str, robot: RobotSpec, q: Array, position: Array, rotation: Array, opening: float
) -> NDArray[np.float32]:
    """One control step from joint positions `q` (n,) [rad] towards a pose, (3,) [m] and (3, 3), of the tcp in the base.

    Args:
      kind: of the action, one of `KINDS`.
      opening: of the gripper, 0 … 1.

    Returns:
      (Da,) in [-1, 1].
    """
    check_choice("kind of action", kind, KINDS)
    pos, rot = (array[0] for array in robot.chain.forward(q[None]))
    step = shortened(rot.T @ (position - pos) / DELTA_POS)
    turn = shortened(matrix_to_rotvec(rot.T @ rotation) / DELTA_ROT)
    action = np.array([*step, *turn, 2.0 * opening - 1.0])
    if kind == "joint_position":
        goal, width = make_control("tcp_delta", robot).targets(q[None], None, action[None])
        return joint_action(robot, goal[0], width[0])
    return action.astype(np.float32)


SILENT_S = 2.0  # without a status, the recording is busy or stuck


class Browser(ServedPage["Page"]):
    """The device ``browser``, for actions of the kinds `KINDS`."""

    name = what = "browser"
    update_hz = 20.0

    def __init__(self, interface: Interface, robot: RobotSpec, config: BrowserConfig | None = None) -> None:
        config = config or BrowserConfig()
        check_choice("browser: kind of action", interface.action_kind, KINDS)
        size = make_control(interface.action_kind, robot).spec.size
        if interface.action.size != size:
            raise BadInput("browser: action", got=f"{interface.action.size} components", expected=size)
        if not 0.1 <= config.heartbeat_s <= 5.0:
            raise BadInput("browser: heartbeat_s", got=config.heartbeat_s, expected="0.1 to 5 s")
        config.check("browser")
        super().__init__()
        self._interface, self._robot, self.config = interface, robot, config
        self.arbiter = ControlArbiter(config.silence_s)
        self._status: Status | None = None
        self._shown_at = 0.0
        self._moved_away, self._prepared = True, False

    def open(self) -> None:
        self._open(self.config)

    def _make(self) -> tuple[Page, Callable[[Place], None]]:
        from hardware.teleop.browser.auth_proxy import overlay
        from hardware.teleop.browser.page import BEAT, Page, serve_heartbeats

        page, own = Page(self.arbiter, self._robot), overlay("hardware.teleop.browser", "overlay.html")
        sockets = {BEAT: lambda socket: serve_heartbeats(socket, self.arbiter, self._status_shown)}
        risk = "Whoever has this address can move the arm."
        return page, partial(page.guarded.serve, own=own, sockets=sockets, risk=risk)

    def close(self) -> None:
        """Take the page away; more than once is no fault."""
        self.arbiter.release("the page was closed")
        super().close()

    def sample(self, observation: Mapping[str, NDArray] | None) -> Sample:
        """The step towards the target; None while the dead-man is off or nothing was observed yet."""
        q = self._observe(observation)
        request = self.arbiter.request()
        if not request.engaged or q is None or request.target is None or request.opening is None:
            return request
        action = action_towards(self._interface.action_kind, self._robot, q, *request.target, request.opening)
        return replace(request, action=action)

    def prepared(self) -> None:
        """See `Device.prepared`."""
        self._prepared = True

    def show(self, status: Status) -> None:
        """Hand over to the page's thread."""
        before, self._status, self._shown_at = self._status, status, time.monotonic()
        if before is None or (before.state, before.episode) != (status.state, status.episode):
            self._moved_away = True  # an episode that begins anew must not be drawn to where the last one went

    def _observe(self, observation: Mapping[str, NDArray] | None) -> NDArray[np.float64] | None:
        """(n,) joint positions [rad], and the target moved to where the arm is."""
        if observation is None or "proprio" not in observation:
            return None
        state, most = RobotState(observation, self._robot), self._robot.gripper.max_width
        q, width = state.q, state.width
        if not np.isfinite(q).all():
            return None
        pos, rot = (array[0] for array in self._robot.chain.forward(q[None]))
        driven = self._status is not None and self._status.state not in (WAITING, RECORDING)
        elsewhere = self._moved_away or self._prepared or driven
        self.arbiter.place(pos, rot, width / most if most > 0 else 0.0, always=elsewhere)
        if self._prepared:
            self.arbiter.keep_grip(lambda commanded: resting_opening(width, most, commanded))
        self._moved_away = self._prepared = False
        return q

    def _status_shown(self) -> dict[str, Any]:
        """Content of the overlay."""
        status = self._status
        if status is None:
            return {"state": "starting", "message": "", "episode": 0, "episodes": 0, "seconds": 0.0}
        late = time.monotonic() - self._shown_at
        return {
            "state": status.state,
            "message": status.message if late < SILENT_S else f"the recording has been silent for {late:.0f} s",
            "episode": int(status.episode),
            "episodes": int(status.episodes),
            "seconds": float(status.seconds),
        }

    def _update(self, page: Page) -> None:
        page.update(self._status)
