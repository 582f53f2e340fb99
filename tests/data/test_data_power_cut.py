"""A power cut at any moment: of the renames and removals that were not yet synced any may be on the disk, or none.

The operations of a real recording are written down as they happen. The states that a disk may be in after a cut are
built from that list by the rules of POSIX alone: what `fsync` returned for is there, of the rest any part.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.data import Dataset, EpisodeWriter, VideoConfig
from robolearn.data.lerobot import layout
from robolearn.data.validate import Tolerances, validate
from robolearn.data.writing import locked_dataset
from robolearn.data.writing.repair import repair

pytestmark = pytest.mark.long

SIZE = 64
INTERFACE = Interface(
    {"proprio": ArraySpec((2,)), "images.front": ArraySpec((SIZE, SIZE, 3), "uint8")}, ArraySpec((2,)), 20.0
)
TASKS = ("press", "turn", "press")
STEPS = 3
MOST = 9  # pending operations of which all combinations are tried; of more, those in which each folder is in order

Files = dict[str, bytes]


@dataclass(frozen=True)
class Operation:
    """A rename of `old` to `new`, or the removal of `old`, in a folder."""

    new: str | None
    content: bytes
    old: str | None
    folder: str


@dataclass
class Disk:
    """What a disk holds of the folder `root`: names that are synced, and operations that may or may not be.

    Attributes:
      files: the synced names and their content.
      pending: what was done since, in order.
      contents: (inode, size) of the files whose content was synced.
    """

    root: Path
    files: Files = field(default_factory=dict)
    pending: list[Operation] = field(default_factory=list)
    contents: set[tuple[int, int]] = field(default_factory=set)

    def name(self, path: Any) -> str | None:
        """Of a file whose fate matters; None for others."""
        place = Path(os.path.abspath(path))
        if not place.is_relative_to(self.root):
            return None
        name = str(place.relative_to(self.root))
        return None if name.startswith((".running", ".writer.lock", ".unfinished")) else name

    def renamed(self, source: Any, place: Any) -> None:
        new = self.name(place)
        if new is not None:
            stat = os.stat(place)
            assert (stat.st_ino, stat.st_size) in self.contents, f"{new} is renamed before its content is synced"
            self.pending.append(Operation(new, Path(place).read_bytes(), self.name(source), str(Path(new).parent)))

    def removed(self, path: Any) -> None:
        old = self.name(path)
        if old is not None:
            self.pending.append(Operation(None, b"", old, str(Path(old).parent)))

    def synced(self, descriptor: int) -> bool:
        """Whether names were: of a file only the content is."""
        stat, path = os.fstat(descriptor), Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if not path.is_dir():
            self.contents.add((stat.st_ino, stat.st_size))
            return False
        if path.is_relative_to(self.root):
            folder = str(path.relative_to(self.root))
            done = [one.folder == folder for one in self.pending]
            self.files = apply(self.files, [one for one, there in zip(self.pending, done, strict=True) if there], [])
            self.pending = [one for one in self.pending if one.folder != folder]
        return True

    def states(self) -> Iterator[Files]:
        """What may be there after a cut now. What was to be renamed has its first name then, or none."""
        for chosen in self._chosen():
            done = [one for one, there in zip(self.pending, chosen, strict=True) if there]
            left = [one for one, there in zip(self.pending, chosen, strict=True) if not there]
            yield apply(self.files, done, left)
            yield apply(self.files, done, [])

    def _chosen(self) -> Iterator[tuple[bool, ...]]:
        if len(self.pending) <= MOST:
            yield from itertools.product((False, True), repeat=len(self.pending))
            return
        folders = sorted({one.folder for one in self.pending})
        numbers = {folder: [i for i, one in enumerate(self.pending) if one.folder == folder] for folder in folders}
        for counts in itertools.product(*(range(len(numbers[folder]) + 1) for folder in folders)):
            there = {i for folder, count in zip(folders, counts, strict=True) for i in numbers[folder][:count]}
            yield tuple(i in there for i in range(len(self.pending)))


def apply(files: Files, done: list[Operation], left: list[Operation]) -> Files:
    """`files` after the operations `done`; of those that are `left` what was to become info.json is there.

    Other files that were not renamed make no difference to anybody: readers list ``*.parquet`` and ``*.mp4``.
    """
    files = dict(files)
    for one in done:
        if one.old is not None:
            files.pop(one.old, None)
        if one.new is not None:
            files[one.new] = one.content
    for one in left:
        if one.new == layout.INFO_PATH and one.old is not None:
            files[one.old] = one.content
    return files


def observed(disk: Disk, patch: pytest.MonkeyPatch, moment: Any) -> None:
    """Let `disk` see what this process does, and call `moment` after each operation."""
    replace, fsync, unlink = os.replace, os.fsync, Path.unlink

    def replaced(source: Any, place: Any) -> None:
        replace(source, place)
        disk.renamed(source, place)
        moment()

    def unlinked(self: Path, missing_ok: bool = False) -> None:
        there = self.exists()
        unlink(self, missing_ok=missing_ok)
        if there:
            disk.removed(self)
            moment()

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        if disk.synced(descriptor):
            moment()

    patch.setattr(os, "replace", replaced)
    patch.setattr(Path, "unlink", unlinked)
    patch.setattr(os, "fsync", synced)


def recorded(root: Path) -> dict[tuple[tuple[str, bytes], ...], int]:
    """Every state after a cut while three episodes are recorded, as fast as can be → how many had been finished."""
    disk, finished = Disk(root), 0
    states: dict[tuple[tuple[str, bytes], ...], int] = {}

    def moment() -> None:
        for files in disk.states():
            key = tuple(sorted(files.items()))
            states[key] = max(states.get(key, 0), finished)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locked_dataset, "DATA_BYTES", 400)  # a second file begins on the way
        patch.setattr(locked_dataset, "META_ROWS", 2)
        observed(disk, patch, moment)
        with EpisodeWriter(root, INTERFACE, video=VideoConfig(codec="libx264", crf=23)) as writer:
            for e, task in enumerate(TASKS):
                for t in range(STEPS):
                    image = np.full((SIZE, SIZE, 3), 40 * e + 10 * t + 30, np.uint8)
                    writer.add({"proprio": [e, t], "images.front": image}, [0, t / 100], t)
                writer.end(success=True, terminated=True, task=task)
                finished = e + 1
                moment()
    return states


def test_a_set_opens_after_a_power_cut_at_any_moment_with_every_finished_episode(tmp_path: Path) -> None:
    states = recorded(tmp_path / "set")
    refused, lost, faults = [], [], []
    for number, (files, finished) in enumerate(states.items()):
        root = tmp_path / str(number)
        for name, content in files:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
        if not (root / "meta/info.json").exists():
            assert not finished
            continue
        try:
            episodes = repair(root).episodes
            faults += [(number, finding) for finding in validate(root, Tolerances(decode=False))] if episodes else []
            if episodes:
                dataset = Dataset.open(root, cache=False)
                for e in range(dataset.episodes):
                    episode = dataset.episode(e)
                    assert episode.task == TASKS[e] and episode.observation["proprio"][:, 0].tolist() == [e] * STEPS
        except BadInput as error:
            refused.append((number, str(error)))
            continue
        if episodes < finished:
            lost.append((number, f"{episodes} of {finished}"))
    print(f"{len(states)} states, {len(refused)} refused, {len(lost)} with a loss")
    assert len(states) > 60
    assert refused == [] and lost == [] and faults == []
