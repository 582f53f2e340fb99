"""Pages of viser: one that commands (arm, target to drag, gripper, cameras), and one to look at.

Every client of the first has widgets of its own, so that viser itself receives them from that client alone; those of
spectators are hidden, and the control arbiter ignores them. The switch and the buttons are in `overlay.html`, with a
websocket for heartbeats in and the state out. Pictures of the cameras stand one or two in a row; `pictures.html` makes
them large at a click. The second page has nothing to press: the arm, its surroundings, the cameras, a line of state.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from html import escape
from typing import Any, ClassVar, Literal

import cv2
import numpy as np
import viser
from aiohttp import WSMessage, WSMsgType, web
from numpy.typing import NDArray

from hardware.teleop.browser.control_arbiter import ControlArbiter
from hardware.teleop.browser.guarded_viser import GuardedViser
from hardware.teleop.browser.scene import Array, Stage, Viewpoint, move
from hardware.teleop.device import RECORDING, EpisodeEvent, Status
from robolearn.core import BadInput
from robolearn.core.se3 import matrix_to_quat, quat_to_matrix
from robots import RobotSpec
from robots.pair import AnyRobot

log = logging.getLogger(__name__)

CELL = (168, 224)  # room for a camera's picture: height and width [px]
LARGE_CELL = (480, 640)  # and at most, where a page shows it large
ORDER = 100.0  # on the panel


def mosaic(images: Sequence[NDArray[np.uint8]], *, large: bool = False) -> NDArray[np.uint8]:
    """(H, W, 3) pictures of any size, one or two in a row, each as large as its cell allows.

    The cell is `CELL`; with `large` it has room for each as it was taken, up to `LARGE_CELL`.
    """
    height, width = CELL
    if large:
        height = min(max(height, *(image.shape[0] for image in images)), LARGE_CELL[0])
        width = min(max(width, *(image.shape[1] for image in images)), LARGE_CELL[1])
    columns = min(len(images), 2)
    rows = -(-len(images) // columns)
    out = np.full((rows * height, columns * width, 3), 255, np.uint8)
    for i, image in enumerate(images):
        scale = min(height / image.shape[0], width / image.shape[1])
        size = max(1, round(scale * image.shape[1])), max(1, round(scale * image.shape[0]))
        small = cv2.resize(image, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
        top = i // columns * height + (height - size[1]) // 2
        left = i % columns * width + (width - size[0]) // 2
        out[top : top + size[1], left : left + size[0]] = small
    return out


CLIENT = "data-robolearn"  # where the overlay finds the key of its page
IMAGE_EVERY = 2  # updates


class ArmPage:
    """The arm, its surroundings and its cameras as a page of viser, its panel so wide; `guarded` serves it.

    Attributes:
      high: the panel is, see `Viewpoint.of`.
    """

    high: ClassVar[bool] = True

    def __init__(self, robot: AnyRobot, width: Literal["small", "medium"] = "medium") -> None:
        self.guarded = GuardedViser()
        self.server, self._robot = self.guarded.server, robot
        self.server.gui.configure_theme(show_logo=False, show_share_button=False, control_width=width)
        self._stage = Stage(self.server, robot)
        self._picture: viser.GuiImageHandle | None = None
        self.server.on_client_connect(self._join)

    async def _join(self, client: viser.ClientHandle) -> None:
        self._place(client)

    def _place(self, client: viser.ClientHandle) -> Viewpoint:
        """Put the camera of a new client where its window shows all of the arm."""
        view = Viewpoint.of(self._robot, client.camera.aspect, high=self.high)
        if view != self._stage.view:
            with client.atomic():
                client.camera.position, client.camera.look_at = view.position, view.look_at
        return view

    def _show_pictures(self, images: Mapping[str, NDArray[np.uint8]], *, large: bool = False) -> None:
        """Show (H, W, 3) pictures, all in one image on the panel; `large`: as they were taken."""
        if not images:
            return
        label, picture = " · ".join(images), mosaic(list(images.values()), large=large)
        if self._picture is None:
            self._picture = self.server.gui.add_image(picture, label=label, format="jpeg", order=ORDER)
        else:
            self._picture.label, self._picture.image = label, picture


class Page(ArmPage):
    """Content of the operator's page; `arbiter` receives what each client asks for."""

    high = False

    def __init__(self, arbiter: ControlArbiter, robot: RobotSpec) -> None:
        super().__init__(robot, "small")
        self._arbiter, self._updates, self._lock = arbiter, 0, threading.Lock()
        self._clients: dict[int, _ClientWidgets] = {}
        tcp_pos, tcp_rot = (array[0] for array in robot.chain.forward(np.array([robot.home])))
        self._home, radius = (tcp_pos, tcp_rot), 0.025 * self._stage.view.size
        self._marker = self.server.scene.add_icosphere(
            "/goal", radius=radius, color=(23, 92, 211), opacity=0.6, position=tcp_pos
        )
        self.server.on_client_disconnect(self._leave)

    def update(self, status: Status | None) -> None:
        """Show how things are; called about 20 times a second, by one thread."""
        target, opening, moves = self._arbiter.peek()
        if status is not None and status.joints is not None:
            asked = 1.0 if opening is None else opening
            self._stage.show(status.joints, status.opening, status.scene, otherwise=asked)
        if target is not None:
            move(self._marker, np.append(target[0], self._marker.wxyz))
        with self._lock:
            clients = list(self._clients.values())
        for client in clients:
            client.update(client.id == self._arbiter.controller, target, opening, moves)
        if status is not None and self._updates % IMAGE_EVERY == 0:
            self._show_pictures(status.images, large=self._arbiter.enlarged)
        self._updates += 1

    async def _join(self, client: viser.ClientHandle) -> None:
        key = self._arbiter.join(client.client_id)
        widgets = _ClientWidgets(client, key, self._arbiter, self._home, self._place(client).gizmo)
        with self._lock:
            self._clients[widgets.id] = widgets

    async def _leave(self, handle: viser.ClientHandle) -> None:
        self._arbiter.leave(handle.client_id)
        with self._lock:
            self._clients.pop(handle.client_id, None)


