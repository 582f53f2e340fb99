"""What ``--policy`` means: a folder of ours, or ``lerobot:FOLDER`` for a policy of LeRobot's."""

from __future__ import annotations

import os

from policies.config_file import CONFIG, interface_of, policy_folder, read_config
from robolearn.core import Interface, Policy, bind_policy, check_compatible

LEROBOT = "lerobot:"


def open_policy(name: str | os.PathLike[str], device: str = "cpu") -> Policy:
    """The policy that `name` says, ready to act.

    Args:
      name: a run folder, a checkpoint folder, or ``lerobot:`` and a folder that LeRobot's ``save_pretrained`` wrote
        (or the run folder of a training with LeRobot).
      device: where its tensors live, as torch names it.

    Raises:
      BadInput: there is none, it is damaged, or LeRobot is not installed.
    """
    text = os.fspath(name)
    if text.startswith(LEROBOT):
        from policies.lerobot_policy import load_lerobot_policy

        return load_lerobot_policy(text.removeprefix(LEROBOT), device)
    from policies.checkpoint import load_policy

    return load_policy(text, device)


def check_policy(name: str | os.PathLike[str], offered: Interface, *, what: str) -> None:
    """Raise `BadInput` unless the policy that `name` says is for a world that offers `offered`.

    Only what is needed for that is read: of a policy of ours the ``config.json``, not the weights.
    """
    if os.fspath(name).startswith(LEROBOT):
        bind_policy(open_policy(name), offered, what=what)
        return
    file = policy_folder(name) / CONFIG
    check_compatible(interface_of(read_config(file), file), offered, what=what)
