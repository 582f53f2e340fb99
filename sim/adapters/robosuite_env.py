"""robosuite's tasks: ``robosuite:Lift`` and the others, with state observations and native OSC actions.

Zhu et al., "robosuite: A Modular Simulation Framework and Benchmark for Robot Learning", arXiv 2009.12293.
Sparse reward, 20 Hz, 200 steps; a step that solves the task (robosuite's own `_check_success`) ends the episode.

On MuJoCo 4 two modules of robosuite 1.5.2 get an adapted view of `mujoco`, for two things that it has lost:

- joint types in a model no longer compare as plain integers with members of ``mjtJoint``
  (``robosuite/utils/binding_utils.py``);
- ``mj_fullM(model, dst, data.qM)`` became ``mj_fullM(model, data, dst)``, and ``MjData.qM`` is gone
  (``robosuite/controllers/parts/controller.py``).

`mujoco` itself is left alone, so the embedded world in the same process is not touched.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import types
from collections.abc import Sequence
from typing import Any

import mujoco as _mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, check_choice
from robolearn.core.machine import available_cpus
from sim.adapters.vector import AdapterVectorEnv
from sim.bridge.far.facts import AdapterEnv, Facts, Features, Spec
from sim.bridge.pools import EnvFactory, LocalPool, WorkerPool

CONTROL_HZ = 20
HORIZON = 200
FRAME_SHAPE = (256, 256)  # height, width [px]

# robosuite's own requirements would take NumPy back to 1.26 and compile a keyboard driver; of those that are not ours
# anyway, a simulation uses only this one.
INSTALL = "Run: pip install --no-deps robosuite==1.5.2 && pip install termcolor"

PROMPTS = {
    "Lift": "lift the cube",
    "Stack": "stack the red cube on the green cube",
    "Door": "open the door",
    "NutAssemblySquare": "put the square nut on its peg",
    "NutAssemblyRound": "put the round nut on its peg",
    "PickPlaceCan": "put the can into its bin",
    "PickPlaceMilk": "put the milk into its bin",
    "PickPlaceBread": "put the bread into its bin",
    "PickPlaceCereal": "put the cereal box into its bin",
    "ToolHang": "assemble the frame and hang the tool on it",
}


def make_robosuite(
    task: str, num_envs: int, *, workers: int | None = None, max_episode_steps: int = HORIZON, robot: str = "Panda",
    cameras: tuple[str, ...] = (), image_size: int = 84,
) -> AdapterVectorEnv:  # fmt: skip
    """N worlds of a robosuite task.

    Args:
      task: ``"robosuite:<Name>"``, e.g. ``"robosuite:Lift"``.
      workers: processes, by default one per core; 0 keeps all worlds in this one.
      robot: robosuite's name of the arm; two-arm tasks take two of it.
      cameras: robosuite's names of cameras to observe, e.g. ``"agentview"``, square, with an edge of `image_size` [px].

    Raises:
      BadInput: robosuite is not installed, no such task, robot or camera, or no OpenGL.
    """
    if num_envs < 1:
        raise BadInput("number of worlds", got=num_envs, expected="at least 1")
    name = parse(task)
    _require_robosuite(task)
    arguments = {"task": task, "max_episode_steps": max_episode_steps, "robot": robot} | (
        {"cameras": list(cameras), "image_size": image_size} if cameras else {}
    )
    factory = EnvFactory("sim.adapters.robosuite_env:build", arguments)
    if workers is None:
        workers = available_cpus()
    if workers > 0:
        return AdapterVectorEnv(WorkerPool(factory, num_envs, workers, task), num_envs)
    _check_names(_robosuite(), name, robot)
    return AdapterVectorEnv(LocalPool([factory.build() for _ in range(num_envs)]), num_envs)


def raw_single(task: str, *, robot: str = "Panda", horizon: int = HORIZON, seed: int | None = None) -> Any:
    """robosuite's own env object for `task`, in this process: what a benchmark compares with.

    State observations, sparse reward, 20 Hz; ``env.step(action)`` with ``env.action_dim`` numbers in [-1, 1].
    """
    name = parse(task)
    _require_robosuite(task)
    robosuite = _robosuite()
    _check_names(robosuite, name, robot)
    return robosuite.make(
        name,
        robots=[robot, robot] if name.startswith("TwoArm") else robot,
        has_renderer=False,
        has_offscreen_renderer=False,
        use_camera_obs=False,
        use_object_obs=True,
        reward_shaping=False,
        control_freq=CONTROL_HZ,
        horizon=horizon,
        ignore_done=True,
        renderer="mujoco",
        seed=seed,
    )


def build(
    task: str, max_episode_steps: int = HORIZON, robot: str = "Panda", cameras: Sequence[str] = (), image_size: int = 84
) -> RobosuiteSingle:
    """One world; the arguments of `make_robosuite`."""
    env = raw_single(task, robot=robot, horizon=max_episode_steps, seed=0)
    return RobosuiteSingle(env, task, robot, tuple(cameras), image_size)


def parse(task: str) -> str:
    """``"robosuite:Lift"`` → ``"Lift"``."""
    prefix, _, name = task.partition(":")
    if prefix != "robosuite" or not name:
        raise BadInput("task", got=repr(task), expected="robosuite:<Name>, e.g. robosuite:Lift")
    return name


def _require_robosuite(task: str) -> None:
    if importlib.util.find_spec("robosuite") is None:
        raise BadInput(f"task {task!r}", got="no robosuite", expected="it installed", hint=INSTALL)


def _robosuite() -> Any:
    """Import robosuite, quietly, adapted to the MuJoCo that is installed, and without a trace in the environment."""
    logging.getLogger("robosuite_logs").addFilter(_only_errors)
    before = os.environ.get("MUJOCO_GL")
    try:
        module = importlib.import_module("robosuite")
    except ImportError as error:
        raise BadInput("robosuite", got=f"an installation that lacks {error.name!r}", hint=INSTALL) from error
    # robosuite writes the name of its GL there, which would bind every other renderer.
    os.environ.pop("MUJOCO_GL", None)
    if before is not None:
        os.environ["MUJOCO_GL"] = before
    adapt_robosuite()
    return module


def _only_errors(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def _check_names(robosuite: Any, name: str, robot: str) -> None:
    if name not in robosuite.ALL_ENVIRONMENTS:
        raise BadInput("robosuite task", got=name, available=sorted(robosuite.ALL_ENVIRONMENTS))
    if robot not in robosuite.ALL_ROBOTS:
        raise BadInput("robosuite robot", got=robot, available=sorted(robosuite.ALL_ROBOTS))


class RobosuiteSingle(AdapterEnv):
    """A robosuite env as an `AdapterEnv`: robots' proprio → ``proprio``, object-state → ``objects``.

    Args:
      env: from `raw_single`.
      task: the name for ``--task``.
      robot: robosuite's name of the arm.
      cameras, image_size: what is observed besides numbers; the edge in px.
    """

    def __init__(self, env: Any, task: str, robot: str, cameras: tuple[str, ...] = (), image_size: int = 84) -> None:
        self._env = env
        self._steps = 0
        self._cameras, self._size = cameras, image_size
        self.render_mode = "rgb_array"
        known = list(env.sim.model.camera_names)
        for camera in cameras:
            check_choice(f"camera of {task}", camera, known)
        features = self._features(env.observation_spec())
        low, high = env.action_spec
        if not (np.allclose(low, -1.0) and np.allclose(high, 1.0)):
            raise BadInput(f"action bounds of {task}", got=f"[{low}, {high}]", expected="[-1, 1]")
        name = parse(task)
        facts = Facts(
            observation={key: Spec(value.shape, str(value.dtype)) for key, value in features.items()},
            action=len(low),
            control_hz=float(CONTROL_HZ),
            embodiment=robot.lower(),
            task=task,
            prompt=PROMPTS.get(name, name),
            max_episode_steps=env.horizon,
            reports_success=True,
        )
        super().__init__(facts)

    def _features(self, observation: Any) -> Features:
        proprio = [observation[key] for key in observation if key.endswith("_proprio-state")]
        features: Features = {"proprio": np.concatenate(proprio).astype(np.float32)}
        if "object-state" in observation:
            features["objects"] = np.asarray(observation["object-state"], np.float32)
        for camera in self._cameras:
            features[f"images.{camera}"] = self._picture(camera, (self._size, self._size))
        return features

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Features, dict]:
        """As in Gymnasium. Rebuilds the model, as robosuite does by default: object sizes are part of the start."""
        if seed is not None:
            # In place: the placement samplers hold this very generator.
            self._env.rng.bit_generator.state = np.random.default_rng(seed).bit_generator.state
        self._steps = 0
        return self._features(self._env.reset()), {"success": False}

    def step(self, action: NDArray[np.float32]) -> tuple[Features, float, bool, bool, dict]:
        """`action` (Da,) in [-1, 1]: robosuite's OSC pose delta and gripper."""
        observation, reward, _, _ = self._env.step(np.asarray(action, np.float64))
        self._steps += 1
        success = bool(self._env._check_success())
        truncated = self._steps >= self._env.horizon and not success
        return self._features(observation), float(reward), success, truncated, {"success": success}

    def render(self) -> NDArray[np.uint8]:
        """A picture from the front; raises where there is no GL."""
        return self._picture("frontview", FRAME_SHAPE)

    def _picture(self, camera: str, shape: tuple[int, int]) -> NDArray[np.uint8]:
        """(height, width, 3) of `shape`."""
        sim = self._env.sim
        if sim._render_context_offscreen is None:
            from robosuite.utils.binding_utils import MjRenderContextOffscreen

            try:
                MjRenderContextOffscreen(sim, device_id=-1)
            except Exception as error:  # each GL back end raises its own types
                raise BadInput(
                    "cameras", got=f"no OpenGL ({error})".splitlines()[0], expected="EGL or OSMesa"
                ) from error
            context: Any = sim._render_context_offscreen
            context.vopt.geomgroup[0] = 0  # collision geometry
            context.vopt.geomgroup[1] = 1  # what it looks like
        picture = sim.render(camera_name=camera, width=shape[1], height=shape[0])
        return np.ascontiguousarray(picture[::-1])  # OpenGL's rows start at the bottom

    def close(self) -> None:
        """Close the env."""
        self._env.close()


