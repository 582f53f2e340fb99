"""Any registered Gymnasium env as an `AdapterEnv`: the far side of ``gym:<module>:<Id-v0>``."""

from __future__ import annotations

import difflib
import functools
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator
from numpy.typing import NDArray

from .errors import BadInput, RobolearnError
from .facts import AdapterEnv, Facts, Features, Spec
from .features import FeatureMap

DEFAULT_HZ = 20.0
RENDER = "render"  # the camera of an env that draws
CONTINUING = ("Pendulum", "HalfCheetah", "Swimmer", "Reacher", "Pusher", "HumanoidStandup")
"""Gymnasium's own envs with continuous actions whose `step` never returns ``terminated`` (their documentation)."""


def build(
    task: str, max_episode_steps: int | None = None, kwargs: dict[str, Any] | None = None,
    cameras: Sequence[str] = (), image_size: int = 84,
) -> GymSingle:  # fmt: skip
    """One world of ``gym:<module>:<Id-v0>``.

    Args:
      max_episode_steps: overrides the env's own limit.
      kwargs: for the env's constructor.
      cameras: ``"render"`` is what the env draws, square, with an edge of `image_size` [px], as ``images.render``;
        pictures that the env observes by itself may be named, too.
    """
    module, env_id = parse(task)
    _import_user_module(task, module)
    try:
        spec = gymnasium.spec(env_id)
    except gymnasium.error.Error:
        known = sorted(gymnasium.registry)
        own = [name for name in known if _registered_by(name, module)]
        raise BadInput(f"task {task!r}", got=env_id, expected="a registered id", available=own or known) from None
    try:
        env = _make(spec, max_episode_steps, kwargs or {})
    except (Exception, SystemExit) as error:  # the user's constructor may raise anything
        raise refused(task, error, f"while making {env_id}") from error
    return GymSingle(env, task, cameras, image_size)


def parse(task: str) -> tuple[str, str]:
    """``"gym:module:Id-v0"`` → (module, id)."""
    parts = task.split(":", 2)
    if len(parts) != 3 or parts[0] != "gym" or not parts[1] or not parts[2]:
        raise BadInput(f"task {task}: it is gym:<module>:<Id-v0>, as in gym:gymnasium:Pendulum-v1")
    return parts[1], parts[2]


def refused(task: str, error: BaseException, doing: str) -> BadInput:
    """The error of a world that raised `error` before it was of use. A world often exits for packages it lacks."""
    ours = isinstance(error, SystemExit) and __package__ == "sim.bridge.far"
    hint = "With --world-python it runs in an interpreter that has what it needs" if ours else ""
    return BadInput(f"task {task!r}", got=f"{type(error).__name__} {doing}: {error}", hint=hint)


def _make(spec: EnvSpec, max_episode_steps: int | None, kwargs: dict[str, Any]) -> gymnasium.Env:
    drawn = {**_render_mode(spec), **kwargs}
    limit = {} if max_episode_steps is None else {"max_episode_steps": max_episode_steps}
    try:
        return gymnasium.make(spec, disable_env_checker=True, **limit, **drawn)
    except TypeError as error:  # metadata that promises pictures, and a constructor that takes no render_mode
        if "render_mode" not in str(error) or drawn == kwargs:
            raise
        return gymnasium.make(spec, disable_env_checker=True, **limit, **kwargs)


def _render_mode(spec: EnvSpec) -> dict[str, str]:
    """Ask for pictures where the env can draw them and its registration does not say otherwise."""
    entry = load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point
    metadata = getattr(entry, "metadata", None) or {}
    draws = "rgb_array" in metadata.get("render_modes", ()) and "render_mode" not in spec.kwargs
    return {"render_mode": "rgb_array"} if draws else {}


def _import_user_module(task: str, module: str) -> None:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)
        importlib.invalidate_caches()
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module != missing and not module.startswith(missing + "."):
            got = f"module {module!r}, which needs {missing!r}, not installed"
            raise BadInput(f"task {task!r}", got=got) from error
        local = sorted(path.stem for path in Path(here).glob("*.py"))
        meant = difflib.get_close_matches(module, local, n=1, cutoff=0.5)
        hint = f"Did you mean {meant[0]}?" if meant else ""
        raise BadInput(f"task {task}: no module {module} is installed, and no {module}.py is here", hint=hint) from None
    except (Exception, SystemExit) as error:  # whatever the user's file raises at import
        raise refused(task, error, f"while importing {module}") from error


def _registered_by(env_id: str, module: str) -> bool:
    entry = gymnasium.registry[env_id].entry_point
    origin = entry if isinstance(entry, str) else getattr(entry, "__module__", "")
    return origin.split(":")[0].split(".")[0] == module.split(".")[0]


