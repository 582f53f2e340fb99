"""Cameras of the embedded world: observations of N worlds, and single pictures."""

from __future__ import annotations

import copy
import math
import sys
from concurrent.futures import ThreadPoolExecutor

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.core import ArraySpec, BadInput, check_choice
from robolearn.core.scene import Scene
from robots import AnyRobot
from robots.shapes import shape_of, visible_geoms
from sim.embedded.cousin_scenes import GEOMETRY
from sim.embedded.painter import Canvas, CanvasSpec, Painter, PainterProcesses, RenderContext
from sim.embedded.scene import build_model
from sim.embedded.task import Array, Task
from sim.embedded.visual_randomisation import Appearance, VisualRandomisation

FRAME_SIZE = (360, 480)  # of `Cameras.frame` [px]
ELEVATION, MARGIN = -25.0, 1.4  # of a view for people [degrees], [-]
IMAGE_SIZE = 84  # edge of what a policy sees, by default [px]
MOST_PROCESSES = 8
PAYS_FROM = 16  # worlds: fewer are drawn as fast by this process, and begin sooner


def usual_processes(num_envs: int, threads: int) -> int:
    """Processes that draw `num_envs` worlds where nothing else is said: one for each of `threads`, if it pays."""
    pays = num_envs >= PAYS_FROM and threads > 1 and sys.platform == "linux"
    return min(threads, MOST_PROCESSES) if pays else 0


def overview(model: mujoco.MjModel, data: mujoco.MjData) -> mujoco.MjvCamera:
    """A view for people, from the side of the front camera: the whole arm, as it stands in the placed state `data`.

    A sphere of radius r around it, seen from the distance MARGIN r / sin(fovy / 2).
    """
    hinges = np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE)
    arms = model.body_rootid[model.jnt_bodyid[hinges]]
    shown = np.flatnonzero(np.isin(model.body_rootid[model.geom_bodyid], arms))
    low, high = data.geom_xpos[shown].min(axis=0), data.geom_xpos[shown].max(axis=0)
    camera, centre = mujoco.MjvCamera(), 0.5 * (low + high)
    ahead = centre - data.cam_xpos[model.camera("front").id]
    camera.lookat = centre - [0.0, 0.0, 0.2 * (high - low)[2]]  # and what lies before the arm
    camera.distance = MARGIN * 0.5 * np.linalg.norm(high - low) / math.sin(math.radians(0.5 * model.vis.global_.fovy))
    camera.azimuth = math.degrees(math.atan2(ahead[1], ahead[0]))
    camera.elevation = ELEVATION
    return camera


class Cameras:
    """Renders with the model's own cameras.

    Args:
      names: cameras to observe.
      size: edge of the square observations [px].
      processes: that draw side by side; 0: one thread of this process does.
      later: wait with OpenGL until the first picture; otherwise a machine without it is refused here.

    Raises:
      BadInput: an unknown camera, an impossible size, or no OpenGL.
    """

    def __init__(
        self, model: mujoco.MjModel, names: tuple[str, ...], size: int, *, num_envs: int = 1,
        bodies: tuple[str, ...] = (), randomisation: VisualRandomisation | None = None, processes: int = 0,
        later: bool = False,
    ) -> None:  # fmt: skip
        known = [model.camera(i).name for i in range(model.ncam)]
        for name in names:
            check_choice("camera", name, known)
        most = min(model.vis.global_.offwidth, model.vis.global_.offheight)
        if not 8 <= size <= most:
            raise BadInput("image size", got=f"{size} px", expected=f"8 to {most}")
        names = tuple(dict.fromkeys(names))
        self._model, self._size = model, size
        self._own: RenderContext | None = None
        self._film: RenderContext | None = None
        self._overview: mujoco.MjvCamera | None = None
        self.specs = {f"images.{name}": ArraySpec((size, size, 3), "uint8") for name in names}
        drawn = randomisation or VisualRandomisation()
        spec = CanvasSpec(num_envs, model.nq + 7 * model.nmocap, names, size, bodies, drawn)
        self._painters: PainterProcesses | _PainterThread | None = None
        if names and not later:  # no GL: say so now, not at the first episode
            self._painters = PainterProcesses(model, spec, processes) if processes else _PainterThread(model, spec)

    def render(
        self, rows: NDArray[np.int64], states: NDArray[np.float64], episodes: NDArray[np.int64]
    ) -> dict[str, NDArray[np.uint8]]:
        """``images.<camera>`` → (M, size, size, 3) pictures of the worlds `rows` (M,). `states`: (M, nq + 7 nmocap),
        see `Physics.drawn_state`. `episodes`: (M, 3) seed, start id and number of the episode."""
        if self._painters is None or not len(rows):
            return {key: np.empty((len(rows), *spec.shape), np.uint8) for key, spec in self.specs.items()}
        canvas = self._painters.canvas
        canvas.states[rows], canvas.episodes[rows] = states, episodes
        self._painters.paint(rows)
        return {key: canvas.pictures[rows, c] for c, key in enumerate(self.specs)}

    def frame(self, data: mujoco.MjData, appearance: Appearance | None = None) -> NDArray[np.uint8]:
        """`FRAME_SIZE` + (3,) uint8 picture of a state, for people."""
        if self._film is None:
            self._film = RenderContext(self._model, FRAME_SIZE, fine=True)
        self._film.place(data, appearance)
        self._overview = self._overview or overview(self._model, data)
        return self._film.draw(data, self._overview)

    def image(self, data: mujoco.MjData, name: str) -> NDArray[np.uint8]:
        """(size, size, 3) picture of a state that is the caller's own; its derived fields are computed here.

        Always from one and the same thread.
        """
        if self._own is None:
            self._own = RenderContext(self._model, (self._size, self._size), fine=False)
        self._own.place(data)
        return self._own.draw(data, name)

    def close(self) -> None:
        """Free the GL contexts; from the thread that called `frame` and `image`."""
        if self._painters is not None:
            self._painters.close()
        for context in (self._film, self._own):
            if context is not None:
                context.close()
        self._film = self._own = None


