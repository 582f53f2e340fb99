"""Videos of chosen episodes: H.264 in MP4, small enough to be put into a report.

Nothing is drawn while an evaluation runs. Afterwards the worlds of the chosen episodes run again, alone and from
the same seed: what happens in a world depends on (seed, world) and on the policy's noise, which is drawn for all
the worlds at every call, so the episodes repeat themselves while the other worlds rest.
"""

from __future__ import annotations

import colorsys
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from policies.policy import ChunkPolicy
from robolearn.core import BadInput, Env, Observation, Policy
from robolearn.core.specs import is_image
from robolearn.eval.evaluation import Evaluation, evaluate
from robolearn.eval.verdict import number
from robolearn.io.atomic import replacing

Draw = Callable[[NDArray[np.uint8], Observation, int], NDArray[np.uint8]]
"""(scene (H, W, 3), observation of all worlds, the world) → the picture that goes into the video."""


def sight_of(policy: Policy) -> Draw | None:
    """Draws what `policy` sees beside the scene; None for one that looks through no camera."""
    cameras = [key for key, spec in policy.interface.observation.items() if is_image(spec)]
    if not cameras:
        return None

    def draw(scene: NDArray[np.uint8], observation: Observation, world: int) -> NDArray[np.uint8]:
        height = scene.shape[0] // len(cameras)
        looked = _keypoints(policy, observation, world)
        pictures = [_enlarged(observation[key][world], height, looked.get(key)) for key in cameras]
        column = np.concatenate(pictures)
        rest = np.zeros((scene.shape[0] - len(column), height, 3), np.uint8)
        return np.concatenate([scene, np.concatenate([column, rest])], axis=1)

    return draw


@torch.inference_mode()
def _keypoints(policy: Policy, observation: Observation, world: int) -> dict[str, NDArray[np.float32]]:
    """Picture feature → (C, 2) rows and columns in [-1, 1]."""
    if not isinstance(policy, ChunkPolicy) or policy.device.type == "meta":  # of an ONNX file, which has no such output
        return {}
    needed = policy.interface.observation
    rows = {key: torch.from_numpy(np.array(observation[key][world : world + 1])) for key in needed}
    seen = policy.normalizer.observation({key: value.to(policy.device) for key, value in rows.items()})
    if policy.net.config.observe > 1:
        seen = {key: value[:, None].repeat_interleave(policy.net.config.observe, 1) for key, value in seen.items()}
    found = policy.net.encoder.keypoints(seen)
    return {key: torch.stack((y[0], x[0]), dim=1).cpu().numpy() for key, (y, x) in found.items()}


