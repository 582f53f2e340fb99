"""``finetune --begin-along``: states along the demonstrations of a data set, made again in worlds like its own."""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import replace
from typing import Any

from robolearn.core import BadInput
from robolearn.rollout.collected_starts import stored_starts
from sim.registry import WorldConfig

log = logging.getLogger(__name__)

FLAG = "--begin-along"
SIDE_BY_SIDE = 64  # demonstrations that are executed at once


def snapshots_along(command: Any, world: WorldConfig, modelled: bool, found: Any) -> list[Any]:
    """States along the successes of a data set.

    Args:
      command: the `Finetune` that has the flag.
      world: that episodes shall begin in, with its arm and its actions.
      modelled: a reward model's rewards are learned from.
      found: the set.

    Raises:
      BadInput: worlds that nobody resets or that stand still, a reward model, or a set without seeds, of another task,
        arm or dynamics, without a success, or of which no demonstration comes out as recorded.
    """
    from sim.embedded.snapshot_starts import SnapshotWorlds, retrace

    refused = {"--env-steps 0": not command.env_steps, "--back-policy": command.back_policy, "a reward model": modelled}
    for got in (name for name, given in refused.items() if given):
        raise BadInput(FLAG, got=f"it with {got}", expected="worlds that are reset, and their own reward")
    world.check()
    path = found.path
    recorded = stored_starts(path, FLAG)
    for one in recorded:
        own = (("task", one.task, world.task), ("robot", one.robot, world.arm),
               ("dynamics", one.dynamics, world.dynamics))  # fmt: skip
        for what, theirs, ours in own:
            if theirs != ours:
                raise BadInput(f"{FLAG} {path}: {what}", got=theirs, expected=f"{ours}, as in training")
    successes = [found.episode(i) for i in range(found.episodes) if found.success[i]]
    if not successes:
        raise BadInput(f"{FLAG} {path}", got=f"{found.episodes} episodes, all failures", expected="demonstrations")
    states, differences = [], []
    for share in dict.fromkeys(one.start_range for one in recorded):
        keys = [key for one in recorded if one.start_range == share for key in one.each()]
        bare = replace(world, start_range=share, begin_along=True, cameras=(), looks="none", reward="sparse")
        with closing(bare.build(min(SIDE_BY_SIDE, len(keys)))) as env:
            assert isinstance(env, SnapshotWorlds)
            more, differences = retrace(env, keys, successes)
        states += more
    if not states:
        hint = "Made by another version, or by other worlds? Collect it again"
        raise BadInput(f"{FLAG} {path}", got=f"{len(successes)} demonstrations that do not reproduce: {differences[0]}",
                       expected="the recorded observations when its actions are executed again", hint=hint)  # fmt: skip
    if left := len(successes) - len(states):
        log.warning(
            "%s %s: %d of %d demonstrations do not reproduce and are left out", FLAG, path, left, len(successes)
        )
    return states