class _PainterThread:
    """A painter in a thread of this process: a GL context belongs to one thread, worlds may be stepped by any."""

    def __init__(self, model: mujoco.MjModel, spec: CanvasSpec) -> None:
        self.canvas = Canvas(spec, bytearray(Canvas.bytes_of(spec)))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="camera")
        self._painter = self._thread.submit(Painter, model, spec).result()

    def paint(self, rows: NDArray[np.int64]) -> None:
        """Draw the worlds `rows` (M,) of the canvas."""
        self._thread.submit(self._painter.paint, self.canvas, rows.tolist()).result()

    def close(self) -> None:
        """Free the GL context."""
        self._thread.submit(self._painter.close)
        self._thread.shutdown()


class TaskView:
    """The shapes of a model that are not the arm's. `robot`: the arm in it, which a page draws by itself."""

    def __init__(self, model: mujoco.MjModel, robot: AnyRobot) -> None:
        own = robot.model_spec().compile()
        arm = {own.body(i).name for i in range(1, own.nbody)}
        self._model, self._data = (
            copy.copy(model),
            mujoco.MjData(model),
        )  # its shapes may differ from episode to episode
        self._geoms = visible_geoms(model, (i for i in range(model.nbody) if model.body(i).name not in arm))
        self._shapes = tuple(shape_of(model, geom) for geom in self._geoms)
        self._appearance: Appearance | None = None

    @property
    def geoms(self) -> dict[str, int]:
        """Name of a shape → its geom in the model."""
        return {shape.name: int(geom) for shape, geom in zip(self._shapes, self._geoms, strict=True)}

    def scene(
        self, qpos: NDArray, mocap_pos: NDArray, mocap_quat: NDArray, appearance: Appearance | None = None
    ) -> Scene:
        """The scene in this state: (nq,), (nmocap, 3) [m], (nmocap, 4) wxyz; with the shapes of `appearance`."""
        if appearance is not None and appearance is not self._appearance:
            for name in GEOMETRY:
                getattr(self._model, name)[:] = getattr(appearance, name)
            self._appearance = appearance
            self._shapes = tuple(shape_of(self._model, geom) for geom in self._geoms)
        self._data.qpos, self._data.mocap_pos, self._data.mocap_quat = qpos, mocap_pos, mocap_quat
        mujoco.mj_kinematics(self._model, self._data)
        poses = np.empty((len(self._geoms), 7))
        poses[:, :3] = self._data.geom_xpos[self._geoms]
        for row, geom in zip(poses, self._geoms, strict=True):
            mujoco.mju_mat2Quat(row[3:], self._data.geom_xmat[geom])
        return Scene(self._shapes, poses)


class SceneFilm:
    """Draws `FRAME_SIZE` pictures for people, in the thread that made it. Raises `BadInput`: there is no
    OpenGL."""

    def __init__(self, robot: AnyRobot, task: Task) -> None:
        self._robot = robot
        self._most = np.array([part.robot.gripper.max_width for part in robot.parts])
        self._model = model = build_model(robot, task)
        self._data = mujoco.MjData(model)
        self._joints = [int(model.joint(name).qposadr[0]) for name in robot.joints]
        self._fingers = [int(model.joint(name).qposadr[0]) for name in robot.fingers]
        self._geoms = TaskView(model, robot).geoms
        self._context = RenderContext(model, FRAME_SIZE, fine=True)
        self._overview: mujoco.MjvCamera | None = None

    def frame(self, q: Array, openings: Array, scene: Scene) -> NDArray[np.uint8]:
        """`FRAME_SIZE` + (3,) picture.

        Args:
          q: (n,) joint positions [rad].
          openings: (1,) of the gripper, of two (1, 2) [m]; NaN: not known, drawn open.
          scene: of `TaskView`, of the same task; shapes that it lacks stay where they are.
        """
        widths = np.where(np.isnan(openings), self._most, np.clip(openings, 0.0, self._most))
        self._data.qpos[self._joints] = q
        self._data.qpos[self._fingers] = self._robot.fingers_of(widths)[0]
        self._context.place(self._data)
        self._overview = self._overview or overview(self._model, self._data)
        matrix = np.empty(9)
        for shape, pose in zip(scene.shapes, scene.poses, strict=True):
            geom = self._geoms.get(shape.name)
            if geom is None:  # a part of one: some messages know no capsules
                continue
            mujoco.mju_quat2Mat(matrix, pose[3:])
            self._data.geom_xpos[geom], self._data.geom_xmat[geom] = pose[:3], matrix
        return self._context.draw(self._data, self._overview).copy()

    def close(self) -> None:
        """Free the GL context."""
        self._context.close()
