"""Permissions of our nodes to publish, subscribe, call and serve, as a policy of SROS2.

With DDS Security enforced, a program without a key takes no part, and one with a key does what its enclave permits: of
our programs only the safety node may publish to the controller, and only the operator's hold the dead-man's switch. An
enclave has the name of its node. The format is that of github.com/ros2/sros2, sros2/policy/schemas/policy.xsd.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET

from hardware.ros2 import topics
from robots.stations import FRANKA_GRASP, AnyContract, Contract, GripperAction

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


def permissions(contract: AnyContract, *, poses: bool = False) -> dict[str, dict[str, Names]]:
    """Full name of a node → its permissions at the station of `contract`; with `poses` the safety node takes poses,
    from a node `planner` of other software."""
    arms = contract.arms.values()
    lenses = tuple(camera.info for camera in contract.cameras.values() if camera.info)
    cameras = tuple(camera.topic for camera in contract.cameras.values())
    commands = tuple(name for arm in arms for name in _commands(arm))
    # What the safety node hears of the arms: everything measured but pictures and the task's objects.
    felt = tuple(name for arm in arms for name in _felt(arm))
    measured = (*felt, *cameras, *(() if contract.objects is None else (contract.objects.topic,)))
    states = tuple(arm.joint_states.topic for arm in arms)
    own = tuple(arm.gripper_states.topic for arm in arms if arm.gripper_states)
    conditions = tuple(condition.topic for arm in arms for condition in arm.conditions)
    events = tuple(f"{service}/_service_event" for service in (topics.ARM, topics.RESET))  # the callers
    switch = (topics.ARM, topics.DISARM, topics.RESET)
    verdicts = (topics.SUCCESS, topics.FAILURE)
    simulated = (topics.SIM_EPISODE, topics.SIM_MONITOR) if contract.simulated else ()
    begin = (topics.SIM_RESET,) if contract.simulated else ()
    scene = (topics.SIM_SCENE,) if contract.simulated else ()  # never the policy's
    statuses = (topics.POLICY_STATUS, topics.STREAMER_STATUS, topics.MOTION_STATUS)
    targets = (topics.TARGET_POSE, topics.TARGET_OPENING) if poses else (topics.TARGET,)
    found = {
        "safety": _node(
            publish=(*commands, topics.SAFETY_STATE, topics.ACCEPTED, topics.SET_POINT, *events),
            subscribe=(*felt, *conditions, topics.DEADMAN, *targets, *events),
            reply=(*switch, topics.ESTOP),
        ),
        "streamer": _node(
            publish=(topics.TARGET, topics.STREAMER_STATUS),
            subscribe=(*states, topics.SAFETY_STATE, topics.ACTION_CHUNK, topics.POLICY_ALIVE),
            reply=(topics.GO_HOME,),
        ),
        "policy": _node(
            publish=(topics.ACTION_CHUNK, topics.POLICY_STATUS, topics.POLICY_ALIVE),
            subscribe=(*measured, topics.SAFETY_STATE),
            request=(topics.DISARM,),  # at the end of an episode
            reply=verdicts,
        ),
        "operator": _node(
            publish=(topics.DEADMAN, topics.ROLLOUT),
            subscribe=(topics.SAFETY_STATE, *statuses, *states, *simulated),
            request=(*switch, topics.ESTOP, topics.GO_HOME, *verdicts, *begin),
            lifecycle=False,
        ),
        "teleop": _node(
            publish=(topics.TARGET, topics.DEADMAN), subscribe=(*states, topics.SAFETY_STATE, *scene), request=switch
        ),
        "record": _node(
            publish=(topics.TARGET, topics.DEADMAN),
            subscribe=(*measured, topics.SAFETY_STATE, topics.ACCEPTED, *simulated, *scene),
            request=(*switch, *begin),
        ),
        "rollouts": _node(
            subscribe=(
                *measured,
                topics.SAFETY_STATE,
                topics.TARGET,
                topics.ACCEPTED,
                topics.ROLLOUT,
                topics.POLICY_STATUS,
            ),
        ),
        "motion": _node(
            publish=(topics.TARGET, topics.MOTION_STATUS), subscribe=(*states, topics.SAFETY_STATE, topics.SET_POINT)
        ),
        "doctor": _node(subscribe=(*measured, *lenses, topics.SAFETY_STATE), lifecycle=False),
        "film": _node(subscribe=(topics.ROLLOUT, *((*states, *own, *scene) if contract.simulated else cameras))),
        "calibrate": _node(subscribe=(*states, *cameras), lifecycle=False),
    }
    if poses:
        found["planner"] = _node(publish=targets, subscribe=(topics.SAFETY_STATE,), lifecycle=False)
    acting = [(arm, arm.gripper, arm.gripper.action) for arm in arms if arm.gripper is not None and arm.gripper.action]
    if acting:
        heard = (name for arm, gripper, _ in acting for name in (gripper.topic, *_joint_topics(arm)))
        calls = (name for _, _, action in acting for name in actions_of(action))
        found["gripper"] = _node(subscribe=tuple(heard), call=tuple(calls))
    for arm in arms:
        if arm.servos is not None:  # in the namespace of its arm
            servos = _node(publish=(arm.joint_states.topic,), subscribe=(arm.command.topic,))
            found[_full("servos", arm.namespace)] = servos
    if contract.simulated:
        found["sim_arm"] = _node(publish=(*measured, *simulated, *scene), subscribe=commands, reply=begin)
    return {name if name.startswith("/") else _full(name, contract.namespace): one for name, one in found.items()}


def _full(node: str, station: str) -> str:
    return f"{topics.namespace_of_nodes(station)}/{node}"


def _joint_topics(arm: Contract) -> Names:
    return tuple(topic.topic for topic in (arm.joint_states, arm.gripper_states) if topic is not None)


def _felt(arm: Contract) -> Names:
    return (*_joint_topics(arm), *(() if arm.contact is None else (arm.contact.topic,)))


def _commands(arm: Contract) -> Names:
    return tuple(topic.topic for topic in (arm.command, arm.gripper, arm.command.posture) if topic is not None)


def policy_xml(contract: AnyContract, *, poses: bool = False) -> str:
    """The policy of the nodes at the station of `contract`, one enclave each. Args: see `permissions`."""
    root = ET.Element("policy", version=VERSION)
    enclaves = ET.SubElement(root, "enclaves")
    for node, allowed in permissions(contract, poses=poses).items():
        enclave = ET.SubElement(enclaves, "enclave", path=node)
        namespace, _, name = node.rpartition("/")
        profile = ET.SubElement(ET.SubElement(enclave, "profiles"), "profile", ns=namespace, node=name)
        for verb, names in allowed.items():
            kind = _KINDS[verb]
            if names:
                group = ET.SubElement(profile, f"{kind}s", {verb: "ALLOW"})
                for one in dict.fromkeys(names):
                    ET.SubElement(group, kind).text = one.replace("~/", f"{node}/")
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def actions_of(action: GripperAction) -> tuple[str, ...]:
    """The full names of the actions that pass openings on."""
    return (f"{action.name}/move", f"{action.name}/grasp") if action.type == FRANKA_GRASP else (action.name,)