class GymSingle(AdapterEnv):
    """A Gymnasium env as an `AdapterEnv`.

    Args:
      env: as made by `gymnasium.make`.
      task: the name for ``--task``.
      cameras, image_size: see `build`.
    """

    def __init__(self, env: gymnasium.Env, task: str, cameras: Sequence[str] = (), image_size: int = 84) -> None:
        self._env = env
        self._map = FeatureMap(env.observation_space, task)
        seen = [key[len("images.") :] for key in self._map.specs if key.startswith("images.")]
        wanted = [camera for camera in cameras if camera not in seen]
        if wanted not in ([], [RENDER]):
            raise BadInput(f"camera of {task}", got=wanted[0], available=(*seen, RENDER))
        self._size = image_size = image_size if wanted else 0
        if image_size and env.render_mode != "rgb_array":
            raise BadInput(f"camera of {task}", got=f"render mode {env.render_mode}", expected="one of rgb_array")
        camera = {f"images.{RENDER}": Spec((image_size, image_size, 3), "uint8")} if image_size else {}
        self._low, self._high = _bounds(env.action_space, task)
        self.render_mode = env.render_mode
        hz, limit = _control_hz(env), _step_limit(env)
        assumed = (
            () if hz else (f"no control rate is said: {DEFAULT_HZ:g} Hz assumed",),
            () if limit else ("no max_episode_steps: its episodes last until it ends them",),
        )
        facts = Facts(
            observation={**self._map.specs, **camera},
            action=len(self._low),
            control_hz=hz or DEFAULT_HZ,
            task=task,
            prompt=_prompt(env, task),
            max_episode_steps=limit,
            continuing=_continuing(env),
            notes=(*self._map.notes, *assumed[0], *assumed[1]),
        )
        super().__init__(facts)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Features, dict]:
        self._steps = 0
        observation, info = self._env.reset(seed=seed, options=options)
        return self._features(observation), info

    def step(self, action: NDArray[np.float32]) -> tuple[Features, float, bool, bool, dict]:
        """`action` (Da,) in [-1, 1]."""
        # a_env = low + (a + 1) / 2 (high − low)
        scaled = self._low + 0.5 * (np.asarray(action, np.float64) + 1.0) * (self._high - self._low)
        space = self._env.action_space
        observation, reward, terminated, truncated, info = self._env.step(
            np.clip(scaled, self._low, self._high).astype(space.dtype)
        )
        self._steps += 1
        limit = self.facts.max_episode_steps
        truncated = bool(truncated) or (0 < limit <= self._steps and not terminated)
        return self._features(observation), float(reward), bool(terminated), truncated, info

    def _features(self, observation: Any) -> Features:
        features = self._map(observation)
        if self._size:
            picture = np.asarray(self.render())
            if picture.dtype != np.uint8 or picture.ndim != 3:
                raise RobolearnError(f"it draws {picture.dtype} {picture.shape}, expected uint8 (H, W, 3)")
            features[f"images.{RENDER}"] = square(picture, self._size)
        return features

    def render(self) -> Any:
        """A picture, where the env draws ``rgb_array``."""
        return self._env.render() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Close the env."""
        self._env.close()


def square(picture: NDArray[np.uint8], edge: int) -> NDArray[np.uint8]:
    """(edge, edge, 3): the middle of `picture` (H, W, 3), each pixel the mean of the area that it covers."""
    height, width = picture.shape[:2]
    cut = min(height, width)
    top, left = (height - cut) // 2, (width - cut) // 2
    middle = picture[top : top + cut, left : left + cut, :3]
    if cut == edge:
        return np.ascontiguousarray(middle)
    share = _shares(cut, edge)
    rows = np.tensordot(share, middle.astype(np.float32), axes=1)  # (edge, cut, 3)
    return np.rint(np.einsum("ij,kjc->kic", share, rows, optimize=True)).astype(np.uint8)


@functools.cache
def _shares(cut: int, edge: int) -> NDArray[np.float32]:
    """(edge, cut): the share of each of `cut` pixels in each of `edge`, whose sum is 1; the nearest, to enlarge."""
    if edge > cut:
        return np.eye(cut, dtype=np.float32)[np.arange(edge) * cut // edge]
    begin = np.arange(edge)[:, None] * (cut / edge)
    pixel = np.arange(cut)[None, :]
    inside = np.minimum(pixel + 1, begin + cut / edge) - np.maximum(pixel, begin)
    return (np.clip(inside, 0, None) * (edge / cut)).astype(np.float32)


def _bounds(space: gymnasium.Space, task: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
        raise BadInput(f"action space of {task}", got=space, expected="a Box of shape (Da,): continuous actions")
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise BadInput(
            f"action space of {task}",
            got=space,
            expected="finite bounds",
            hint="Wrap it in gymnasium.wrappers.RescaleAction or give the Box finite low and high",
        )
    return low, high


def _control_hz(env: gymnasium.Env) -> float:
    """Its rate [Hz], 0 where it does not say one."""
    fps = (env.metadata or {}).get("render_fps")
    if fps:
        return float(fps)
    dt = getattr(env.unwrapped, "dt", None)
    return float(1.0 / dt) if isinstance(dt, (int, float)) and dt > 0 else 0.0


def _step_limit(env: gymnasium.Env) -> int:
    """Its number of steps, 0 where it does not say one."""
    limit = env.spec.max_episode_steps if env.spec is not None else None
    for name in ("max_episode_steps", "_max_episode_steps", "max_path_length", "horizon"):
        limit = limit or getattr(env.unwrapped, name, None)
    return int(limit) if isinstance(limit, (int, np.integer)) and limit >= 1 else 0


def _continuing(env: gymnasium.Env) -> bool:
    declared = getattr(env.unwrapped, "continuing", None)
    if isinstance(declared, bool):
        return declared
    module = type(env.unwrapped).__module__
    name = env.spec.name if env.spec is not None else ""
    return module.startswith("gymnasium.envs.") and name in CONTINUING


def _prompt(env: gymnasium.Env, task: str) -> str:
    prompt = getattr(env.unwrapped, "prompt", None)
    return prompt if isinstance(prompt, str) else task.rsplit(":", 1)[-1].rsplit("-v", 1)[0]
