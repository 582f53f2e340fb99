"""Audit of a reward model on an arm by a person's spot labels: did the episode succeed?

    asked     at the end of a share of the episodes, drawn by the seed; where the person's own key ended the episode,
              that is the answer
    parted    `robolearn.rl.audit.Verdicts`, of the newest labels, as in simulation of the newest episodes

What is said is compared with the model's *done* and not learned from. Labels lie beside the outbox, in
``<actor>.labels.json``, and count on after a restart.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from robolearn.core import BadInput
from robolearn.hil.settings import AUDIT, episode_seed
from robolearn.io.json_files import read_json, write_json
from robolearn.rl.audit import COUNTS, AuditConfig, Verdicts, counts

QUESTION = "did the episode succeed? Press the success or the failure key; the next one waits for that"


class SpotLabels:
    """See the module.

    Args:
      path: of the file of the labels.
      share: of the episodes at whose end the person is asked.
      seed: of the run.

    Attributes:
      open: the person is asked, and has not answered yet.

    Raises:
      BadInput: a damaged file.
    """

    def __init__(self, path: Path, share: float, seed: int, config: AuditConfig | None = None) -> None:
        self._path, self._share, self._config = path, share, config or AuditConfig()
        self._labels: list[tuple[bool, bool]] = []  # called done by the model, solved as the person says
        if self._path.exists():
            stored = read_json(self._path, what=str(self._path)).get("labels")
            try:
                self._labels = [(bool(called), bool(solved)) for called, solved in stored or ()]
            except (TypeError, ValueError):
                raise BadInput(str(self._path), got="other labels", expected="pairs: called done, solved") from None
        self._rng = np.random.default_rng(episode_seed(seed, path.name, len(self._labels), AUDIT))
        self._called = self.open = False

    def ended(self, called: bool, said: bool | None) -> str:
        """An episode has ended.

        Args:
          called: the model called it done.
          said: success, where the person's key ended it, else None.

        Returns:
          The reason why model and person have parted, as `answer`.
        """
        if self._rng.random() >= self._share:
            return ""
        self._called, self.open = called, True
        return "" if said is None else self.answer(said)

    def answer(self, solved: bool) -> str:
        """The person says it; the reason why model and person have parted, in a sentence, or nothing."""
        self.open = False
        self._labels.append((self._called, solved))
        return self.verdicts.parted(self._config)

    @property
    def verdicts(self) -> Verdicts:
        """Counts of the newest labels."""
        newest = self._labels[-self._config.audit_window :]
        found = counts(newest) if newest else dict.fromkeys(COUNTS, 0.0)
        return Verdicts(*(round(found[name]) for name in COUNTS), episodes=len(newest))

    def save(self) -> None:
        """Write the labels."""
        write_json(self._path, {"labels": self._labels})
