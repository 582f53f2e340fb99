"""A policy on the simulated arm or a real one: nodes as processes, episodes, the operator, the result."""

from robolearn.deploy.deployment import Deployment, Simulation, deploy
from robolearn.deploy.processes import NodeDied, Processes, Program
from robolearn.deploy.session import Arm, EpisodeResult, Operator, SafetyStopped, SafetySwitch, run_session

__all__ = [
    "Arm",
    "Deployment",
    "EpisodeResult",
    "NodeDied",
    "Operator",
    "Processes",
    "Program",
    "SafetyStopped",
    "SafetySwitch",
    "Simulation",
    "deploy",
    "run_session",
]
