"""Permissions of our nodes to publish, subscribe, call and serve, as a policy of SROS2.

With DDS Security enforced, a program without a key takes no part, and one with a key does what its enclave permits: of
our programs only the safety node may publish to the controller, and only the operator's hold the dead-man's switch. An
enclave has the name of its node. The format is that of github.com/ros2/sros2, sros2/policy/schemas/policy.xsd.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET

from hardware.ros2 import topics
from robots.stations import FRANKA_GRASP, Contract, GripperAction

VERSION = "0.2.0"  # of the format

# What rclpy opens for every node, in a node's own namespace where it begins with ~.
PARAMETERS = (
    "~/describe_parameters", "~/get_parameter_types", "~/get_parameters", "~/list_parameters", "~/set_parameters",
    "~/set_parameters_atomically", "~/get_type_description",
)  # fmt: skip
LIFECYCLE = (
    "~/change_state", "~/get_available_states", "~/get_available_transitions", "~/get_state", "~/get_transition_graph",
)  # fmt: skip
_KINDS = {"publish": "topic", "subscribe": "topic", "reply": "service", "request": "service", "call": "action"}

Names = tuple[str, ...]
"""Relative to the namespace of our nodes, absolute, or ``~/`` and what is the node's own."""


def _node(lifecycle: bool = True, **names: Names) -> dict[str, Names]:
    """Verb of `_KINDS` → what one node may do it with: what rclpy opens for all of them, and `names` of its own."""
    own = {"publish": ("/rosout", "/parameter_events"), "subscribe": ("/parameter_events",), "reply": PARAMETERS}
    more = {"publish": ("~/transition_event",), "reply": LIFECYCLE} if lifecycle else {}
    return {verb: (*own.get(verb, ()), *more.get(verb, ()), *names.get(verb, ())) for verb in _KINDS}


def permissions(contract: Contract, *, poses: bool = False) -> dict[str, dict[str, Names]]:
    """Node → its permissions at the station of `contract`; with `poses` the safety node takes poses, from a node
    `planner` of other software."""
    of = {role: topic.topic for role, topic in contract.topics.items()}
    if contract.objects is not None:
        of["objects"] = contract.objects.topic
    lenses = tuple(camera.info for camera in contract.cameras.values() if camera.info)
    commands = tuple(of[role] for role in ("command", "gripper") if role in of)
    commands += () if contract.command.posture is None else (contract.command.posture.topic,)
    measured = tuple(name for role, name in of.items() if role not in ("command", "gripper"))
    states, cameras = contract.joint_states.topic, tuple(camera.topic for camera in contract.cameras.values())
    own = (contract.gripper_states.topic,) if contract.gripper_states else ()
    # What the safety node hears of the arm: everything measured but pictures and the task's objects.
    felt = tuple(of[role] for role in of if role not in ("command", "gripper", "objects") and "images." not in role)
    events = tuple(f"{service}/_service_event" for service in (topics.ARM, topics.RESET))  # the callers
    switch = (topics.ARM, topics.DISARM, topics.RESET)
    simulated = (topics.SIM_EPISODE, topics.SIM_MONITOR) if contract.simulated else ()
    begin = (topics.SIM_RESET,) if contract.simulated else ()
    scene = (topics.SIM_SCENE,) if contract.simulated else ()  # never the policy's
    statuses = (topics.POLICY_STATUS, topics.STREAMER_STATUS, topics.MOTION_STATUS)
    targets = (topics.TARGET_POSE, topics.TARGET_OPENING) if poses else (topics.TARGET,)
    found = {
        "safety": _node(
            publish=(*commands, topics.SAFETY_STATE, topics.ACCEPTED, topics.SET_POINT, *events),
            subscribe=(*felt, *(c.topic for c in contract.conditions), topics.DEADMAN, *targets, *events),
            reply=(*switch, topics.ESTOP),
        ),
        "streamer": _node(
            publish=(topics.TARGET, topics.STREAMER_STATUS),
            subscribe=(states, topics.SAFETY_STATE, topics.ACTION_CHUNK, topics.POLICY_ALIVE),
            reply=(topics.GO_HOME,),
        ),
        "policy": _node(
            publish=(topics.ACTION_CHUNK, topics.POLICY_STATUS, topics.POLICY_ALIVE),
            subscribe=(*measured, topics.SAFETY_STATE),
            request=(topics.DISARM,),  # at the end of an episode
        ),
        "operator": _node(
            publish=(topics.DEADMAN,),
            subscribe=(topics.SAFETY_STATE, *statuses, states, *simulated),
            request=(*switch, topics.ESTOP, topics.GO_HOME, *begin),
            lifecycle=False,
        ),
        "teleop": _node(
            publish=(topics.TARGET, topics.DEADMAN), subscribe=(states, topics.SAFETY_STATE, *scene), request=switch
        ),
        "record": _node(
            publish=(topics.TARGET, topics.DEADMAN),
            subscribe=(*measured, topics.SAFETY_STATE, topics.ACCEPTED, *simulated, *scene),
            request=(*switch, *begin),
        ),
        "motion": _node(
            publish=(topics.TARGET, topics.MOTION_STATUS), subscribe=(states, topics.SAFETY_STATE, topics.SET_POINT)
        ),
        "doctor": _node(subscribe=(*measured, *lenses, topics.SAFETY_STATE), lifecycle=False),
        "film": _node(subscribe=(states, *own, *scene) if contract.simulated else cameras),
        "calibrate": _node(subscribe=(states, *cameras), lifecycle=False),
    }
    if poses:
        found["planner"] = _node(publish=targets, subscribe=(topics.SAFETY_STATE,), lifecycle=False)
    if contract.gripper is not None and contract.gripper.action is not None:
        heard = (of["gripper"], *((contract.gripper_states or contract.joint_states).topic,))
        found["gripper"] = _node(subscribe=heard, call=actions_of(contract.gripper.action))
    if contract.servos is not None:
        found["servos"] = _node(publish=(states,), subscribe=(of["command"],))
    if contract.simulated:
        found["sim_arm"] = _node(publish=(*measured, *simulated, *scene), subscribe=commands, reply=begin)
    return found


def policy_xml(contract: Contract, *, poses: bool = False) -> str:
    """The policy of the nodes at the station of `contract`, one enclave each. Args: see `permissions`."""
    namespace = topics.namespace_of_nodes(contract.namespace)
    root = ET.Element("policy", version=VERSION)
    enclaves = ET.SubElement(root, "enclaves")
    for node, allowed in permissions(contract, poses=poses).items():
        enclave = ET.SubElement(enclaves, "enclave", path=f"{namespace}/{node}")
        profile = ET.SubElement(ET.SubElement(enclave, "profiles"), "profile", ns=namespace, node=node)
        for verb, names in allowed.items():
            kind = _KINDS[verb]
            if names:
                group = ET.SubElement(profile, f"{kind}s", {verb: "ALLOW"})
                for name in dict.fromkeys(names):
                    ET.SubElement(group, kind).text = name.replace("~/", f"{namespace}/{node}/")
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def actions_of(action: GripperAction) -> tuple[str, ...]:
    """The full names of the actions that pass openings on."""
    return (f"{action.name}/move", f"{action.name}/grasp") if action.type == FRANKA_GRASP else (action.name,)
