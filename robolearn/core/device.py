"""Where tensors live: ``--device auto|cpu|cuda[:i]`` becomes the name of a device that is there."""

from __future__ import annotations

import re

from robolearn.core.errors import BadInput


def resolve_device(text: str) -> str:
    """The device that `text` means, as torch names it.

    Args:
      text: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, …, or ``"auto"``: the first GPU where there is one, else the CPU.

    Raises:
      BadInput: no such device here, or none of these words.
    """
    if text == "cpu":
        return text
    if text != "auto" and not re.fullmatch(r"cuda(:\d+)?", text):
        raise BadInput("device", got=text, expected="auto, cpu, cuda or cuda:<index>", available=_available())
    import torch

    if text == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    index = int(text.partition(":")[2] or 0)
    if not torch.cuda.is_available() or index >= torch.cuda.device_count():
        raise BadInput("device", got=text, expected="one of this machine's", available=_available())
    return text


def _available() -> tuple[str, ...]:
    """What this machine has."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return ("auto", "cpu", *(("cuda",) if count else ()), *(f"cuda:{i}" for i in range(count)))
