"""Running a policy at a fixed rate, on the simulated arm or a real one: processes, episodes, the result."""

from robolearn.deploy.processes import NodeDied, Processes, Program
from robolearn.deploy.session import Arm, EpisodeResult, Operator, SafetyStopped, run_session

__all__ = [
    "Arm",
    "EpisodeResult",
    "NodeDied",
    "Operator",
    "Processes",
    "Program",
    "SafetyStopped",
    "run_session",
]
