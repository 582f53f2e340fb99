"""Steps for off-policy learning: on disk as they come, in memory as windows.

`records` one step or the end of an episode, as bytes; `log` the append-only file of them; `assembly` steps → episodes;
`buffer` episodes → windows of transitions. Imports nothing of RL.
"""

from robolearn.data.replay.assembly import Assembler, PlayedEpisode
from robolearn.data.replay.buffer import ReplayBuffer, WindowBatch
from robolearn.data.replay.records import End, Record, RecordSchema, Step, TransitionLog

__all__ = [
    "Assembler",
    "End",
    "PlayedEpisode",
    "Record",
    "RecordSchema",
    "ReplayBuffer",
    "Step",
    "TransitionLog",
    "WindowBatch",
]
