"""What ``--policy`` means: a folder of ours, or ``lerobot:FOLDER`` for a policy of LeRobot's."""

from __future__ import annotations

import os

from policies.checkpoint import load_policy
from robolearn.core import Policy

LEROBOT = "lerobot:"


def open_policy(name: str | os.PathLike[str]) -> Policy:
    """The policy that `name` says, ready to act.

    Args:
      name: a run folder, a checkpoint folder, or ``lerobot:`` and a folder that LeRobot's ``save_pretrained`` wrote
        (or the run folder of a training with LeRobot).

    Raises:
      BadInput: there is none, it is damaged, or LeRobot is not installed.
    """
    text = os.fspath(name)
    if text.startswith(LEROBOT):
        from policies.lerobot_policy import load_lerobot_policy

        return load_lerobot_policy(text.removeprefix(LEROBOT))
    return load_policy(text)
