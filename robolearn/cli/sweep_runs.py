"""The trainings that a sweep consists of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class One:
    """One training of a sweep.

    Attributes:
      setting: flag → value, of what varies.
      seed: of this one.
      path: its run folder.
      command: ready to run.
      line: its words.
    """

    setting: dict[str, str]
    seed: int
    path: Path
    command: Any
    line: tuple[str, ...] = ()
