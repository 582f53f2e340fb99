"""The episodes of a trial in a file that only grows: a line before each and one after, safe on disk before it goes on.

An episode that was begun and not ended was abandoned, whatever ended the program: no kill repeats one unseen.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from robolearn.core import BadInput
from robolearn.eval.trials.plan import EPISODES, TrialPlan
from robolearn.io.append_only import AppendOnlyFile
from robolearn.io.json_files import plain
from robolearn.io.locks import Lock, LockHeld

OUTCOMES = {
    "success": "the task was solved",
    "failure": "it was not",
    "timeout": "the clock ended the episode",
    "intervention": "a person helped",
    "stopped": "the safety filter stopped the arm",
    "refused": "the safety filter refused to arm",
    "died": "a node ended",
    "abandoned": "the episode had no outcome and was repeated: not counted",
}
"""Every outcome but the last is one of its policy; all but the first count as no success."""

BEGUN = "begun"  # of a line before an episode
NOT_ENDED = "begun, and not ended"


@dataclass(frozen=True)
class TrialEpisode:
    """One episode as it was.

    Attributes:
      plan: hash of the plan.
      number, block, policy, checkpoint, start: as in `TrialSlot`.
      outcome: one of `OUTCOMES`, or `BEGUN`.
      judged: who → success, of all that judged it: ``task``, ``person``, ``classifier``.
      seconds: its length.
      reason: why it ended so, in words.
      at: when it ended, UTC.
    """

    plan: str
    number: int
    block: int
    policy: str
    checkpoint: int
    start: int
    outcome: str
    judged: dict[str, bool] = field(default_factory=dict)
    seconds: float = 0.0
    reason: str = ""
    at: str = ""

    @property
    def success(self) -> bool:
        """True where the task was solved by the policy alone."""
        return self.outcome == "success"


def read_episodes(folder: Path, plan: TrialPlan) -> tuple[list[TrialEpisode], list[TrialEpisode]]:
    """Episodes in the order of the plan, and those that were abandoned; a last line that a kill cut short is left out.
    Raises `BadInput`: a line that is no episode of this plan, or an episode that is missing before others."""
    return _read(folder / EPISODES, plan)[:2]


def _read(path: Path, plan: TrialPlan) -> tuple[list[TrialEpisode], list[TrialEpisode], int]:
    """Episodes, abandoned ones, and the bytes that whole lines take."""
    content = path.read_bytes() if path.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    done: list[TrialEpisode] = []
    abandoned: list[TrialEpisode] = []
    reader, sha = TypeAdapter(TrialEpisode), plan.sha256
    begun: TrialEpisode | None = None
    for i, line in enumerate(whole.splitlines(), start=1):
        what = f"{path}: line {i}"
        try:
            one = reader.validate_json(line)
        except ValidationError as error:
            raise BadInput(what, got=line[:60].decode(errors="replace"), expected="an episode") from error
        slot = plan.slot(len(done))
        wanted = (sha, slot.number, slot.block, slot.policy, slot.checkpoint, slot.start)
        got = (one.plan, one.number, one.block, one.policy, one.checkpoint, one.start)
        if got != wanted or one.outcome not in (*OUTCOMES, BEGUN) or len(done) >= plan.episodes:
            expected = (
                f"episode {slot.number} of {plan.episodes}, of plan {sha[:12]}: {slot.policy}, start {slot.start}"
            )
            shown = f"episode {one.number} of plan {one.plan[:12]}: {one.policy}, start {one.start}, {one.outcome}"
            raise BadInput(what, got=shown, expected=expected)
        if one.outcome != BEGUN:
            begun = None
            (abandoned if one.outcome == "abandoned" else done).append(one)
            continue
        abandoned += _not_ended(begun)
        begun = one
    return done, abandoned + _not_ended(begun), len(whole)


def _not_ended(begun: TrialEpisode | None) -> list[TrialEpisode]:
    return [] if begun is None else [replace(begun, outcome="abandoned", reason=f"{NOT_ENDED}, at {begun.at}")]


class TrialRecords:
    """The file of a trial that goes on; one process at a time. A context manager.

    Attributes:
      done: episodes so far, in order.

    Raises:
      BadInput: as `read_episodes`; or another process runs the trial.
    """

    def __init__(self, folder: Path, plan: TrialPlan) -> None:
        try:
            self._lock = Lock(folder / ".lock")
        except LockHeld as held:
            got = f"run by process {held.holder}"
            raise BadInput(f"trial {folder}", got=got, expected="a trial that no process runs") from None
        try:
            self._plan, self._sha = plan, plan.sha256
            self.done, _, whole = _read(folder / EPISODES, plan)
            self._file = AppendOnlyFile(folder / EPISODES)
            (folder / EPISODES).open("r+b").truncate(whole)
        except BaseException:
            self._lock.release()
            raise

    @property
    def next(self) -> int:
        """Number of the next episode."""
        return len(self.done)

    def begin(self) -> None:
        """Store that a try at the next episode begins."""
        self._append(BEGUN)

    def add(self, outcome: str, **facts: Any) -> TrialEpisode:
        """Store the next episode, or with the outcome ``abandoned`` a try at it."""
        one = self._append(outcome, **facts)
        if outcome != "abandoned":
            self.done.append(one)
        return one

    def _append(self, outcome: str, **facts: Any) -> TrialEpisode:
        slot = self._plan.slot(self.next)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        one = TrialEpisode(self._sha, **vars(slot), outcome=outcome, at=at, **facts)
        self._file.append(json.dumps(plain(one)).encode() + b"\n")
        self._file.sync()
        return one

    def close(self) -> None:
        """Let another process run the trial."""
        self._file.close()
        self._lock.release()

    def __enter__(self) -> TrialRecords:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def whole_blocks(plan: TrialPlan, episodes: Sequence[TrialEpisode]) -> dict[str, list[TrialEpisode]]:
    """Policy → its episodes of the blocks that every policy has finished, in the order of blocks."""
    count = len(episodes) // len(plan.policies) * len(plan.policies)
    return {name: [one for one in episodes[:count] if one.policy == name] for name in plan.policies}
