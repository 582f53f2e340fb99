"""What is pushed: the files of a policy or of a data set, and nothing else that lies beside them.

A policy is ``config.json`` and ``model.safetensors``; a data set its ``meta/``, ``data/`` and ``videos/`` as LeRobot
has them. Nothing that is unpickled when it is read is ever pushed or pulled.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from robolearn.core import BadInput

CARD = "README.md"
PULLED = ("*.json", "*.jsonl", "*.safetensors", "*.parquet", "*.mp4", CARD)  # suffixes that are taken from a hub
_ROOMS, _SUFFIXES = ("meta", "data", "videos"), {".json", ".jsonl", ".parquet", ".mp4"}


@dataclass(frozen=True)
class Content:
    """Files and what they are.

    Attributes:
      kind: ``"model"`` or ``"dataset"``, as the hub has it.
      files: path there → file here.
    """

    kind: str
    files: dict[str, Path]

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(path.stat().st_size for path in self.files.values())


def content_of(path: Path) -> Content:
    """What is at `path`: a run folder, a checkpoint folder, or a data set.

    Raises:
      BadInput: none of them, or a damaged one.
    """
    if (path / "meta" / "info.json").is_file():
        from robolearn.data.convert.dataset_source import open_numbers

        open_numbers(path)
        found = sorted(
            file for room in _ROOMS for file in (path / room).rglob("*")
            if file.is_file() and not file.is_symlink() and file.suffix in _SUFFIXES and not file.name.startswith(".")
        )  # fmt: skip
        return Content("dataset", {file.relative_to(path).as_posix(): file for file in found})
    from policies.storage.checkpoint import load_policy
    from policies.storage.config_file import CONFIG, WEIGHTS, policy_folder

    if not path.is_dir():
        raise BadInput(f"hub push: {path}", got="no such folder", expected="a run, a policy or a data set")
    folder = policy_folder(path)
    load_policy(folder)
    return Content("model", {name: folder / name for name in (CONFIG, WEIGHTS)})
