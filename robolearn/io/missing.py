"""What is said of a folder that is not there."""

from __future__ import annotations

import difflib
from pathlib import Path


def no_such_folder(path: Path) -> str:
    """That there is none, and the one beside it that has nearly its name."""
    said, parent = "there is no such folder", path.parent
    beside = [one.name for one in parent.iterdir() if one.is_dir()] if parent.is_dir() else []
    near = difflib.get_close_matches(path.name, beside, n=1, cutoff=0.6)
    return f"{said} (did you mean {parent / near[0]}?)" if near else said
