"""Robometer (Liang et al. 2026): progress and success of every frame, in one pass over the episode.

    text, (picture_i, <|prog_token|>) for each frame i    a causal model: the token sees the frames up to its own
    h_i     = last hidden state at the i-th <|prog_token|>
    p_i     = Σ_b softmax(progress_head(h_i))_b · b / (B − 1)          B bins; one bin: sigmoid
    done_i  = sigmoid(success_head(h_i))
    head    = Linear(h, h/2), LayerNorm, GELU, Dropout, Linear

The backbone is a Qwen3-VL without its language head, its vocabulary longer by five tokens, in this order. Weights of
the authors (``model.language_model.…``) and of LeRobot (``model.model.language_model.…``, config under ``vlm_config``)
are both read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from policies.networks.libraries import CONFIG
from robolearn.core import BadInput
from robolearn.io.json_files import read_json
from robolearn.rewards.vla.critic import Question, VisionLanguageCritic
from robolearn.rewards.vla.frames import FrameScores, SampledFrames
from robolearn.rewards.vla.loading import float_type, library, load_model, load_processor, model_folder, read_tensors
from robolearn.rewards.vla.settings import RobometerReward

TOKENS = ("<|split_token|>", "<|reward_token|>", "<|pref_token|>", "<|sim_token|>", "<|prog_token|>")
PROGRESS = TOKENS[-1]
HEADS = ("progress_head", "success_head")
UNUSED = (*HEADS, "preference_head", "similarity_head", "frame_pool_attn", "lm_head", "model.lm_head")
LEAST, MOST = 4, 16384  # cells of a picture, of patch · merge pixels a side


def head(hidden: int, outputs: int) -> nn.Sequential:
    """(…, hidden) → (…, outputs); dropout is off where a model is only read."""
    return nn.Sequential(
        nn.Linear(hidden, hidden // 2), nn.LayerNorm(hidden // 2), nn.GELU(), nn.Dropout(0.1),
        nn.Linear(hidden // 2, outputs),
    )  # fmt: skip


def expectation(logits: Tensor) -> Tensor:
    """(…, B) logits of bins evenly spaced over [0, 1] → (…) their mean; one bin is the logit of the value itself."""
    if logits.shape[-1] == 1:
        return torch.sigmoid(logits[..., 0].float())
    return torch.softmax(logits.float(), -1) @ torch.linspace(0.0, 1.0, logits.shape[-1], device=logits.device)


def fitted(picture: NDArray[np.uint8], cell: int) -> Image.Image:
    """`picture` (H, W, 3) with sides of whole cells [px], of `LEAST` to `MOST` cells, its shape kept if possible."""
    sides = np.array([picture.shape[1], picture.shape[0]]) / cell
    cells = np.maximum(1, np.round(sides))
    if not LEAST <= cells.prod() <= MOST:
        area, rounding = (LEAST, np.ceil) if cells.prod() < LEAST else (MOST, np.floor)
        cells = np.maximum(1, rounding(sides * np.sqrt(area / sides.prod())))
    width, height = (cells * cell).astype(int).tolist()
    return Image.fromarray(picture).resize((width, height), Image.Resampling.BICUBIC)


class Robometer(VisionLanguageCritic):
    """See the module."""

    config: RobometerReward
    numbered = True
    defaults = {  # noqa: RUF012
        "progress": "A robot works on this task: {task}. Pictures of its attempt follow in order. After each of them, "
        "give the progress as a number from 0, where it began, to 1, where the task is done; 0 for another task."
    }

    def read(self, clips: Sequence[SampledFrames], tasks: Sequence[str]) -> list[FrameScores]:
        """See `VisionLanguageCritic.read`."""
        questions = [
            Question(self.say("progress", task=task) + f"<image>{PROGRESS}" * len(clip), self._pictures(clip))
            for clip, task in zip(clips, tasks, strict=True)
        ]
        outputs = [frames for rows in self.batches(questions) for frames in self.outputs(rows)]
        found = []
        for clip, (progress, success) in zip(clips, outputs, strict=True):
            values = expectation(progress).clamp(0.0, 1.0), torch.sigmoid(success.float())[:, 0]
            found.append(FrameScores(clip.at, *(value.cpu().double().numpy() for value in values)))
        return found

    def outputs(self, questions: Sequence[Question]) -> list[tuple[Tensor, Tensor]]:
        """Logits of progress (n, B) and of success (n, 1) at the frames of each row."""
        inputs = self.encode(questions, side="right", do_resize=False)
        hidden = self.model(**inputs).last_hidden_state  # (rows, tokens, h)
        places = inputs["input_ids"] == self.token
        return [
            (self.heads["progress_head"](frames), self.heads["success_head"](frames))
            for frames in (row[place] for row, place in zip(hidden, places, strict=True))
        ]

    def _pictures(self, clip: SampledFrames) -> list[Image.Image]:
        pictures = self.processor.image_processor
        return [fitted(picture, pictures.patch_size * pictures.merge_size) for picture in clip.pictures]

    def _folders(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys((self.folder, self.words)))

    def _load_processor(self) -> Any:
        facts = read_json(self.folder / CONFIG, what=f"{self.what} {self.folder}")
        own = (self.folder / "tokenizer_config.json").is_file()
        source = self.config.processor or ("" if own else str(facts.get("base_model_id", "")))
        if not own and not source:
            raise BadInput(f"{self.what} {self.folder}", got="no tokenizer", expected="one, or the option processor=")
        self.words = model_folder(source, self.what) if source else self.folder
        processor = load_processor(self.words, self.what)
        known = processor.tokenizer.get_vocab()
        processor.tokenizer.add_tokens([token for token in TOKENS if token not in known], special_tokens=True)
        return processor

    def _load_model(self) -> Any:
        facts = read_json(self.folder / CONFIG, what=f"{self.what} {self.folder}")
        more: dict[str, Any] = {"key_mapping": {r"^model\.model\.": "model."}}
        if isinstance(wrapped := facts.get("vlm_config"), dict):
            known = library(self.what).CONFIG_MAPPING
            if (kind := wrapped.get("model_type")) not in known:
                raise BadInput(f"{self.what} {self.folder}: model_type", got=kind, available=("qwen3_vl",))
            more["config"] = known[kind].from_dict(wrapped)
        dtype = self.config.dtype if self.config.dtype != "auto" else str(facts.get("torch_dtype", "auto"))
        model = load_model(self.folder, self.what, {"qwen3_vl": "Qwen3VLModel"}, device=self.device, dtype=dtype,
                           unused=UNUSED, **more)  # fmt: skip
        rows, words = len(model.get_input_embeddings().weight), self.processor.tokenizer
        self.token = words.convert_tokens_to_ids(PROGRESS)
        if len(words) > rows:
            got = f"{rows} rows for {len(words)} tokens"
            raise BadInput(f"{self.what} {self.folder}: vocabulary", got=got, expected=f"a row for {PROGRESS}, too")
        self.heads = self._load_heads(model)
        return model

    def _load_heads(self, model: Any) -> nn.ModuleDict:
        found, hidden = read_tensors(self.folder, HEADS), model.config.text_config.hidden_size
        last = found.get("progress_head.4.weight")
        heads = nn.ModuleDict(
            {"progress_head": head(hidden, 1 if last is None else len(last)), "success_head": head(hidden, 1)}
        )
        try:
            heads.load_state_dict(found)
        except RuntimeError as error:
            got = str(error).splitlines()[-1].strip()[:160]
            raise BadInput(
                f"{self.what} {self.folder}", got=got, expected=f"the weights of {' and '.join(HEADS)}"
            ) from None
        return heads.to(device=self.device, dtype=float_type(model)).eval().requires_grad_(False)