class _ClientWidgets:
    """The widgets of one client."""

    def __init__(
        self, client: viser.ClientHandle, key: str, arbiter: ControlArbiter, home: tuple[Array, Array], scale: float
    ) -> None:
        self.id, self._arbiter, self._moves = client.client_id, arbiter, -1
        client.gui.add_html(f'<div {CLIENT}="{key}"></div>', order=0.0)
        self._slider = client.gui.add_slider(
            "Gripper %", min=0, max=100, step=1, initial_value=100, order=20.0, visible=False
        )
        # Seen through, and without the squares of its planes: they cover what is being grasped.
        self._gizmo = client.scene.add_transform_controls(
            "/target", scale=scale, line_width=4.0, disable_sliders=True, depth_test=False, opacity=0.6, visible=False
        )
        move(self._gizmo, np.concatenate([home[0], matrix_to_quat(home[1])]))

        @self._slider.on_update
        async def _(event: viser.GuiEvent) -> None:
            if event.client_id is not None:  # else we set it ourselves
                self._arbiter.grip(self.id, 0.01 * self._slider.value)

        @self._gizmo.on_update
        async def _(event: viser.TransformControlsEvent) -> None:
            self._arbiter.drag(self.id, self._gizmo.position, quat_to_matrix(self._gizmo.wxyz))

    def update(self, mine: bool, target: tuple[Array, Array] | None, opening: float | None, moves: int) -> None:
        """Show what may be touched now, and put the gizmo where the arm is after it was moved there."""
        self._slider.visible = self._gizmo.visible = mine
        if opening is not None and round(100 * opening) != self._slider.value:
            self._slider.value = round(100 * opening)
        if target is not None and (moves != self._moves or not mine):
            self._moves = moves
            move(self._gizmo, np.concatenate([target[0], matrix_to_quat(target[1])]))


RED, GREY = "#d92d20", "#8a93a3"


class ViewPage(ArmPage):
    """A `Status` as a page of viser."""

    def __init__(self, robot: AnyRobot) -> None:
        super().__init__(robot)
        self._line = self.server.gui.add_html("", order=0.0)

    @property
    def watched(self) -> bool:
        """True while a browser has the page open."""
        return bool(self.server.get_clients())

    def update(self, status: Status, *, pictures: bool = True) -> None:
        """Show how things are, with `pictures` those of the cameras too; called by one thread."""
        if status.joints is not None:
            self._stage.show(status.joints, status.opening, status.scene)
        self._line.content = line(status)
        if pictures:
            self._show_pictures(status.images, large=True)


