"""The last stage before any controller: no output of a policy reaches the arm but through here. No ROS.

`SafetyFilter` turns targets of any quality into set-points that the arm can follow, or brakes and latches. It
supplements the emergency stop and the limits of the arm's own controller, and replaces neither.
"""

from hardware.safety.filter import SafetyFilter
from hardware.safety.states import ArmCommand, JointTarget, PairTarget, PoseTarget, SafetyRefused, SafetyState
from robots.limits import Limits

__all__ = [
    "ArmCommand",
    "JointTarget",
    "Limits",
    "PairTarget",
    "PoseTarget",
    "SafetyFilter",
    "SafetyRefused",
    "SafetyState",
]
