"""Names of our own topics and services; those of the arm are in its contract."""

from __future__ import annotations

NAMESPACE = "/robolearn"

ACTION_CHUNK = f"{NAMESPACE}/action_chunk"  # policy → streamer
TARGET = f"{NAMESPACE}/target"  # streamer → safety; no points: stop, the reason in header.frame_id
ACCEPTED = f"{NAMESPACE}/accepted"  # safety → recorder: where the arm goes in answer to the target of the same stamp
DEADMAN = f"{NAMESPACE}/deadman"  # operator → safety
SAFETY_STATE = f"{NAMESPACE}/safety_state"  # safety → everybody
STREAMER_STATUS = f"{NAMESPACE}/streamer_status"
POLICY_STATUS = f"{NAMESPACE}/policy_status"
POLICY_ALIVE = f"{NAMESPACE}/policy_alive"  # policy → streamer, 50 Hz

ARM = f"{NAMESPACE}/arm"
DISARM = f"{NAMESPACE}/disarm"
RESET = f"{NAMESPACE}/reset"
ESTOP = f"{NAMESPACE}/estop"

SIM_RESET = "/sim_arm/reset"
SIM_EPISODE = "/sim_arm/episode"
SIM_MONITOR = "/sim_arm/monitor"
