"""Config of H2O. Loads no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from robolearn.core.switches import check_least, check_range
from robolearn.rl.off_policy_settings import OffPolicyConfig
from robolearn.rl.student_settings import StudentConfig


@dataclass(frozen=True, kw_only=True)
class H2oConfig(StudentConfig):
    """Real logs and an imperfect simulator in one replay; simulated windows count by how real their dynamics are."""

    title: ClassVar[str] = "H2O"
    page: ClassVar[str] = "robolearn.rl.algorithms.h2o:H2o"
    needs_data: ClassVar[bool] = True  # logs of the real arm, from the beginning
    later: ClassVar[dict[str, Any]] = OffPolicyConfig.later

    proposals: int = 8
    """Chunks that the policy proposes when it acts, among which the critics choose."""
    backup_proposals: int = 2
    """Chunks that they choose among in the target."""
    gap_penalty: float = 0.01
    """β: how much values of simulated windows are pressed down, the more the less real their dynamics are; in units of
    the rewards."""
    gap_noise: float = 0.1
    """Standard deviation of the noise on what the two discriminators see, in normalised units, against certainty."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "backup_proposals")
        check_range(self, gap_penalty=(0.0, math.inf), gap_noise=(0.0, math.inf))
