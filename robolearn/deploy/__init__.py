"""A policy on the simulated arm or a real one: nodes as processes, episodes, the operator, the result."""

from robolearn.deploy.deployment import Deployment, Simulation, deploy
from robolearn.deploy.processes import NodeDied, Program, StackProcesses
from robolearn.deploy.session import Arm, ArmOperator, EpisodeResult, SafetyStopped, SafetySwitch, run_session

__all__ = [
    "Arm", "ArmOperator", "Deployment", "EpisodeResult", "NodeDied", "Program", "SafetyStopped", "SafetySwitch",
    "Simulation", "StackProcesses", "deploy", "run_session",
]  # fmt: skip
