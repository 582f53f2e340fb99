"""The plan of a trial, written and hashed before the first episode.

    policies → in each block one episode of every policy, from the same start, in an order drawn anew for each block

Order, starts and end are functions of the plan: no episode is chosen, and one that is missing is missed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from robolearn.core import BadInput
from robolearn.eval.trials.futility import Futility
from robolearn.io.hashes import sha256
from robolearn.io.json_files import plain, read_json, write_json

PLAN, EPISODES = "plan.json", "episodes.jsonl"
VERSION = 1


@dataclass(frozen=True)
class TrialCheckpoint:
    """One training of a policy: where it lies, and the hash of its files."""

    path: str
    sha256: str


@dataclass(frozen=True)
class TrialSlot:
    """One episode of the plan."""

    number: int  # from 0
    block: int
    policy: str
    checkpoint: int  # which of the policy's trainings
    start: int  # seed of the start, the same for all policies of the block


@dataclass(frozen=True, kw_only=True)
class TrialPlan:
    """A plan.

    Attributes:
      policies: name → its checkpoints: several are trainings of one method with different seeds, which take turns.
      arm: name or file of the robot contract; empty: simulated worlds.
      setting: flags of the worlds, or of the deployment.
      outcome: ``task`` (the world's own success), ``person`` or ``classifier``.
      classifier: the reward model that judges beside it, or in its place; empty: none.
      blocks: M, at most; the trial stops earlier where the verdict is clear.
      concentration: c of `robolearn.eval.trials.sequential`.
      alpha: probability at most that any difference is claimed that is none.
      seed: of the order and of the starts.
      futility: the end of a trial that has hardly a chance left; None: there is none, as in plans of before.
      hashes: name → hash of what has to stay as it is: world, arm, dynamics, software, contract, filter, classifier.
    """

    policies: Mapping[str, tuple[TrialCheckpoint, ...]]
    arm: str
    setting: Mapping[str, Any]
    outcome: str
    classifier: str
    blocks: int
    concentration: int
    alpha: float
    seed: int
    hashes: Mapping[str, str]
    futility: Futility | None = None
    version: int = VERSION

    @property
    def sha256(self) -> str:
        """The hash that the plan is known by."""
        return sha256(json.dumps(self._content, sort_keys=True))

    @property
    def _content(self) -> dict[str, Any]:
        content = plain(self)
        if self.futility is None:  # plans of before keep their hash
            del content["futility"]
        return content

    @property
    def episodes(self) -> int:
        """Number of episodes, at most."""
        return self.blocks * len(self.policies)

    def slot(self, number: int) -> TrialSlot:
        """The episode with this number, from 0."""
        block, position = divmod(number, len(self.policies))
        order = np.random.default_rng([self.seed, block]).permutation(sorted(self.policies))
        policy = str(order[position])
        return TrialSlot(number, block, policy, block % len(self.policies[policy]), (self.seed + block) % 2**32)

    def write(self, folder: Path) -> None:
        """Write it into `folder`, which is made. Raises `BadInput`: there is a plan already."""
        if (folder / PLAN).exists():
            raise BadInput(f"trial {folder}", got="a folder with a plan", expected="a new one: plans are not changed")
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / PLAN, {"sha256": self.sha256, **self._content})

    @classmethod
    def read(cls, folder: Path) -> TrialPlan:
        """The plan in `folder`. Raises `BadInput`: there is none, or it is not as it was written."""
        what = f"trial {folder}"
        content = read_json(folder / PLAN, what=what)
        stated = content.pop("sha256", "")
        try:
            found = TypeAdapter(cls).validate_python(content)
        except ValidationError as error:
            fault = error.errors()[0]
            place = ".".join(map(str, fault["loc"]))
            raise BadInput(f"{what}: {PLAN}: {place}", got=str(fault["input"])[:80], expected=fault["msg"]) from None
        if found.version != VERSION:
            raise BadInput(f"{what}: {PLAN}: version", got=found.version, expected=VERSION)
        if found.sha256 != stated:
            got = f"a plan whose hash is {found.sha256[:12]}"
            raise BadInput(f"{what}: {PLAN}", got=got, expected=f"the one that was written, {str(stated)[:12]}")
        return found

    def changes(self, now: Mapping[str, str]) -> dict[str, str]:
        """Name → hash of what is not as planned, of the hashes `now`, whose names are those of `all_hashes`. What is
        missing has an empty one; what the plan does not name is left out."""
        return {name: now.get(name, "") for name, planned in self.all_hashes.items() if now.get(name, "") != planned}

    @property
    def all_hashes(self) -> dict[str, str]:
        """Hashes of everything, the checkpoints' by their paths."""
        own = {f"policy {one.path}": one.sha256 for checkpoints in self.policies.values() for one in checkpoints}
        return {**own, **self.hashes}
