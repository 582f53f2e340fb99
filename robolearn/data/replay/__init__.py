"""Steps for off-policy learning: on disk as they come, in memory as windows.

`records` one step or the end of an episode, as bytes; `log` the append-only file of them; `assembly` steps → episodes;
`buffer` episodes → windows of transitions. Imports nothing of RL.
"""

from robolearn.data.replay.assembly import Assembler, PlayedEpisode
from robolearn.data.replay.buffer import ReplayBatch, ReplayBuffer
from robolearn.data.replay.records import End, Record, RecordSchema, ReplayStep, TransitionLog

__all__ = [
    "Assembler",
    "End",
    "PlayedEpisode",
    "Record",
    "RecordSchema",
    "ReplayBatch",
    "ReplayBuffer",
    "ReplayStep",
    "TransitionLog",
]
