"""What every page of ours has in common: where its camera stands, lights, and a floor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import viser
from numpy.typing import NDArray

from hardware.teleop.browser.arm import ArmView
from hardware.teleop.browser.scene import SceneView
from robolearn.core.scene import Scene
from robots import RobotSpec

Array = NDArray[np.float64]


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


class Stage:
    """The arm, and what a simulation says is around it.

    Args:
      server: the page.
      robot: the arm.
    """

    def __init__(self, server: viser.ViserServer, robot: RobotSpec) -> None:
        self.view = Viewpoint.of(robot)
        self._robot = robot
        self._floor = _dress(server, self.view)
        self._arm = ArmView(server, robot)
        self._around = SceneView(server)

    def show(self, joints: Array, opening: float, scene: Scene | None, *, otherwise: float = 1.0) -> None:
        """Show it as it is now.

        Args:
          joints: (n,) joint positions [rad].
          opening: of the gripper [m].
          scene: what is around; None: nothing is known.
          otherwise: share of the gripper's opening where `opening` is NaN.
        """
        most = self._robot.gripper.max_width
        self._arm.move(np.asarray(joints, np.float64), opening / most if opening >= 0 and most > 0 else otherwise)
        if scene is not None:
            if self._floor.visible:  # the task has one of its own
                self._floor.visible = False
            self._around.show(scene)


def _dress(server: viser.ViserServer, view: Viewpoint) -> viser.GridHandle:
    """Camera, lights and a floor; the floor."""
    size = view.size
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
    server.initial_camera.look_at = view.look_at
    server.initial_camera.position = view.position
    server.initial_camera.fov = view.fov
    return server.scene.add_grid(
        "/floor", width=4 * size, height=4 * size, cell_size=0.1, section_size=0.5, position=(0.0, 0.0, 0.0)
    )
