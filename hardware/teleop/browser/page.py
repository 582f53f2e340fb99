"""What a page shows and how it is touched: the arm, a target to drag, gripper and episode buttons, cameras.

Every client has widgets of its own, so that viser itself hears them from that client alone; those of spectators are
hidden, and the desk would not listen to them either.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import secrets
import socket
import threading
from collections.abc import Iterator, Mapping

import cv2
import numpy as np
import rich
import viser
from numpy.typing import NDArray

from hardware.teleop.browser.arm import ArmView
from hardware.teleop.browser.desk import Desk
from hardware.teleop.device import EpisodeEvent, Status
from robolearn.core.se3 import matrix_to_quat, quat_to_matrix
from robots import RobotSpec

log = logging.getLogger(__name__)

Array = NDArray[np.float64]

CLIENT = "data-robolearn"  # where the overlay finds the key of its page
WIDEST = 320  # pictures are made so narrow for the page [px]
IMAGE_EVERY = 2  # updates
_MOVED = 1e-5  # of a pose [m, 1]: less is not worth a message

BUTTONS: dict[EpisodeEvent, tuple[str, viser.IconName, tuple[int, int, int], tuple[str, ...]]] = {
    EpisodeEvent.START: ("Start episode", viser.Icon.PLAYER_PLAY, (23, 92, 211), ("waiting",)),
    EpisodeEvent.SUCCESS: ("Success", viser.Icon.CHECK, (6, 118, 71), ("recording",)),
    EpisodeEvent.FAILURE: ("Failure", viser.Icon.X, (181, 71, 8), ("recording",)),
    EpisodeEvent.REDO: ("Redo", viser.Icon.REFRESH, (71, 84, 103), ("recording",)),
    EpisodeEvent.DISCARD: ("Discard", viser.Icon.TRASH, (71, 84, 103), ("recording",)),
    EpisodeEvent.QUIT: ("Quit", viser.Icon.PLAYER_STOP, (180, 35, 24), ()),
}
"""Label, icon, colour, and the states in which it is there; none: in all of them."""


class Page:
    """viser on loopback, without any protection of its own: only the gate may know where.

    Args:
      desk: hears what is asked.
      robot: the arm to draw.
    """

    def __init__(self, desk: Desk, robot: RobotSpec) -> None:
        self._desk = desk
        self._robot = robot
        with _quiet():
            self._server = _Server(host=hidden_loopback(), port=0, label="robolearn", verbose=False)
        self._lock = threading.Lock()
        self._clients: dict[int, _Client] = {}
        self._pictures: dict[str, viser.GuiImageHandle] = {}
        self._updates = 0
        tcp_pos, tcp_rot = (array[0] for array in robot.chain.forward(np.array([robot.home])))
        self._size = float(np.linalg.norm(tcp_pos))  # of the arm, to set the scene to scale [m]
        self._home = tcp_pos, tcp_rot
        self._scene()
        self.arm = ArmView(self._server, robot)
        self._server.on_client_connect(self._join)
        self._server.on_client_disconnect(self._leave)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that viser listens on."""
        return self._server.get_host(), self._server.get_port()

    def update(self, status: Status | None) -> None:
        """Show how things are; called about 20 times a second, by one thread."""
        target, opening, moves = self._desk.peek()
        controller = self._desk.controller
        if status is not None and status.joints is not None:
            self.arm.move(np.asarray(status.joints, dtype=np.float64), 1.0 if opening is None else opening)
        with self._lock:
            clients = list(self._clients.values())
        if target is not None:
            self._mark(target[0])
        for client in clients:
            client.update(client.id == controller, status.state if status else "", target, opening, moves)
        if status is not None and self._updates % IMAGE_EVERY == 0:
            self._show(status.images)
        self._updates += 1

    def close(self) -> None:
        """Disconnect everybody."""
        with _quiet():
            self._server.stop()

    # ---------------------------------------------------------------------------------------------------------

    async def _join(self, handle: viser.ClientHandle) -> None:
        key = self._desk.join(handle.client_id)
        client = _Client(handle, key, self._desk, self._home, self._size)
        with self._lock:
            self._clients[client.id] = client

    async def _leave(self, handle: viser.ClientHandle) -> None:
        self._desk.leave(handle.client_id)
        with self._lock:
            self._clients.pop(handle.client_id, None)

    def _scene(self) -> None:
        server, size = self._server, self._size
        server.gui.configure_theme(show_logo=False, show_share_button=False, control_width="small")
        server.scene.add_grid(
            "/floor", width=4 * size, height=4 * size, cell_size=0.1, section_size=0.5, position=(0.0, 0.0, 0.0)
        )
        middle = np.array([0.6, 0.0, 0.4]) * size
        server.initial_camera.look_at = tuple(middle)
        server.initial_camera.position = tuple(middle + size * np.array([1.4, -1.7, 1.0]))
        server.initial_camera.fov = 0.75
        self._marker = server.scene.add_icosphere(
            "/goal", radius=0.025 * size, color=(23, 92, 211), opacity=0.6, position=self._home[0]
        )

    def _mark(self, position: Array) -> None:
        if np.abs(self._marker.position - position).max() > _MOVED:
            self._marker.position = position

    def _show(self, images: Mapping[str, NDArray[np.uint8]]) -> None:
        for i, (name, image) in enumerate(images.items()):
            small = _narrow(image)
            if name in self._pictures:
                self._pictures[name].image = small
            else:
                self._pictures[name] = self._server.gui.add_image(small, label=name, format="jpeg", order=100.0 + i)


