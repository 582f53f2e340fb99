"""Steps for off-policy learning: on disk as they come, in memory as windows.

`records` one step or the end of an episode, as bytes, the append-only file of them, and steps → episodes; `scores` what
a reward model made of them; `buffer` episodes → windows of transitions. Imports nothing of RL.
"""

from typing import TYPE_CHECKING, Any

from robolearn.data.replay.records import Assembler, End, PlayedEpisode, Record, RecordSchema, ReplayStep, TransitionLog
from robolearn.data.replay.scores import EpisodeKey, ScoreLog, StoredScore

if TYPE_CHECKING:
    from robolearn.data.replay.buffer import ReplayBatch, ReplayBuffer

__all__ = [
    "Assembler",
    "End",
    "EpisodeKey",
    "PlayedEpisode",
    "Record",
    "RecordSchema",
    "ReplayBatch",
    "ReplayBuffer",
    "ReplayStep",
    "ScoreLog",
    "StoredScore",
    "TransitionLog",
]


def __getattr__(name: str) -> Any:
    # Windows are tensors: who reads or writes records does not import torch.
    if name in ("ReplayBatch", "ReplayBuffer"):
        from robolearn.data.replay import buffer

        return getattr(buffer, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
