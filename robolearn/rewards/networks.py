"""The networks of the progress critic: a frozen encoder of pictures, and small heads over pairs of frames and words.

z_v = Linear(Conv1×1(map_v) for each camera)      φ: a picture's map, 112 channels, a pixel of it for 16 of the picture
g   = W w                                          w: the sentence's vector
h   = MLP(z_i, z_t, z_t − z_i, g)
c   = tanh(u · h),   log-odds of done = MLP(z_t, z_t − z_i, g),   by the hand = MLP((x_t − μ)/σ, g)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from policies.networks.augment import jitter_colours
from policies.networks.backbones import CENTRE, SCALE, EfficientNetLite0, pretrained_weights
from robolearn.core import BadInput, Interface, Window
from robolearn.rewards.settings import HAND, CriticConfig

BLOCKS, CHANNELS, STRIDE = 11, 112, 16  # of EfficientNet-Lite0, up to the last map that still says where
DONE = 0.5  # probability from which the task is called done
WORDS = 384  # components of a sentence
HAND_UNITS = 64
FRAMES = 64  # that are encoded together
# Of the views that are not the picture itself: largest turn [rad], zoom, and shift as shares of the edge; colours.
TURN, ZOOM, SHIFT, JITTER = 0.08, 0.08, 0.06, 0.3


class FrameEncoder(nn.Module):
    """The first blocks of EfficientNet-Lite0, frozen: pictures (B, H, W, 3) uint8 → (B, 112, edge/16, edge/16)."""

    def __init__(self, edge: int) -> None:
        super().__init__()
        whole = EfficientNetLite0()
        self.edge = edge
        self.net = nn.Sequential(whole.stem, *list(whole.blocks)[:BLOCKS])
        self.requires_grad_(False)
        self.eval()

    def load_pretrained(self) -> None:
        """The weights of ImageNet; raises `BadInput` where the extra ``vision`` is not installed."""
        whole = EfficientNetLite0()
        whole.load_state_dict(pretrained_weights())
        self.net.load_state_dict(nn.Sequential(whole.stem, *list(whole.blocks)[:BLOCKS]).state_dict())

    def train(self, mode: bool = True) -> FrameEncoder:
        """Batch norm stays as it was learned."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, pictures: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """See the class; with `generator` as by one camera that stands elsewhere, in one other light."""
        x = pictures.permute(0, 3, 1, 2).float() / 255.0
        if tuple(x.shape[-2:]) != (self.edge, self.edge):
            x = F.interpolate(x, (self.edge, self.edge), mode="bilinear", antialias=True)
        if generator is not None:
            x = jitter_colours(elsewhere(x, generator)[None], JITTER, generator)[0]
        centre, scale = (torch.tensor(v, device=x.device).view(3, 1, 1) for v in (CENTRE, SCALE))
        return self.net((x - centre) / scale)

    def encode(self, cameras: Sequence[NDArray[np.uint8]], generator: torch.Generator | None = None) -> Tensor:
        """N frames of C cameras, each (N, H, W, 3), → (N, C, 112, m, m) float16; in blocks, to spare memory. With
        `generator` all frames of a camera are changed alike: what moves is what moved."""
        device = next(self.net.parameters()).device
        found, drawn = [], None if generator is None else generator.get_state()
        for first in range(0, len(cameras[0]), FRAMES):
            parts = [torch.from_numpy(np.array(frames[first : first + FRAMES])) for frames in cameras]
            # A block that is not full repeats its last frame: the bits of a frame do not depend on what stands beside.
            lacking = FRAMES - len(parts[0]) if len(cameras[0]) > FRAMES else 0
            padded = [torch.cat([p, p[-1:].expand(lacking, *p.shape[1:])]) if lacking else p for p in parts]
            if generator is not None and drawn is not None:
                generator.set_state(drawn)
            maps = [self(p.to(device), generator)[: len(parts[0])] for p in padded]
            found.append(torch.stack(maps, 1).half().cpu())
        return torch.cat(found)


def elsewhere(pictures: Tensor, generator: torch.Generator) -> Tensor:
    """(T, 3, H, W) as by one camera that is turned, nearer or further, and shifted; edges are repeated."""
    most = torch.tensor([TURN, ZOOM, 2 * SHIFT, 2 * SHIFT], device=pictures.device)  # from edge to edge it is 2
    turn, zoom, x, y = most * (2 * torch.rand(4, generator=generator, device=pictures.device) - 1)
    c, s = (1 + zoom) * torch.cos(turn), (1 + zoom) * torch.sin(turn)
    where = torch.stack([torch.stack([c, -s, x]), torch.stack([s, c, y])]).expand(len(pictures), 2, 3)
    grid = F.affine_grid(where, list(pictures.shape), align_corners=False)
    return F.grid_sample(pictures, grid, mode="bilinear", padding_mode="border", align_corners=False)


def sizes_of(stored: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Camera → (H, W) [px], of a checkpoint's config.json."""
    return {str(camera): (int(size[0]), int(size[1])) for camera, size in stored["pictures"].items()}


