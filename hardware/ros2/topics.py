"""Names of our own topics and services, relative to the namespace of our nodes; those of the arm are in its contract.

Our nodes live in `/robolearn`, those of a station with the namespace `/left` in `/left/robolearn`: two arms share one
domain, and neither receives from the other.
"""

from __future__ import annotations

NAMESPACE = "/robolearn"  # of nodes, for a station without a namespace

ACTION_CHUNK = "action_chunk"  # policy → streamer
TARGET = "target"  # streamer → safety; no points: stop, the reason in header.frame_id
TARGET_POSE = "target_pose"  # instead of TARGET, where the safety node takes poses: planner of other software → safety
TARGET_OPENING = "target_opening"  # beside TARGET_POSE: of the gripper [m]
ACCEPTED = "accepted"  # safety → recorder: where the arm goes in answer to the target of the same stamp
SET_POINT = "set_point"  # safety → motion: what it sends to the controller, tick by tick, while somebody listens
DEADMAN = "deadman"  # operator → safety
SAFETY_STATE = "safety_state"  # safety → everybody
STREAMER_STATUS = "streamer_status"
POLICY_STATUS = "policy_status"
MOTION_STATUS = "motion_status"
ROLLOUT = "rollout"  # robolearn deploy → rollouts, film: an episode begins, and its outcome
POLICY_ALIVE = "policy_alive"  # policy → streamer, 50 Hz

ARM = "arm"
DISARM = "disarm"
RESET = "reset"
ESTOP = "estop"
GO_HOME = "go_home"  # of the streamer: armed next, it brings the arm home, and takes no chunk until armed once more
SUCCESS = "policy/success"  # the operator's verdict ends the episode of a policy node that takes it
FAILURE = "policy/failure"

SIM_RESET = "sim_arm/reset"
SIM_EPISODE = "sim_arm/episode"
SIM_MONITOR = "sim_arm/monitor"
SIM_SCENE = "sim_arm/scene"  # sim_arm → pages: what stands around the arm, for people's eyes


def namespace_of_nodes(station: str) -> str:
    """Namespace of the nodes of a station whose own namespace is ``""`` or ``"/left"``."""
    return f"{station}{NAMESPACE}"


def namespace_of_station(nodes: str) -> str:
    """The inverse of `namespace_of_nodes`; of nodes that were put elsewhere (``__ns:=/left``), that place."""
    return nodes.rstrip("/").removesuffix(NAMESPACE)
