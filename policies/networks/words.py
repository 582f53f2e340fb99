"""The task in words: sentences → vectors of length 1, by a pretrained sentence encoder.

    v = Σ_t m_t h_t / Σ_t m_t,  v ← v / ‖v‖           h_t: last hidden states of the tokens, m_t: those of the sentence

all-MiniLM-L6-v2 (Reimers and Gurevych 2019; Wang et al. 2020), 384 components, whose weights a package of the registry
carries: extra ``words``.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load
from torch.nn import functional as F

from policies.networks.libraries import import_vision
from robolearn.core import BadInput
from robolearn.core.installation import install_command

PACKAGE, ARCHIVE = "all_minilm_l6_v2", "model.zip"
MOST = 64  # sentences at a time


class SentenceEncoder:
    """Sentences → (n, 384) float32; the same sentence gives the same vector whatever stands beside it, up to rounding.
    Raises `BadInput`: a package is not installed."""

    def __init__(self) -> None:
        archive = _archive()
        from tokenizers import Tokenizer

        transformers = import_vision("transformers")

        with zipfile.ZipFile(archive) as files, torch.random.fork_rng(devices=[]):
            self._tokenizer: Any = Tokenizer.from_str(files.read("tokenizer.json").decode())
            net = transformers.BertModel(
                transformers.BertConfig(**json.loads(files.read("config.json"))), add_pooling_layer=False
            )
            weights = load(files.read("model.safetensors"))
        net.load_state_dict({key: weights[key] for key in net.state_dict()})
        self._net = net.eval()
        self._tokenizer.enable_padding()
        self._tokenizer.enable_truncation(256)

    @torch.inference_mode()
    def __call__(self, sentences: Sequence[str]) -> NDArray[np.float32]:
        """(n, 384) of n sentences."""
        found = []
        for first in range(0, len(sentences), MOST):
            encoded = self._tokenizer.encode_batch(list(sentences[first : first + MOST]))
            ids, mask = (torch.tensor([getattr(e, name) for e in encoded]) for name in ("ids", "attention_mask"))
            hidden = self._net(input_ids=ids, attention_mask=mask).last_hidden_state
            weight = mask[..., None].to(hidden.dtype)
            found.append(F.normalize((hidden * weight).sum(1) / weight.sum(1), dim=1))
        return torch.cat(found).numpy()


def _archive() -> Path:
    missing = [name for name in ("transformers", "tokenizers", PACKAGE) if find_spec(name) is None]
    if missing:
        hint = install_command("words")
        raise BadInput("sentence encoder", got=f"no package {missing[0]!r}", expected="the extra words", hint=hint)
    spec = find_spec(PACKAGE)  # not imported: it prints a line
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / ARCHIVE
