"""Latents of whole videos by a world model, V-JEPA 2 (Assran et al., 2025) through transformers.

    z = mean over all tokens of the encoder's last hidden state        of the frames that the model takes at once

The frames are evenly spaced over the video, the first and the last included; a short one shows some of them twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robolearn.core import BadInput
from robolearn.core.errors import first_line
from robolearn.io.hashes import sha256
from robolearn.rewards.vla.loading import load_model, load_processor, model_folder

KINDS = {"vjepa2": "VJEPA2Model"}  # model_type → class in transformers
KEPT = 1024  # newest latents, of videos that may come again


class WorldModel:
    """See the module.

    Args:
      model: a folder that transformers has saved, or ``owner/name@revision`` of the hub.
      what: named in messages.

    Raises:
      BadInput: no such model, no processor of videos; and what loading raises.
    """

    def __init__(self, model: str, what: str, device: str | torch.device = "cpu") -> None:
        self._what, self._device = what, device
        self.folder: Path = model_folder(model, what)
        self._processor: Any = load_processor(self.folder, what, kind="AutoVideoProcessor", parts=())
        self._model: Any = load_model(self.folder, what, KINDS, device=str(device), dtype="auto")
        self.frames = int(self._model.config.frames_per_clip)
        self._known: dict[str, Tensor] = {}

    @torch.inference_mode()
    def latent(self, video: NDArray[np.uint8]) -> Tensor:
        """(D,) z of a video (T, H, W, 3). Raises `BadInput`: the model does not take it, or makes numbers of it that
        are not finite."""
        shown = np.asarray(video)[np.linspace(0, len(video) - 1, self.frames).round().astype(np.int64)]
        name = sha256(np.ascontiguousarray(shown))
        if name not in self._known:
            self._known[name] = self._encoded(shown)
            if len(self._known) > KEPT:
                del self._known[next(iter(self._known))]
        return self._known[name]

    def _encoded(self, shown: NDArray[np.uint8]) -> Tensor:
        try:
            made = self._processor(
                [torch.from_numpy(shown).permute(0, 3, 1, 2)], do_sample_frames=False, return_tensors="pt"
            )
            tokens = self._model.get_vision_features(made["pixel_values_videos"].to(self._device))
        except (ValueError, RuntimeError, KeyError) as error:  # sizes in its files that do not go together
            got = f"a model that does not take its own processor's videos ({first_line(error)[:160]})"
            raise BadInput(f"{self._what} {self.folder}", got=got, expected="files of one model") from None
        found = tokens[0].float().mean(0).cpu()
        if not torch.isfinite(found).all():
            raise BadInput(f"{self._what} {self.folder}", got="a latent that is not finite", expected="sound weights")
        return found
