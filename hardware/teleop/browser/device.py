"""Teleoperation from a web page, on this machine or on a phone beside it.

The operator drags a target; at every control step the action is what brings the tcp from where it is towards it, until
it is there: the inverse of `robots.control.TcpDelta`, clipped as a whole so that the tcp goes straight,

    Δp = R_tcpᵀ (p* − p) / 0.02 m,    Δr = log(R_tcpᵀ R*) / 0.10 rad,    a ← a / max(1, ‖a‖_∞) for each of the two

`control_arbiter` decides which page has control, `auth_proxy` whether one may be opened.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hardware.teleop.browser import BrowserConfig
from hardware.teleop.browser.control_arbiter import ControlArbiter
from hardware.teleop.browser.served_page import ServedPage, viser_needed
from hardware.teleop.device import Sample, Status
from hardware.teleop.mapping import resting_opening
from robolearn.core.errors import BadInput
from robolearn.core.se3 import matrix_to_rotvec, rotvec_to_matrix
from robolearn.core.specs import Interface
from robots import DELTA_POS, DELTA_ROT, RobotSpec, make_control, solve

if TYPE_CHECKING:
    from hardware.teleop.browser.guarded_viser import GuardedViser
    from hardware.teleop.browser.page import Page

Array = NDArray[np.float64]

KINDS = ("tcp_delta", "joint_position")


def action_towards(
    kind: str, robot: RobotSpec, q: Array, position: Array, rotation: Array, opening: float
) -> NDArray[np.float32]:
    """One control step from joint positions towards a pose.

    Args:
      kind: of the action, one of `KINDS`.
      robot: the arm.
      q: (n,) joint positions that the action is measured from [rad].
      position, rotation: (3,) [m] and (3, 3), the target of the tcp in the base frame.
      opening: of the gripper, 0 … 1.

    Returns:
      (Da,) in [-1, 1].
    """
    if kind not in KINDS:
        raise BadInput("kind of action", got=kind, available=KINDS)
    pos, rot = (array[0] for array in robot.chain.forward(q[None]))
    step = _shortened(rot.T @ (position - pos) / DELTA_POS)
    turn = _shortened(matrix_to_rotvec(rot.T @ rotation) / DELTA_ROT)
    grip = 2.0 * opening - 1.0
    if kind == "tcp_delta":
        return np.array([*step, *turn, grip], dtype=np.float32)
    goal = solve(
        robot.chain,
        q[None],
        (pos + rot @ step * DELTA_POS)[None],
        (rot @ rotvec_to_matrix(turn * DELTA_ROT))[None],
        rest=np.asarray(robot.home),
    )[0]
    # q = lower + (a + 1)/2 · (upper − lower)
    a = 2.0 * (goal - robot.lower) / (robot.upper - robot.lower) - 1.0
    return np.clip([*a, grip], -1.0, 1.0).astype(np.float32)


def _shortened(a: Array) -> Array:
    return a / max(1.0, float(np.abs(a).max()))


log = logging.getLogger(__name__)

UPDATE_HZ = 20.0  # of what the page shows
SILENT_S = 2.0  # without a status, the recording is busy or stuck


class Browser(ServedPage["Page"]):
    """The device ``browser``.

    Args:
      interface: whose actions to command: ``tcp_delta`` or ``joint_position``.
      robot: the arm.
      config: its options.
    """

    name = "browser"

    def __init__(self, interface: Interface, robot: RobotSpec, config: BrowserConfig | None = None) -> None:
        config = config or BrowserConfig()
        if interface.action_kind not in KINDS:
            raise BadInput("browser: kind of action", got=interface.action_kind, available=KINDS)
        size = make_control(interface.action_kind, robot).spec.size
        if interface.action.size != size:
            raise BadInput("browser: action", got=f"{interface.action.size} components", expected=size)
        if not 0.1 <= config.heartbeat_s <= 5.0:
            raise BadInput("browser: heartbeat_s", got=config.heartbeat_s, expected="0.1 to 5 s")
        if not 0 <= config.port < 1 << 16:
            raise BadInput("browser: port", got=config.port, expected="0 to 65535")
        if config.key is not None and config.certificate is None:
            raise BadInput("browser: certificate", got="a key alone", expected="its certificate too")
        super().__init__()
        self._interface, self._robot, self.config = interface, robot, config
        self.arbiter = ControlArbiter(config.heartbeat_s)
        self._status: Status | None = None
        self._shown_at = 0.0
        self._moved_away, self._prepared = True, False

    def open(self) -> None:
        """Serve the page.

        Raises:
          BadInput: viser is not installed, or the address cannot be listened on.
        """
        if self._page is not None:
            return
        with viser_needed("browser"):
            from hardware.teleop.browser.auth_proxy import overlay
            from hardware.teleop.browser.guarded_viser import Place
            from hardware.teleop.browser.page import BEAT, Page, serve_heartbeats

        def serve(guarded: GuardedViser) -> None:
            c = self.config
            place = Place(c.host, c.port, c.certificate, c.key, c.folder)
            sockets = {BEAT: lambda socket: serve_heartbeats(socket, self.arbiter, self._status_shown)}
            overlays = [overlay("hardware.teleop.browser", name) for name in ("overlay.html", "pictures.html")]
            guarded.serve(place, overlays, sockets, "Whoever has this address can move the arm.")

        self._serve(Page(self.arbiter, self._robot), serve, self._refresh, "teleop-page")

    def close(self) -> None:
        """Take the page away; more than once is no fault."""
        self.arbiter.release("the page was closed")
        super().close()

    def sample(self, observation: Mapping[str, NDArray] | None) -> Sample:
        """The step towards the target; None while the dead-man is off or nothing was observed yet."""
        q = self._observe(observation)
        request = self.arbiter.request()
        action = None
        if request.engaged and q is not None and request.target is not None and request.opening is not None:
            action = action_towards(self._interface.action_kind, self._robot, q, *request.target, request.opening)
        return Sample(action, request.engaged, request.events, request.stamp, request.note, released=request.released)

    def prepared(self) -> None:
        """See `Device.prepared`."""
        self._prepared = True

    def show(self, status: Status) -> None:
        """Hand over to the page's thread."""
        before, self._status, self._shown_at = self._status, status, time.monotonic()
        if before is None or (before.state, before.episode) != (status.state, status.episode):
            self._moved_away = True  # an episode that begins anew must not be drawn to where the last one went

    # ---------------------------------------------------------------------------------------------------------

    def _observe(self, observation: Mapping[str, NDArray] | None) -> NDArray[np.float64] | None:
        """(n,) joint positions [rad], and the target moved to where the arm is."""
        if observation is None or "proprio" not in observation:
            return None
        n = len(self._robot.joints)
        proprio = np.asarray(observation["proprio"], dtype=np.float64).reshape(-1)
        q, width = proprio[:n], float(proprio[n])
        if not np.isfinite(q).all():
            return None
        pos, rot = (array[0] for array in self._robot.chain.forward(q[None]))
        most = self._robot.gripper.max_width
        status = self._status
        driven = status is not None and status.state not in ("waiting", "recording")
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

    def _refresh(self, page: Page) -> None:
        while not self._end.wait(1.0 / UPDATE_HZ):
            try:
                page.update(self._status)
            except Exception:  # a picture that cannot be drawn must not leave the page standing still
                log.exception("the page could not be updated")
                self._end.wait(1.0)
