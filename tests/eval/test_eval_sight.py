"""What a policy saw and where it looked, beside the scene."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from policies.networks.encoder import SpatialCnn
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import FlowConfig, NetworkConfig
from robolearn.core import ArraySpec, Interface
from robolearn.eval.video import _enlarged, sight_of

PICTURE = ArraySpec((20, 20, 3), "uint8")
INTERFACE = Interface(
    {"proprio": ArraySpec((2,)), "images.front": PICTURE, "images.wrist": PICTURE}, ArraySpec((1,)), 10.0
)


class Bright(nn.Module):
    """In place of convolutions: the picture itself, so that a channel looks at its brightest pixel."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return 1000.0 * image


def looking(interface: Interface) -> ChunkPolicy:
    net = FlowConfig(horizon=1, execute=1, network=NetworkConfig(width=8, depth=1, image_features=4)).build(interface)
    for module in net.modules():
        if isinstance(module, SpatialCnn):
            module.convolutions = Bright()  # type: ignore[assignment]
    return ChunkPolicy(net, Normalizer(interface), interface)


def test_a_keypoint_is_where_a_channel_is_active() -> None:
    cnn = SpatialCnn(3, 4)
    cnn.convolutions = Bright()  # type: ignore[assignment]
    image = torch.zeros(1, 3, 5, 9)
    image[0, 0, 4, 0], image[0, 1, 0, 8], image[0, 2, 2, 4] = 1, 1, 1
    y, x = cnn.keypoints(image)
    assert torch.allclose(y, torch.tensor([[1.0, -1.0, 0.0]]), atol=1e-4)
    assert torch.allclose(x, torch.tensor([[-1.0, 1.0, 0.0]]), atol=1e-4)


def test_cameras_stand_beside_the_scene_with_what_was_looked_at() -> None:
    draw = sight_of(looking(INTERFACE))
    assert draw is not None
    pictures = np.zeros((2, 20, 20, 3), np.uint8)
    pictures[1, 15, 5, 0] = 255  # of world 1 the red channel, 15 rows down and 5 columns in
    observation = {"proprio": np.zeros((2, 2), np.float32), "images.front": pictures, "images.wrist": pictures[::-1]}
    shown = draw(np.full((120, 160, 3), 7, np.uint8), observation, 1)
    assert shown.shape == (120, 160 + 60, 3) and (shown[:, :160] == 7).all()
    front, wrist = shown[:60, 160:], shown[60:, 160:]
    row, column = round(15 / 19 * 59), round(5 / 19 * 59)
    assert front[row, column].tolist() == [255, 0, 0]  # channel 0, red
    near = np.abs(np.stack(np.nonzero(front.any(-1))) - np.array([[row], [column]])).max(0)
    assert (near <= 4).sum() >= 9  # the enlarged pixel and the dot
    middle = wrist[27:33, 27:33]  # of a black picture every channel is everywhere: its mean is the middle
    assert middle.any() and not wrist[:20].any()


def test_the_keypoints_are_named_in_their_colours_along_the_lower_edge() -> None:
    for many in (4, 64):
        points = np.zeros((many, 2), np.float32)  # all in the middle
        shown = _enlarged(np.zeros((20, 20, 3), np.uint8), 240, points).astype(int)
        strip = shown[-14:]
        assert not shown[20:100].any() and not shown[140:-20].any()
        red, green = strip[..., 0] - strip[..., 1], strip[..., 1] - strip[..., 0]
        assert (red > 150).any() and np.argmax((red > 150).any(0)) > 40, "the first is red, behind the word"
        assert (strip.min(-1) > 180).any(), "the word is white"
        if many == 64:
            assert (green > 90).any() and np.argmax((green > 90).any(0)) > np.argmax((red > 150).any(0))
    assert not _enlarged(np.zeros((20, 20, 3), np.uint8), 240, None).any()


def test_who_looks_through_no_camera_has_nothing_beside_the_scene() -> None:
    assert sight_of(looking(Interface({"proprio": ArraySpec((2,))}, ArraySpec((1,)), 10.0))) is None