mujoco: Any = _mujoco  # the package brings no types for what is used here


class MujocoView(types.ModuleType):
    """`mujoco` with integer joint types and the `mj_fullM` of MuJoCo 3; everything else as it is."""

    def __init__(self) -> None:
        super().__init__("mujoco")
        kinds = {name: int(member) for name, member in mujoco.mjtJoint.__members__.items()}
        self.mjtJoint = types.SimpleNamespace(**kinds)

    def __getattr__(self, name: str) -> Any:
        return getattr(mujoco, name)

    @staticmethod
    def mj_fullM(model: Any, dst: Any, mass: Any) -> None:  # MuJoCo's name
        """The dense inertia matrix (nv, nv); `mass` is what the adapted ``MjData.qM`` returns."""
        mujoco.mj_fullM(model, mass, dst)


def adapt_robosuite() -> None:
    """Give robosuite's two modules the view. Does nothing on a MuJoCo that robosuite was written for."""
    if hasattr(mujoco.MjData, "qM"):
        return
    from robosuite.controllers.parts import controller
    from robosuite.utils import binding_utils

    if isinstance(binding_utils.mujoco, MujocoView):
        return
    view = MujocoView()
    binding_utils.mujoco = view
    controller.mujoco = view
    # The old second argument of mj_fullM was the packed matrix, the new one is the whole MjData: hand that through.
    setattr(binding_utils.MjData, "qM", property(lambda self: self._data))  # noqa: B010 - robosuite does not declare it