class _Client:
    """The widgets of one client."""

    def __init__(
        self, client: viser.ClientHandle, key: str, desk: Desk, home: tuple[Array, Array], size: float
    ) -> None:
        self.id = client.client_id
        self._desk = desk
        self._moves = -1
        self._shown: tuple[bool, str] | None = None
        gui = client.gui
        gui.add_html(f'<div {CLIENT}="{key}"></div>', order=0.0)
        self._buttons = {
            event: gui.add_button(label, icon=icon, color=color, order=1.0 + i, visible=False)
            for i, (event, (label, icon, color, _)) in enumerate(BUTTONS.items())
        }
        for event, button in self._buttons.items():
            self._connect(button, event)
        self._slider = gui.add_slider("Gripper %", min=0, max=100, step=1, initial_value=100, order=20.0, visible=False)
        self._toggle = gui.add_button("Close gripper", order=21.0, visible=False)
        self._gizmo = client.scene.add_transform_controls(
            "/target",
            scale=0.4 * size,
            line_width=4.0,
            depth_test=False,
            position=home[0],
            wxyz=matrix_to_quat(home[1]),
            visible=False,
        )

        @self._slider.on_update
        async def _(event: viser.GuiEvent) -> None:
            if event.client_id is not None:  # else we set it ourselves
                self._desk.grip(self.id, 0.01 * self._slider.value)

        @self._toggle.on_click
        async def _(event: viser.GuiEvent) -> None:
            self._desk.grip(self.id, 0.0 if self._slider.value >= 50 else 1.0)

        @self._gizmo.on_update
        async def _(event: viser.TransformControlsEvent) -> None:
            self._desk.drag(self.id, self._gizmo.position, quat_to_matrix(self._gizmo.wxyz))

    def _connect(self, button: viser.GuiButtonHandle, event: EpisodeEvent) -> None:
        @button.on_click
        async def _(_: viser.GuiEvent) -> None:
            self._desk.ask(self.id, event)

    def update(
        self, mine: bool, state: str, target: tuple[Array, Array] | None, opening: float | None, moves: int
    ) -> None:
        """Show what may be touched now, and put the gizmo where the arm is after it was moved there."""
        if self._shown != (mine, state):
            self._shown = mine, state
            for event, button in self._buttons.items():
                states = BUTTONS[event][3]
                button.visible = mine and (not states or state in states)
            self._slider.visible = self._toggle.visible = self._gizmo.visible = mine
        if opening is not None and round(100 * opening) != self._slider.value:
            self._slider.value = round(100 * opening)
        label = "Close gripper" if self._slider.value >= 50 else "Open gripper"
        if self._toggle.label != label:
            self._toggle.label = label
        if target is not None and (moves != self._moves or not mine):
            self._moves = moves
            position, wxyz = target[0], matrix_to_quat(target[1])
            if max(np.abs(self._gizmo.position - position).max(), np.abs(self._gizmo.wxyz - wxyz).max()) > _MOVED:
                self._gizmo.position, self._gizmo.wxyz = position, wxyz


class _Server(viser.ViserServer):
    """Without viser's tunnel to the open Internet, which any client could ask for."""

    def request_share_url(self, verbose: bool = True) -> str | None:
        log.warning("a page asked to be shared on the Internet; it was not")
        return None


def hidden_loopback() -> str:
    """A loopback address that other web pages in the operator's browser will not guess.

    viser asks nobody for an origin. Linux answers on the whole of 127/8: with the port, 2⁴⁰ places to look.
    """
    address = str(ipaddress.IPv4Address((127 << 24) + 256 + secrets.randbelow((1 << 24) - 512)))
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return "127.0.0.1"
    return address


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """viser prints where it listens, and that it stopped, through rich's console, whatever it is told."""
    console = rich.get_console()
    before, console.quiet = console.quiet, True
    try:
        yield
    finally:
        console.quiet = before


def _narrow(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    height, width = image.shape[:2]
    if width <= WIDEST:
        return image
    size = (WIDEST, max(1, round(height * WIDEST / width)))
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
