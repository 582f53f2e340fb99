"""Steps for off-policy learning: on disk as they come, in memory as windows.

`records` one step or the end of an episode, as bytes, the append-only file of them, and steps → episodes; `scores` what
a reward model made of them; `buffer` episodes → windows of transitions. Imports nothing of RL.
"""

from robolearn.data.replay.buffer import ReplayBatch, ReplayBuffer
from robolearn.data.replay.records import Assembler, End, PlayedEpisode, Record, RecordSchema, ReplayStep, TransitionLog
from robolearn.data.replay.scores import EpisodeKey, ScoreLog, StoredScore

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
