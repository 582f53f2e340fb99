"""Where tensors live: the words of ``--device``."""

from __future__ import annotations

import re

from robolearn.core.errors import BadInput


def resolve_device(text: str) -> str:
    """``auto``, ``cpu``, ``cuda`` or ``cuda:<i>`` → a name that torch takes; auto is a GPU where there is one.

    Raises:
      BadInput: another word, or a GPU that is not there.
    """
    if text == "cpu":
        return text
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if text == "auto":
        return "cuda" if gpus else "cpu"
    available = ["auto", "cpu", *(["cuda"] if gpus else []), *(f"cuda:{i}" for i in range(gpus))]
    if not re.fullmatch(r"cuda(:\d+)?", text) or text not in available:
        raise BadInput("--device", got=text, available=available)
    return text
