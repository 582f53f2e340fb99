"""Which policies RL starts from."""

from __future__ import annotations

from policies.policy import ChunkPolicy
from policies.settings import DENOISING
from policies.wrappers.goals import goals_of
from robolearn.core import BadInput


def check_tunable(policy: ChunkPolicy) -> None:
    """Raise `BadInput` unless `policy` has a likelihood step by step, and sees one moment, as its critics do."""
    if goals := goals_of(policy.interface):
        got = f"one that is told a goal ({', '.join(goals)})"
        raise BadInput("policy for fine-tuning", got=got, expected="one without: worlds of RL give none")
    if policy.net.name not in DENOISING:
        raise BadInput("policy for fine-tuning", got=f"the kind {policy.net.name!r}", available=DENOISING)
    if (steps := policy.net.config.observe) > 1:
        hint = "Its critics see one moment: train it anew with --observe-steps 1"
        raise BadInput("policy for fine-tuning", got=f"To = {steps} observed steps", expected="To = 1", hint=hint)
