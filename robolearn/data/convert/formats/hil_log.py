"""The log of a human-in-the-loop run as episodes: what policy and operator did, step by step, as a set like others.

A run of ``robolearn hil`` keeps every transition in ``log/<actor>.transitions`` (`robolearn.data.replay.records`). An
episode that its actor never ended has no outcome and is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, Interface
from robolearn.core.specs import is_image
from robolearn.data.convert.formats.config import COMMON, ForeignSet, FormatConfig, imported, stored_episode
from robolearn.data.convert.options import Account, ReadOptions
from robolearn.data.convert.source import EpisodeDraft, EpisodeSource
from robolearn.data.replay.records import SUFFIX, Assembler, PlayedEpisode, RecordSchema, ReplayStep
from robolearn.io.append_only import damage, records, set_aside
from robolearn.io.json_files import read_json

LOG, CONFIG = "log", "config.json"


def here(path: Path) -> bool:
    return path.is_dir() and any((path / LOG).glob(f"*{SUFFIX}"))


def read(path: Path, options: ReadOptions) -> EpisodeSource:
    """The episodes of the run folder `path`, actor by actor in the order of their names. Raises `BadInput`: no log, no
    configuration, or records that do not follow each other."""
    files = sorted((path / LOG).glob(f"*{SUFFIX}"))
    if not files:
        raise BadInput(f"run {path}", got=f"no {LOG}/*{SUFFIX}", expected="a run of robolearn hil")
    config = read_json(path / CONFIG, what=f"run {path}: {CONFIG}")
    try:
        interface = Interface.from_json(config["interface"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"run {path}: {CONFIG}", got=f"no valid interface ({error!r})") from None
    account = Account()
    for key in (*interface.observation, "action"):
        account.became(key, (key,))
    played, names = _Sequence(files, RecordSchema(interface)), []
    for file in files:
        ended, cut = _counts(file, played.schema)
        names += [f"{file.stem} {number}" for number in range(ended)]
        if cut:
            many = f"{len(cut)} episodes that were" if len(cut) > 1 else "an episode that was"
            account.left_out.append(f"{file.stem}: {sum(cut)} steps of {many} never ended")
        if found := damage(file):
            account.left_out.append(f"{file}: {found}, are not read")
        account.left_out += [f"{one}: set aside because the log was damaged" for one in set_aside(file)]

    def draft(number: int) -> EpisodeDraft:
        episode = played.episode(number)
        steps = len(episode)
        seen = {key: value[:steps] for key, value in episode.observation.items()}
        vectors = {key: value for key, value in seen.items() if not is_image(interface.observation[key])}
        images = {key: value for key, value in seen.items() if key not in vectors}
        ends = (episode.success, episode.terminated, not episode.terminated)
        words = (options.task or episode.task or path.name,)
        stored = stored_episode(vectors, episode.action, episode.reward, *ends, words, episode.intervention, {})
        final = {key: value[steps] for key, value in episode.observation.items()}
        return EpisodeDraft(replace(stored, final=final), images, names[number])

    def action(number: int) -> NDArray[np.float32]:
        return played.episode(number).action

    return imported(ForeignSet(interface, names, action, draft, (), True, account), options)


def _episodes(file: Path, schema: RecordSchema) -> Iterator[tuple[PlayedEpisode | None, int]]:
    """(an episode that ended, or None; 0) after each record, and (None, its steps) for each that never ended: a kill
    cut it short, or the operator dropped it."""
    assembler = Assembler()
    for content in records(file):
        record = schema.decode(content)
        if isinstance(record, ReplayStep) and record.index == 0 and (steps := assembler.expects[1]):
            assembler.cut()
            yield None, steps
        yield assembler.add(record), 0
    yield None, assembler.expects[1]


def _counts(file: Path, schema: RecordSchema) -> tuple[int, list[int]]:
    """Number of episodes that ended, and the steps of each that did not."""
    ended, cut = 0, []
    for episode, steps in _episodes(file, schema):
        ended += episode is not None
        cut += [steps] * bool(steps)
    return ended, cut


class _Sequence:
    """The episodes of several logs by number, one in memory at a time: forwards in one pass."""

    def __init__(self, files: list[Path], schema: RecordSchema) -> None:
        self._files, self.schema = files, schema
        self._next, self._ahead = 0, self._all()
        self._held: PlayedEpisode | None = None

    def _all(self) -> Iterator[PlayedEpisode]:
        for file in self._files:
            yield from (episode for episode, _ in _episodes(file, self.schema) if episode is not None)

    def episode(self, number: int) -> PlayedEpisode:
        if number == self._next - 1 and self._held is not None:
            return self._held
        if number < self._next:
            self._next, self._ahead = 0, self._all()
        while self._next <= number:
            self._held = next(self._ahead)
            self._next += 1
        assert self._held is not None
        return self._held


FORMAT = FormatConfig(
    name="hil",
    summary="the log of a run of robolearn hil",
    here=here,
    read=read,
    options=tuple(option for option in COMMON if option not in ("hz", "embodiment", "action_kind", "cameras")),
)
