"""What viser shows: the arm, a target to drag, the gripper, cameras. The switch and the buttons are in `overlay.html`.

Every client has widgets of its own, so that viser itself hears them from that client alone; those of spectators are
hidden, and the control arbiter ignores them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import viser
from numpy.typing import NDArray

from hardware.teleop.browser.arm import ArmView
from hardware.teleop.browser.control_arbiter import ControlArbiter
from hardware.teleop.browser.guarded_viser import GuardedViser
from hardware.teleop.browser.scene import SceneView
from hardware.teleop.device import Status
from robolearn.core.se3 import matrix_to_quat, quat_to_matrix
from robots import RobotSpec

Array = NDArray[np.float64]

CLIENT = "data-robolearn"  # where the overlay finds the key of its page
CELL = (168, 224)  # room for a camera's picture: height and width [px]
LARGE_CELL = (480, 640)  # and at most, where somebody looks at it closely
IMAGE_EVERY = 2  # updates
_MOVED = 1e-5  # of a pose [m, 1]: less is not worth a message


@dataclass(frozen=True)
class Viewpoint:
    """Where the page's camera stands at first, and how large things are.

    Attributes:
      size: of the arm: distance of the tcp from the base at home [m].
      position, look_at: [m]; the camera's up is z.
      fov: from bottom to top [rad].
      gizmo: length of the target's arrows [m].
    """

    size: float
    position: tuple[float, float, float]
    look_at: tuple[float, float, float]
    fov: float
    gizmo: float

    @staticmethod
    def of(robot: RobotSpec, aspect: float = 1.6) -> Viewpoint:
        """The one for this arm in a window of so many times its height in width; further off in a narrow one."""
        size = float(np.linalg.norm(robot.chain.forward(np.array([robot.home]))[0]))
        far = size * max(1.0, 0.65 / max(aspect, 0.2))
        x, y, z = 0.6 * size, 0.0, 0.5 * size - 0.6 * (far - size)  # a phone's panel covers the lower part
        return Viewpoint(size, (x + 1.6 * far, y - 2.2 * far, z + 1.0 * far), (x, y, z), 0.75, 0.3 * far)

    def project(self, point: Array, window: tuple[int, int]) -> tuple[float, float]:
        """Where (3,) [m] is seen in a window of (width, height) [px]."""
        eye = np.array(self.position)
        forward = np.array(self.look_at) - eye
        forward /= np.linalg.norm(forward)
        right = np.cross(forward, [0.0, 0.0, 1.0])
        right /= np.linalg.norm(right)
        ray = np.asarray(point) - eye
        # x = w/2 + f r·p / d·p,  y = h/2 − f u·p / d·p,  f = h / (2 tan(fov/2))
        f = 0.5 * window[1] / np.tan(0.5 * self.fov) / (forward @ ray)
        return 0.5 * window[0] + f * (right @ ray), 0.5 * window[1] - f * (np.cross(right, forward) @ ray)


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
        self._picture: viser.GuiImageHandle | None = None
        self._updates = 0
        tcp_pos, tcp_rot = (array[0] for array in robot.chain.forward(np.array([robot.home])))
        self._view = Viewpoint.of(robot)
        self._size = self._view.size
        self._home = tcp_pos, tcp_rot
        self._scene()
        self.arm = ArmView(self._server, robot)
        self.around = SceneView(self._server)
        self._server.on_client_connect(self._join)
        self._server.on_client_disconnect(self._leave)

    def update(self, status: Status | None) -> None:
        """Show how things are; called about 20 times a second, by one thread."""
        target, opening, moves = self._arbiter.peek()
        controller = self._arbiter.controller
        if status is not None and status.joints is not None:
            most = self._robot.gripper.max_width
            measured = status.opening / most if most > 0 and np.isfinite(status.opening) else opening
            self.arm.move(np.asarray(status.joints, dtype=np.float64), 1.0 if measured is None else measured)
        if status is not None and status.scene is not None:
            if self._floor.visible:  # the task has one of its own
                self._floor.visible = False
            self.around.show(status.scene)
        with self._lock:
            clients = list(self._clients.values())
        if target is not None:
            self._mark(target[0])
        for client in clients:
            client.update(client.id == controller, target, opening, moves)
        if status is not None and self._updates % IMAGE_EVERY == 0:
            self._show(status.images)
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

    def _scene(self) -> None:
        server, size = self._server, self._size
        server.gui.configure_theme(show_logo=False, show_share_button=False, control_width="small")
        # Lights of our own: viser's picture of a surrounding takes phones and software renderers seconds to prepare.
        server.scene.configure_environment_map(None)
        server.scene.configure_default_lights(False)
        server.scene.add_light_hemisphere(
            "/sky", sky_color=(255, 255, 255), ground_color=(170, 165, 160), intensity=1.7, wxyz=(0.7071, 0.7071, 0, 0)
        )
        server.scene.add_light_directional(
            "/sun", intensity=2.2, cast_shadow=True, position=(0.3 * size, -1.2 * size, 2.5 * size)
        )
        self._floor = server.scene.add_grid(
            "/floor", width=4 * size, height=4 * size, cell_size=0.1, section_size=0.5, position=(0.0, 0.0, 0.0)
        )
        server.initial_camera.look_at = self._view.look_at
        server.initial_camera.position = self._view.position
        server.initial_camera.fov = self._view.fov
        self._marker = server.scene.add_icosphere(
            "/goal", radius=0.025 * size, color=(23, 92, 211), opacity=0.6, position=self._home[0]
        )

    def _mark(self, position: Array) -> None:
        if np.abs(self._marker.position - position).max() > _MOVED:
            self._marker.position = position

    def _show(self, images: Mapping[str, NDArray[np.uint8]]) -> None:
        if not images:
            return
        label = " · ".join(images)
        picture = mosaic(list(images.values()), large=self._arbiter.enlarged)
        if self._picture is None:
            self._picture = self._server.gui.add_image(picture, label=label, format="jpeg", order=100.0)
        else:
            self._picture.label, self._picture.image = label, picture


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
