"""``finetune --begin-along`` and ``--adversary``: training episodes that are not as the task has them.

States along the demonstrations of a data set are made again in worlds like its own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from robolearn.cli.dataset.common import opened_for
from robolearn.core import BadInput
from robolearn.io.json_files import plain
from robolearn.rollout.collected_starts import stored_starts
from sim.registry import WorldConfig

log = logging.getLogger(__name__)

FLAG = "--begin-along"
SIDE_BY_SIDE = 64  # demonstrations that are executed at once


@dataclass(frozen=True)
class AlteredTraining:
    """Training worlds whose episodes are not all as the task has them."""

    world: WorldConfig
    stored: dict[str, Any]  # for the run's config.json
    given: dict[str, Any]  # arguments of the runner
    demonstrations: Sequence[Any] = ()  # to begin along

    def prepare(self, env: Any) -> None:
        """Give the worlds `env`, made by `world`, what they need."""
        if self.demonstrations:
            env.demonstrations.extend(self.demonstrations)


def altered_training(command: Any, world: WorldConfig, policy: Any, modelled: bool) -> AlteredTraining:
    """The training of the `Finetune` called `command`, with its --begin-along or --adversary.

    Args:
      world: that the task's own episodes are in.
      policy: that learns.
      modelled: a reward model's rewards are learned from.

    Raises:
      BadInput: both flags, worlds that nobody resets or that stand still, a reward model, a task without such worlds,
        or what `snapshots_along` refuses.
    """
    path, pushing = command.along.begin_along, command.pushing
    pushes = pushing.adversary != "none"
    if path is None and not pushes:
        return AlteredTraining(world, {}, {})
    flag = FLAG if path is not None else "--adversary"
    refused = {"--env-steps 0": not command.env_steps, "--back-policy": command.back_policy, "a reward model": modelled,
               "--adversary": path is not None and pushes}  # fmt: skip
    for got in (name for name, given in refused.items() if given):
        raise BadInput(flag, got=f"it with {got}", expected="it alone, in worlds that are reset, by their own reward")
    if path is None:
        world = replace(world, pushed=pushing.adversary_on)
        return AlteredTraining(world, {"adversary": plain(pushing)}, {"altered": pushing})
    world = replace(world, begin_along=True)
    world.check()
    states = snapshots_along(path, opened_for(policy, [path], FLAG)[0], world)
    kept = {"path": str(path), "frames": sum(map(len, states)), "share": command.along.along_share,
            "until": command.along.along_until}  # fmt: skip
    return AlteredTraining(world, {"begin_along": kept}, {"altered": command.along}, states)


def snapshots_along(path: Path, found: Any, world: WorldConfig) -> list[Any]:
    """States along the successes of the data set `found` at `path`, for episodes of `world`, with its arm and actions.
    Raises `BadInput`: a set without seeds, of another task, arm, dynamics or cousins, without a success, or of which no
    demonstration comes out as recorded."""
    from sim.embedded.cousins import TWIN, load_cousins
    from sim.embedded.snapshot_starts import SnapshotWorlds, retrace

    recorded = stored_starts(path, FLAG)
    for one in recorded:
        own = (("task", one.task, world.task), ("robot", one.robot, world.arm),
               ("dynamics", one.dynamics, world.dynamics))  # fmt: skip
        for what, theirs, ours in own:
            if theirs != ours:
                raise BadInput(f"{FLAG} {path}: {what}", got=theirs, expected=f"{ours}, as in training")
    theirs, ours = found.interface.extra.get("cousins"), load_cousins(world.cousins)
    if _scenes(theirs) != _scenes(ours and ours.described()):
        got = theirs["name"] if theirs else TWIN
        raise BadInput(f"{FLAG} {path}: cousins", got=got, expected=f"{world.cousins}, as in training")
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


def _scenes(cousins: Mapping[str, Any] | None) -> dict[str, Any]:
    """The differences between scenes, by whichever name."""
    return {key: value for key, value in (cousins or {}).items() if key != "name"}