def line(status: Status) -> str:
    """State, episode i of n, seconds and message, as HTML."""
    many = f" of {status.episodes}" if status.episodes else ""
    colour = RED if status.state == RECORDING else GREY
    return (
        f'<div data-robolearn-view data-state="{escape(status.state)}" style="padding:0.4em 0.8em 0.6em;'
        'font:15px/1.4 system-ui,sans-serif">'
        '<div style="display:flex;align-items:center;gap:0.5em;font-weight:600">'
        f'<span style="width:0.75em;height:0.75em;border-radius:50%;background:{colour}"></span>'
        f"<span>{escape(status.state)} · episode {status.episode + 1}{many}</span>"
        '<span style="margin-left:auto;font-weight:400;font-variant-numeric:tabular-nums">'
        f"{status.seconds:.1f} s</span></div>"
        f'<div style="min-height:2.8em;overflow-wrap:anywhere">{escape(status.message)}</div></div>'
    )


BEAT = "/beat"  # where pages find it
STATUS_S = 0.1  # between two messages to a page about the state of things
HELLO_S = 10.0  # for the first message, with the page's key
UNKNOWN_KEY = 4403  # close code
_EVENTS = tuple(event.value for event in EpisodeEvent)


async def serve_heartbeats(
    page: web.WebSocketResponse, arbiter: ControlArbiter, status: Callable[[], dict[str, Any]]
) -> None:
    """Hand to `arbiter` what a page sends, which proves by its key which client of viser it is. Messages that cannot be
    read are passed over: the first of a page is logged, and their number at its end.

    Args:
      page: the open websocket.
      status: what a page is sent besides the state of its switch.

    Raises:
      TimeoutError: no first message within `HELLO_S`.
    """
    async with asyncio.timeout(HELLO_S):
        message = await page.receive()
    try:
        client, why = arbiter.owner(str(parsed(message).get("key", ""))), "unknown key"
    except BadInput as error:
        client, why = None, str(error)
    if client is None:
        await page.close(code=UNKNOWN_KEY, message=why.encode())
        return
    unread, why = 0, "the page at the controls is gone"
    try:
        async with sending(page, lambda: {**arbiter.standing(client), **status()}):
            async for message in page:
                try:
                    content = parsed(message)
                except BadInput as error:
                    unread += 1
                    if unread == 1:  # not a line for each: who sends one sends many
                        log.warning("%s: passed over", error)
                    continue
                press, received = content.get("press"), content.get("t")
                if content.get("claim"):
                    arbiter.claim(client)
                if content.get("event") in _EVENTS:
                    arbiter.ask(client, EpisodeEvent(content["event"]))
                if isinstance(content.get("grip"), (int, float)):
                    arbiter.grip(client, float(content["grip"]))
                if isinstance(content.get("large"), bool):
                    arbiter.enlarge(client, content["large"])
                if content.get("hidden"):
                    why = "the page is not on the screen any more"
                    arbiter.silence(client, why)
                elif type(press) is int and 0 <= press < 1 << 53:
                    arbiter.beat(client, press, float(received) if isinstance(received, (int, float)) else None)
    finally:
        if unread > 1:
            log.warning("message of a page: %d could not be read", unread)
        arbiter.silence(client, why)


@contextlib.asynccontextmanager
async def sending(page: web.WebSocketResponse, content: Callable[[], dict[str, Any]]) -> AsyncIterator[None]:
    """Within, `page` is sent `content` as JSON every `STATUS_S`."""

    async def send() -> None:
        while not page.closed:
            await page.send_str(json.dumps(content()))
            await asyncio.sleep(STATUS_S)

    task = asyncio.create_task(send())
    try:
        yield
    finally:
        task.cancel()


def parsed(message: WSMessage) -> dict[str, Any]:
    """The JSON object of a message. Raises `BadInput`: it is none, or nested too deeply to be read."""
    got = "no JSON object"
    try:
        value = json.loads(message.data) if message.type in (WSMsgType.TEXT, WSMsgType.BINARY) else None
    except ValueError:
        value, got = None, "no JSON"
    except RecursionError:
        value, got = None, "JSON nested too deeply"
    if not isinstance(value, dict):
        raise BadInput("message of a page", got=got, expected="a JSON object")
    return value
