"""Stations: an arm, or two, with topics, cameras, frames and tightened limits, as a contract that all rooms read."""

from robots.stations.contract import Contract
from robots.stations.contract_file import CONTRACTS, contract_names, load_contract
from robots.stations.mounting import Camera, CameraPose, Frames, Intrinsics
from robots.stations.pair_contract import AnyContract, PairContract, load_any_contract, load_pair, pair_names
from robots.stations.parts import CommandTopic, Condition, ContactSensing, Gripper, GripperAction, Servos, Topic
from robots.stations.values import (
    COMPRESSED,
    FLOATS,
    FRANKA_GRASP,
    GRIPPER_COMMAND,
    IMAGE,
    JOINT_STATE,
    POSE,
    STRING,
    TRAJECTORY,
    WRENCH,
)

__all__ = [
    "COMPRESSED", "CONTRACTS", "FLOATS", "FRANKA_GRASP", "GRIPPER_COMMAND", "IMAGE", "JOINT_STATE", "POSE", "STRING",
    "TRAJECTORY", "WRENCH", "AnyContract", "Camera", "CameraPose", "CommandTopic", "Condition", "ContactSensing",
    "Contract", "Frames", "Gripper", "GripperAction", "Intrinsics", "PairContract", "Servos", "Topic", "contract_names",
    "load_any_contract", "load_contract", "load_pair", "pair_names",
]  # fmt: skip
