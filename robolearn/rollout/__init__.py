"""The one episode engine: something that acts in N worlds, chunk by chunk, for exactly n episodes or T decisions.

Collecting, evaluating, calibrating and RL stand on it; what they do with a `Turn` is theirs.
"""

from robolearn.rollout.agents import Agent, Decision, PolicyAgent, TeleoperatorAgent
from robolearn.rollout.engine import Decisions, Engine, Episodes, Turn, spread

__all__ = ["Agent", "Decision", "Decisions", "Engine", "Episodes", "PolicyAgent", "TeleoperatorAgent", "Turn", "spread"]