def _enlarged(picture: NDArray[np.uint8], edge: int, keypoints: NDArray[np.float32] | None) -> NDArray[np.uint8]:
    large = np.asarray(cv2.resize(picture, (edge, edge), interpolation=cv2.INTER_NEAREST), np.uint8)
    points = np.zeros((0, 2), np.float32) if keypoints is None else keypoints
    colours = [
        [round(255 * c) for c in colorsys.hsv_to_rgb(0.33 * i / len(points), 1.0, 1.0)] for i in range(len(points))
    ]
    for (y, x), colour in zip(points, colours, strict=True):
        centre = round(0.5 * (float(x) + 1) * (edge - 1)), round(0.5 * (float(y) + 1) * (edge - 1))
        cv2.circle(large, centre, max(edge // 60, 1), colour, -1, cv2.LINE_AA)
    if colours:
        _name_keypoints(large, colours)
    return large


def _name_keypoints(picture: NDArray[np.uint8], colours: Sequence[Sequence[int]]) -> None:
    """The number of each keypoint in its colour along the lower edge; of many those that there is room for."""
    edge, scale = len(picture), len(picture) / 600
    font, word, last = cv2.FONT_HERSHEY_SIMPLEX, "keypoint ", str(len(colours) - 1)
    (begin, _), _ = cv2.getTextSize(word, font, scale, 1)
    (width, height), below = cv2.getTextSize(f"{last} ", font, scale, 1)
    every = -(-len(colours) * width // (edge - begin))
    cv2.rectangle(picture, (0, edge - height - below), (edge, edge), (40, 40, 40), cv2.FILLED)
    for text, x, colour in (
        (word, 0, (255, 255, 255)),
        *((str(i), begin + i // every * width, colours[i]) for i in range(0, len(colours), every)),
    ):
        cv2.putText(picture, text, (x, edge - below), font, scale, colour, 1, cv2.LINE_AA)


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Video:
    """A video file and what it shows."""

    caption: str
    path: Path


@dataclass(frozen=True)
class Choice:
    """One row of an evaluation, and why it was chosen.

    Attributes:
      row: index into the arrays of the `Evaluation`.
      name: ``"worst"`` or ``"best"``.
      reason: in words.
    """

    row: int
    name: str
    reason: str


def write_video(
    path: Path, frames: Iterable[NDArray[np.uint8]], *, fps: float, crf: int = 26, preset: str = "slow"
) -> int:
    """Write HWC uint8 `frames` of one size as H.264 (yuv420p); returns how many there were.

    `preset` is the encoder's: a faster one makes larger files. Odd sizes, which the format does not know, are padded by
    repeating the last row or column. The file appears under its name only when it is whole. Raises `BadInput`: no
    frames, or frames that are not (H, W, 3) uint8 of one size.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    rate = Fraction(fps).limit_denominator(1000)
    count, shape = 0, None
    options = {"movflags": "+faststart"}
    with replacing(path) as part, av.open(str(part), "w", format="mp4", options=options) as container:
        stream = container.add_stream("libx264", rate=rate, options={"crf": str(crf), "preset": preset})
        stream.pix_fmt = "yuv420p"
        for frame in frames:
            shape = shape or frame.shape
            if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape != shape or frame.shape[2] != 3:
                raise BadInput("video frame", got=f"{frame.shape} {frame.dtype}", expected=f"{shape}, RGB, uint8")
            even = np.pad(frame, ((0, frame.shape[0] % 2), (0, frame.shape[1] % 2), (0, 0)), mode="edge")
            if count == 0:
                stream.height, stream.width = even.shape[:2]
            container.mux(stream.encode(av.VideoFrame.from_ndarray(even, format="rgb24")))
            count += 1
        if count == 0:
            raise BadInput("video", got="no frames", expected="at least one")
        container.mux(stream.encode())
    return count


def choose_episodes(evaluation: Evaluation) -> list[Choice]:
    """The worst episode (a failure, else the slowest success) and the best (the quickest success).

    Where the world reports no success: the lowest and the highest return. Among equals the one with the lowest index
    within its world, since it is the soonest to be run again.
    """
    succeeded, steps, returns = evaluation.succeeded, evaluation.steps, evaluation.returns
    rows = np.arange(evaluation.episodes)

    def first(rows: NDArray[np.intp], key: NDArray[np.float64] | NDArray[np.int64]) -> int:
        # lexsort: the last key counts most
        return int(rows[np.lexsort((evaluation.world[rows], evaluation.index[rows], key[rows]))[0]])

    if not evaluation.success_reported:
        return [
            Choice(first(rows, returns), "worst", "lowest return"),
            Choice(first(rows, -returns), "best", "highest return"),
        ]
    if succeeded.all():
        worst = Choice(first(rows, -steps), "worst", "slowest success")
    else:
        worst = Choice(first(rows[~succeeded], np.zeros_like(steps)), "worst", "failed")
    if not succeeded.any():
        return [worst]
    return [worst, Choice(first(rows[succeeded], steps), "best", "quickest success")]


def record_episodes(
    env: Env,
    policy: Policy,
    evaluation: Evaluation,
    folder: Path,
    *,
    choices: Sequence[Choice] | None = None,
    title: str = "",
) -> list[Video]:
    """Run chosen episodes of `evaluation` again and write ``<folder>/<name>.mp4`` for each.

    Args:
      env: the worlds of the evaluation; ``env.frame(world)`` draws.
      policy: the policy of the evaluation.
      evaluation: the episodes to choose from, and how they ended.
      folder: where the videos go.
      choices: which; those of `choose_episodes` by default.
      title: begins every caption, e.g. ``"imitation"``.

    Returns:
      The videos, at the speed of the arm, with the cameras of a visuomotor policy beside the scene; an empty list, with
      a warning in the log, where the world cannot be drawn.

    Raises:
      BadInput: `env` has another number of worlds than the evaluation.
    """
    if env.num_envs != evaluation.num_envs:
        raise BadInput("worlds to record", got=env.num_envs, expected=f"{evaluation.num_envs}, as in the evaluation")
    choices = choose_episodes(evaluation) if choices is None else choices
    draw, fps = sight_of(policy), evaluation.control_hz
    rows = np.array([choice.row for choice in choices], dtype=np.int64)
    wanted = {(int(evaluation.world[row]), int(evaluation.index[row])): row for row in rows}
    if not wanted:
        return []
    env.reset(seed=evaluation.seed)
    if env.frame(next(iter(wanted))[0]) is None:
        log.warning("task %r cannot be drawn here: no videos", env.task)
        return []

    quota = np.zeros(env.num_envs, np.int64)
    np.maximum.at(quota, evaluation.world[rows], evaluation.index[rows] + 1)
    frames: dict[int, list[NDArray[np.uint8]]] = {int(row): [] for row in rows}

    def watch(worlds: NDArray[np.intp], index: NDArray[np.int64], observation: Observation) -> None:
        # Before each step: after the last one the world already shows the start of its next episode.
        for episode in zip(worlds.tolist(), index.tolist(), strict=True):
            if episode in wanted and (picture := env.frame(episode[0])) is not None:
                frames[int(wanted[episode])].append(
                    np.array(picture) if draw is None else draw(np.array(picture), observation, episode[0])
                )

    again = evaluate(env, policy, quota, evaluation.seed, watch=watch)
    videos = []
    for choice in choices:
        world, index = evaluation.world[choice.row], evaluation.index[choice.row]
        repeat = int(np.flatnonzero((again.world == world) & (again.index == index))[0])
        if any(getattr(evaluation, k)[choice.row] != getattr(again, k)[repeat] for k in ("steps", "succeeded")):
            what = "episode %d of world %d did not repeat itself (%d steps, at first %d): the video shows the repeat"
            log.warning(what, index, world, again.steps[repeat], evaluation.steps[choice.row])
        path = Path(folder) / f"{choice.name}.mp4"
        shown = [written(picture, f"{k / fps:.1f} s") for k, picture in enumerate(frames[choice.row])]
        outcome = _outcome(again, repeat, evaluation.success_reported)
        still = [written(frames[choice.row][-1], outcome)] * round(fps)  # a second to see how it ended
        write_video(path, shown + still, fps=fps)
        videos.append(Video(_caption(title, choice, again, repeat, evaluation.success_reported), path))
    return videos


def written(picture: NDArray[np.uint8], text: str) -> NDArray[np.uint8]:
    """A copy of `picture` (H, W, 3) with `text` in its upper left corner, white on dark."""
    out, scale = np.array(picture), picture.shape[0] / 500
    (width, height), below = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, scale, 1)
    edge = below + 1
    cv2.rectangle(out, (0, 0), (width + 2 * edge, height + 2 * edge), (40, 40, 40), cv2.FILLED)
    at = (edge, height + edge)
    cv2.putText(out, text, at, cv2.FONT_HERSHEY_SIMPLEX, scale, (255, 255, 255), 1, cv2.LINE_AA)
    return out


def _outcome(again: Evaluation, row: int, success_reported: bool) -> str:
    outcome = "solved" if again.succeeded[row] else "not solved"
    if not success_reported:
        outcome = f"return {number(float(again.returns[row]))}"
    return f"{outcome} in {again.cycle_time_s[row]:.1f} s"


def _caption(title: str, choice: Choice, again: Evaluation, row: int, success_reported: bool) -> str:
    head = f"{title}, {choice.name}" if title else choice.name
    where = f"world {again.world[row]}, episode {again.index[row]}"
    return f"{head}: {choice.reason} ({where}; {_outcome(again, row, success_reported)})"
