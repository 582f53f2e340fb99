"""The success classifier as a `RewardModel` (SERL, Luo et al., 2024): is the task done in this frame?

    p_t = σ(f(o_t) / T)        T: the temperature that makes p as sure as it is right, on episodes kept from training

Training sees as many frames that are done as others, so that p is for even odds. The reward is 1 where the task is
first called done (p ≥ ½), and nothing else: a classifier says nothing of the way there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from torch import Tensor, nn

from robolearn.core import Score, Window
from robolearn.rewards.networks import CHANNELS, DONE, STRIDE, PictureModel, sizes_of, squeezed
from robolearn.rewards.settings import ClassifierConfig
from robolearn.rewards.shaping import shaped_rewards


class SuccessClassifier(PictureModel):
    """See the module.

    Attributes:
      config: of its training.
      temperature: (1,) T.
    """

    format = "robolearn.success_classifier"
    sees_images, needs_prompt, is_privileged = True, False, False
    frame_by_frame = True
    temperature: Tensor

    def __init__(self, config: ClassifierConfig, pictures: Mapping[str, tuple[int, int]]) -> None:
        super().__init__(config.picture, pictures)
        self.config = config
        cells, count = (config.picture // STRIDE) ** 2, len(self.cameras)
        self.head = nn.ModuleDict(
            {
                "squeeze": nn.ModuleList(nn.Conv2d(CHANNELS, config.channels, 1) for _ in range(count)),
                "see": nn.Sequential(
                    nn.Dropout(config.dropout),
                    nn.Linear(count * config.channels * cells, config.width),
                    nn.LayerNorm(config.width),
                    nn.SiLU(),
                    nn.Linear(config.width, 1),
                ),
            }
        )
        self.register_buffer("temperature", torch.ones(1))

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> SuccessClassifier:
        """The classifier that a checkpoint's config.json describes, without its weights."""
        return cls(TypeAdapter(ClassifierConfig).validate_python(stored["settings"]), sizes_of(stored))

    def facts(self) -> dict[str, Any]:
        """For config.json."""
        return {"temperature": float(self.temperature)}

    def log_odds(self, maps: Tensor) -> Tensor:
        """(B, C, 112, m, m) → (B,) f, without the temperature."""
        squeeze, see = self.head["squeeze"], self.head["see"]
        assert isinstance(squeeze, nn.ModuleList)
        return see(squeezed(squeeze, maps))[:, 0]

    @torch.no_grad()
    def probability(self, maps: Tensor) -> NDArray[np.float32]:
        """(B,) p of frames."""
        self.eval()
        odds = [self.log_odds(part.to(self.temperature.device)) for part in maps.split(256)]
        return torch.sigmoid(torch.cat(odds) / self.temperature).cpu().numpy().astype(np.float32)

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        """See `robolearn.core.RewardModel`; the progress is p. Raises `BadInput` where a window does not fit."""
        return [self._score(window) for window in windows]

    def _score(self, window: Window) -> Score:
        p = self.probability(self.encoder.encode(self.seen(window)))[-len(window) :]
        done = p >= DONE
        return Score(p, shaped_rewards(p, done, kind="none"), done, np.where(done, p, 1.0 - p).astype(np.float32))
