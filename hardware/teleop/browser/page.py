"""What viser shows: the arm, a target to drag, the gripper, cameras. The switch and the buttons are in `overlay.html`.

Every client has widgets of its own, so that viser itself hears them from that client alone; those of spectators are
hidden, and the control arbiter ignores them.
"""

from __future__ import annotations

import threading

import numpy as np
import viser
from numpy.typing import NDArray

from hardware.teleop.browser.control_arbiter import ControlArbiter
from hardware.teleop.browser.guarded_viser import GuardedViser
from hardware.teleop.browser.pictures import Pictures
from hardware.teleop.browser.stage import Stage, Viewpoint
from hardware.teleop.device import Status
from robolearn.core.se3 import matrix_to_quat, quat_to_matrix
from robots import RobotSpec

Array = NDArray[np.float64]

CLIENT = "data-robolearn"  # where the overlay finds the key of its page
IMAGE_EVERY = 2  # updates
_MOVED = 1e-5  # of a pose [m, 1]: less is not worth a message


class Page:
    """What is on the page; `guarded` serves it.

    Args:
      arbiter: receives what each client asks for.
      robot: the arm to draw.
    """

    def __init__(self, arbiter: ControlArbiter, robot: RobotSpec) -> None:
        self._arbiter = arbiter
        self._robot = robot
        self.guarded = GuardedViser()
        self._server = self.guarded.server
        self._lock = threading.Lock()
        self._clients: dict[int, _Client] = {}
        self._pictures = Pictures(self._server)
        self._updates = 0
        tcp_pos, tcp_rot = (array[0] for array in robot.chain.forward(np.array([robot.home])))
        self._home = tcp_pos, tcp_rot
        self._stage = Stage(self._server, robot)
        self._view = self._stage.view
        self._marker = self._server.scene.add_icosphere(
            "/goal", radius=0.025 * self._view.size, color=(23, 92, 211), opacity=0.6, position=tcp_pos
        )
        self._server.on_client_connect(self._join)
        self._server.on_client_disconnect(self._leave)

    def update(self, status: Status | None) -> None:
        """Show how things are; called about 20 times a second, by one thread."""
        target, opening, moves = self._arbiter.peek()
        controller = self._arbiter.controller
        if status is not None and status.joints is not None:
            asked = 1.0 if opening is None else opening
            self._stage.show(status.joints, status.opening, status.scene, otherwise=asked)
        with self._lock:
            clients = list(self._clients.values())
        if target is not None:
            self._mark(target[0])
        for client in clients:
            client.update(client.id == controller, target, opening, moves)
        if status is not None and self._updates % IMAGE_EVERY == 0:
            self._pictures.show(status.images, large=self._arbiter.enlarged)
        self._updates += 1

    def close(self) -> None:
        """Disconnect everybody."""
        self.guarded.close()

    # ---------------------------------------------------------------------------------------------------------

    async def _join(self, handle: viser.ClientHandle) -> None:
        view = Viewpoint.of(self._robot, handle.camera.aspect)
        if view != self._view:
            with handle.atomic():
                handle.camera.position, handle.camera.look_at = view.position, view.look_at
        client = _Client(handle, self._arbiter.join(handle.client_id), self._arbiter, self._home, view.gizmo)
        with self._lock:
            self._clients[client.id] = client

    async def _leave(self, handle: viser.ClientHandle) -> None:
        self._arbiter.leave(handle.client_id)
        with self._lock:
            self._clients.pop(handle.client_id, None)

    def _mark(self, position: Array) -> None:
        if np.abs(self._marker.position - position).max() > _MOVED:
            self._marker.position = position


class _Client:
    """The widgets of one client."""

    def __init__(
        self, client: viser.ClientHandle, key: str, arbiter: ControlArbiter, home: tuple[Array, Array], scale: float
    ) -> None:
        self.id = client.client_id
        self._arbiter = arbiter
        self._moves = -1
        self._mine: bool | None = None
        client.gui.add_html(f'<div {CLIENT}="{key}"></div>', order=0.0)
        self._slider = client.gui.add_slider(
            "Gripper %", min=0, max=100, step=1, initial_value=100, order=20.0, visible=False
        )
        self._gizmo = client.scene.add_transform_controls(
            "/target",
            scale=scale,
            line_width=4.0,
            depth_test=False,
            position=home[0],
            wxyz=matrix_to_quat(home[1]),
            visible=False,
        )

        @self._slider.on_update
        async def _(event: viser.GuiEvent) -> None:
            if event.client_id is not None:  # else we set it ourselves
                self._arbiter.grip(self.id, 0.01 * self._slider.value)

        @self._gizmo.on_update
        async def _(event: viser.TransformControlsEvent) -> None:
            self._arbiter.drag(self.id, self._gizmo.position, quat_to_matrix(self._gizmo.wxyz))

    def update(self, mine: bool, target: tuple[Array, Array] | None, opening: float | None, moves: int) -> None:
        """Show what may be touched now, and put the gizmo where the arm is after it was moved there."""
        if self._mine != mine:
            self._mine = mine
            self._slider.visible = self._gizmo.visible = mine
        if opening is not None and round(100 * opening) != self._slider.value:
            self._slider.value = round(100 * opening)
        if target is not None and (moves != self._moves or not mine):
            self._moves = moves
            position, wxyz = target[0], matrix_to_quat(target[1])
            if max(np.abs(self._gizmo.position - position).max(), np.abs(self._gizmo.wxyz - wxyz).max()) > _MOVED:
                self._gizmo.position, self._gizmo.wxyz = position, wxyz