def squeezed(squeeze: nn.ModuleList, maps: Tensor) -> Tensor:
    """(B, C, 112, m, m) → (B, C · channels · m²), each camera by its own layer of `squeeze`."""
    parts = [layer(maps[:, c].float()) for c, layer in enumerate(squeeze)]
    return F.silu(torch.cat(parts, 1).flatten(1))


class PictureModel(nn.Module):
    """A model that looks at the pictures of cameras through the encoder.

    Attributes:
      pictures: camera → (H, W) of the pictures of training [px]; `cameras` are their names, in order.
    """

    encoder: FrameEncoder  # there is none where there is no camera

    def __init__(self, edge: int, pictures: Mapping[str, tuple[int, int]]) -> None:
        super().__init__()
        self.pictures, self.cameras = dict(pictures), tuple(pictures)
        if pictures:
            self.encoder = FrameEncoder(edge)

    def check(self, interface: Interface) -> None:
        """Raise `BadInput` where `interface` lacks a camera, or one has pictures of another size."""
        for camera in self.cameras:
            spec = interface.observation.get(camera)
            self._fits(camera, None if spec is None else spec.shape, interface.observation)

    @property
    def reads(self) -> tuple[str, ...]:
        """The features that it reads."""
        return self.cameras

    def seen(self, window: Window) -> list[NDArray]:
        """The pictures (T, H, W, 3) of each camera; raises `BadInput` as `check` does."""
        found = [window.observation.get(camera) for camera in self.cameras]
        for camera, frames in zip(self.cameras, found, strict=True):
            self._fits(camera, None if frames is None else frames.shape[1:], window.observation)
        return [frames for frames in found if frames is not None]

    def _fits(self, camera: str, shape: tuple[int, ...] | None, available: Iterable[str]) -> None:
        size = self.pictures[camera]
        if shape is None or tuple(shape[:2]) != size:
            got = "no such camera" if shape is None else f"{shape[0]} x {shape[1]} px"
            expected = f"{size[0]} x {size[1]} px, as in its training"
            raise BadInput(f"critic: {camera}", got=got, expected=expected, available=available)


class HandNet(nn.Module):
    """Log-odds of done by the hand alone: its place and its opening, which pictures show to a centimetre or two."""

    centre: Tensor
    scale: Tensor

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(len(HAND)))
        self.register_buffer("scale", torch.ones(len(HAND)))
        self.read = nn.Sequential(nn.Linear(WORDS, HAND_UNITS // 2), nn.LayerNorm(HAND_UNITS // 2), nn.SiLU())
        self.done = nn.Sequential(
            nn.Linear(len(HAND) + HAND_UNITS // 2, HAND_UNITS), nn.LayerNorm(HAND_UNITS), nn.SiLU(),
            nn.Dropout(dropout), nn.Linear(HAND_UNITS, HAND_UNITS), nn.SiLU(), nn.Linear(HAND_UNITS, 1),
        )  # fmt: skip

    def forward(self, hand: Tensor, words: Tensor) -> Tensor:
        """Hands (B, 4) [m] and sentences (B, 384) → (B,)."""
        return self.done(torch.cat([(hand - self.centre) / self.scale, self.read(words)], 1))[:, 0]


class ProgressNet(nn.Module):
    """One member of the ensemble; see the module.

    Args:
      cameras: C.
      hand: the arm's own state is asked, too.
    """

    def __init__(self, config: CriticConfig, cameras: int, *, hand: bool = False) -> None:
        super().__init__()
        cells, width = (config.picture // STRIDE) ** 2, config.width
        self.squeeze = nn.ModuleList(nn.Conv2d(CHANNELS, config.channels, 1) for _ in range(cameras))
        self.dropout = nn.Dropout(config.dropout)
        self.see = nn.Sequential(nn.Linear(cameras * config.channels * cells, width), nn.LayerNorm(width), nn.SiLU())
        self.read = nn.Sequential(nn.Linear(WORDS, width // 2), nn.LayerNorm(width // 2), nn.SiLU())
        both = 3 * width + width // 2
        self.progress = nn.Sequential(nn.Linear(both, width), nn.SiLU(), nn.Linear(width, 1))
        self.done = nn.Sequential(nn.Linear(both - width, width), nn.SiLU(), nn.Linear(width, 1))
        self.hand = HandNet(config.dropout) if hand else None

    def frames(self, maps: Tensor) -> Tensor:
        """(B, C, 112, m, m) → (B, width)."""
        return self.see(self.dropout(squeezed(self.squeeze, maps)))

    def compare(self, first: Tensor, second: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs of `frames` for two frames (B, width), and sentences (B, 384) → c (B,), log-odds of done (B,)."""
        change, said = second - first, self.read(words)
        c = torch.tanh(self.progress(torch.cat([first, second, change, said], 1)))[:, 0]
        return c, self.done(torch.cat([second, change, said], 1))[:, 0]

    def forward(self, first: Tensor, second: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        """Maps of two frames and sentences → c, log-odds of done by pictures."""
        return self.compare(self.frames(first), self.frames(second), words)
