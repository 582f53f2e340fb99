"""What a policy saw and where it looked: its cameras beside the scene, with the keypoints of its encoders drawn in.

A keypoint is where a channel of the encoder's spatial softmax is active (Finn et al. 2016); red to green by channel.
"""

from __future__ import annotations

import colorsys
from collections.abc import Callable

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from policies.policy import ChunkPolicy
from robolearn.core import Observation, Policy
from robolearn.core.specs import is_image

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
    large = cv2.resize(picture, (edge, edge), interpolation=cv2.INTER_NEAREST)
    points = np.zeros((0, 2), np.float32) if keypoints is None else keypoints
    for i, (y, x) in enumerate(points):
        colour = [round(255 * c) for c in colorsys.hsv_to_rgb(0.33 * i / len(points), 1.0, 1.0)]
        centre = round(0.5 * (float(x) + 1) * (edge - 1)), round(0.5 * (float(y) + 1) * (edge - 1))
        cv2.circle(large, centre, max(edge // 60, 1), colour, -1, cv2.LINE_AA)
    return np.asarray(large, np.uint8)
