"""ResNet-18 (He et al. 2016, "Deep Residual Learning") with group norm in the place of batch norm.

As Diffusion Policy has it (Chi et al. 2023, section 4): batch norm's running statistics and the moving average of the
weights do not go together, and groups need no statistics. Without the head: pictures → the map of the last stage.
Defined here and not by torchvision, which is no dependency of a policy: its wheels do not go with every build of torch.
"""

from __future__ import annotations

from torch import Tensor, nn

CHANNELS = 512  # of the map
PER_GROUP = 16  # channels that are normalised together
STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # channels, stride of the first block


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
        for out, stride in STAGES:
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
