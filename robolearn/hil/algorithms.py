"""Names → algorithms."""

from __future__ import annotations

from policies.policy import ChunkPolicy
from robolearn.hil.settings import Lesson
from robolearn.rl.algorithms.dsrl import Dsrl
from robolearn.rl.algorithms.off_policy import OffPolicy
from robolearn.rl.algorithms.proposals import Proposals
from robolearn.rl.algorithms.rlpd import Rlpd
from robolearn.rl.off_policy_settings import DsrlConfig, ProposalsConfig, RlpdConfig
from robolearn.rl.tunable import check_tunable


def make_off_policy(base: ChunkPolicy, lesson: Lesson) -> OffPolicy:
    """The algorithm that `lesson` names, around `base`.

    Raises:
      BadInput: a base that RL does not start from.
    """
    check_tunable(base)
    settings = lesson.settings
    if isinstance(settings, ProposalsConfig):
        return Proposals(base, settings, seed=lesson.seed)
    if isinstance(settings, DsrlConfig):
        return Dsrl(base, settings, seed=lesson.seed)
    assert isinstance(settings, RlpdConfig)
    return Rlpd(base, settings, seed=lesson.seed)
