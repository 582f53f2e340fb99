"""Options of a world in which given policies can live."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from robolearn.core.specs import is_image


def world_options(task: str, policies: Sequence[Any]) -> dict[str, Any]:
    """Keywords of `make_env` for a world of `task` that offers what `policies` need: cameras, and for the embedded
    world also arm and action kind; nothing that a policy's files leave open."""
    from robots import ROBOTS  # late: it compiles, and `--help` of a command does without

    interface = policies[0].interface
    options: dict[str, Any] = {}
    pictures = {k: s for p in policies for k, s in p.interface.observation.items() if is_image(s)}
    if pictures:
        options["cameras"] = tuple(key.removeprefix("images.") for key in pictures)
        options["image_size"] = next(iter(pictures.values())).shape[0]
    if ":" in task:
        return options
    if interface.embodiment in ROBOTS:
        options["robot"] = interface.embodiment
    if interface.action_kind in ("tcp_delta", "joint_position"):
        options["action_kind"] = interface.action_kind
    return options
