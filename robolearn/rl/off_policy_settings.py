"""Settings of the off-policy algorithms: frozen dataclasses whose fields are flags. Loads no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from robolearn.core import BadInput
from robolearn.rl.settings import check_positive, check_range


@dataclass(frozen=True, kw_only=True)
class OffPolicyConfig:
    """What the off-policy algorithms have in common."""

    gamma: float = 0.98
    """Discount of one control step."""
    batch: int = 256
    """Windows per gradient step, half of them demonstrations and interventions."""
    demo_share: float = 0.5
    """Share of a batch that comes from demonstrations and interventions."""
    utd: float = 2.0
    """Critic updates per control step (update-to-data ratio); it is kept, and logged."""
    actor_every: int = 2
    """Critic updates per update of the actor."""
    critics: int = 10
    """Members of the critic ensemble."""
    subset: int = 2
    """How many of them, drawn anew for each target, the minimum is taken of."""
    tau: float = 0.005
    """Share of the critics that moves into their targets with each update."""
    lr: float = 3e-4
    """Learning rate of actor, critics and temperature."""
    width: int = 256
    """Units of a hidden layer."""
    depth: int = 3
    """Hidden layers."""
    capacity: int = 200_000
    """Frames that the replay buffer keeps."""
    warmup: int = 200
    """Control steps before the first update."""

    def __post_init__(self) -> None:
        for name in ("batch", "actor_every", "critics", "subset", "width", "depth", "capacity"):
            if getattr(self, name) < 1:
                raise BadInput(f"--{name.replace('_', '-')}", got=getattr(self, name), expected="at least 1")
        if self.subset > self.critics:
            raise BadInput("--subset", got=self.subset, expected=f"at most the {self.critics} critics")
        check_range(self, gamma=(0.0, 1.0), demo_share=(0.0, 1.0), warmup=(0, math.inf))
        check_positive(self, "utd", "tau", "lr")


@dataclass(frozen=True, kw_only=True)
class RlpdConfig(OffPolicyConfig):
    """RLPD: soft actor-critic with demonstrations in every batch."""

    temperature: float = 0.01
    """α to begin with; it follows the target entropy."""
    target_entropy: float = 0.5
    """Target of the entropy, as a multiple of −|A| nats, the number of action components."""
    backup_entropy: bool = False
    """Count the entropy into the target of the critics."""


@dataclass(frozen=True, kw_only=True)
class ProposalsConfig(OffPolicyConfig):
    """Proposals and edits around a frozen policy."""

    proposals: int = 8
    """Chunks that the frozen policy proposes in each state; each gets an edited twin."""
    backup_proposals: int = 2
    """How many of them, drawn anew, and their twins, the target's maximum is taken over."""
    reach: float = 0.3
    """The largest edit of an action component."""
    edit_std: float = 0.1
    """Standard deviation of an edit to begin with, as a share of --reach."""
    imitate: float = 2.0
    """Weight that keeps the edit of a step worth imitating (an operator's, or one that led to success unaided) at what
    was executed."""
    value: float = 1.0
    """Weight of the critics in the loss of the edits."""
    caution: float = 0.0
    """Standard deviations of the ensemble that are taken off a candidate's value where one is chosen."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.backup_proposals <= self.proposals:
            raise BadInput("--backup-proposals", got=self.backup_proposals, expected=f"1 to {self.proposals}")
        check_range(self, imitate=(0.0, math.inf), value=(0.0, math.inf), caution=(0.0, math.inf))
        check_positive(self, "edit_std", "reach")
