"""Config of H2O. Loads no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from robolearn.core.switches import Count, NotNegative
from robolearn.rl.off_policy_settings import OffPolicyConfig
from robolearn.rl.student_settings import StudentConfig


@dataclass(frozen=True, kw_only=True)
class H2oConfig(StudentConfig):
    """Real logs and an imperfect simulator in one replay; simulated windows count by how real their dynamics are."""

    title: ClassVar[str] = "H2O"
    page: ClassVar[str] = "robolearn.rl.algorithms.h2o:H2o"
    needs_data: ClassVar[bool] = True  # logs of the real arm, from the beginning
    later: ClassVar[dict[str, Any]] = OffPolicyConfig.later

    proposals: Count = 8
    """Chunks that the policy proposes when it acts, among which the critics choose."""
    backup_proposals: Count = 2
    """Chunks that they choose among in the target."""
    gap_penalty: NotNegative = 0.01
    """β: how much values of simulated windows are pressed down, the more the less real their dynamics are; in units of
    the rewards."""
    gap_noise: NotNegative = 0.1
    """Standard deviation of the noise on what the two discriminators see, in normalised units, against certainty."""
