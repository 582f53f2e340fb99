"""Robot contracts: one YAML file per station says how its ROS topics become observations and actions.

A contract names the arm (a `RobotSpec`), the ROS names of its joints, the topics and message types of joint states,
commands, gripper and cameras, the rates, and limits that may only be tighter than the robot's own. The nodes, the
data sets and the commands read the same file, by `load_contract`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from robolearn.core.errors import BadInput
from robolearn.core.specs import ArraySpec, Interface
from robots.control import GRIPPER, make_control
from robots.limits import Limits
from robots.spec import RobotSpec, proprio_spec
from robots.stations.mounting import Camera, Frames
from robots.stations.parts import WRENCH_NAMES, CommandTopic, Condition, ContactSensing, Gripper, Servos, Topic
from robots.stations.values import FLOATS, WRENCH

DRIVERS = ("ros2_control", "franka_ros2", "ur_robot_driver")


@dataclass(frozen=True, eq=False)
class Contract:
    """Offer of a station, and the way to reach it.

    Attributes:
      name: the contract's name.
      robot: the arm.
      action_kind: what an action means, ``"tcp_delta"`` or ``"joint_position"``.
      control_hz: rate of the actions [Hz].
      stream_hz: rate of the commands to the controller [Hz].
      joints: (n,) ROS names of the arm's joints, base to tip: the order of the command vector.
      joint_states: where they are measured, in whatever order.
      command: where set-points go, how far ahead of the arm, and by which posture.
      gripper_joints: ROS names of the gripper's joints in `joint_states`.
      gripper_range: position of each of them when the gripper is closed and when it is open, in the driver's unit.
      gripper: where gripper commands go, or None.
      gripper_in_command: the positions of the gripper's joints are the last numbers of the command vector.
      gripper_states: where the gripper is measured, where that is not on `joint_states`.
      servos: those of the node `servos`, or None.
      driver: of `DRIVERS`, whose emulator stands in for the station in a rehearsal.
      conditions: reports of the robot's controller that the arm needs to move.
      objects: the task's privileged vector as named positions (simulation only), or None.
      object_names: components of that vector, given by the task; see `with_objects`.
      contact: where contact is measured, or None.
      cameras: camera name → where its images arrive.
      limits: those of the safety filter; nowhere looser than the robot's own.
      namespace: where the topics of the arm and of our nodes are, ``""`` or ``"/left"``.
      frames: names of the arm's frames.
      simulated: our commands start the arm, as a simulation; a real one moves only after a person agreed to it.
      path: the file this was read from.
      version: of the station's folder (`robots.stations.folder`), ``""`` without one.
    """

    name: str
    robot: RobotSpec
    action_kind: str
    control_hz: float
    stream_hz: float
    joints: tuple[str, ...]
    joint_states: Topic
    command: CommandTopic
    gripper_joints: tuple[str, ...]
    gripper_range: tuple[float, float]
    gripper: Gripper | None
    limits: Limits
    gripper_states: Topic | None = None
    gripper_in_command: bool = False
    servos: Servos | None = None
    driver: str = ""
    conditions: tuple[Condition, ...] = ()
    objects: Topic | None = None
    object_names: tuple[str, ...] = ()
    contact: ContactSensing | None = None
    cameras: Mapping[str, Camera] = field(default_factory=dict)
    namespace: str = ""
    frames: Frames = field(default_factory=Frames)
    simulated: bool = False
    path: str = ""
    version: str = ""

    @property
    def arms(self) -> Mapping[str, Contract]:
        """The arms of the station: this one, which needs no name."""
        return {"": self}

    def with_arms(self, change: Callable[[Contract], Contract]) -> Contract:
        """This contract with each arm's changed."""
        return change(self)

    @property
    def horizon_s(self) -> float:
        """Time by which set-points are sent ahead of the arm [s]."""
        return self.command.horizon_s

    @property
    def grippers(self) -> tuple[str, ...]:
        """Names of the openings among the numbers of a target, behind those of the joints."""
        return (GRIPPER,)

    @property
    def interface(self) -> Interface:
        """Interface to policies, in the words of the simulated worlds."""
        observation = {"proprio": proprio_spec(self.robot)}
        if self.object_names:
            observation["objects"] = ArraySpec((len(self.object_names),), names=self.object_names)
        if self.contact is not None:
            names = WRENCH_NAMES if self.contact.type == WRENCH else self.robot.joints
            observation[self.contact.feature] = ArraySpec((len(names),), names=names)
        for name, camera in self.cameras.items():
            observation[f"images.{name}"] = ArraySpec((*camera.size, 3), "uint8")
        action = make_control(self.action_kind, self.robot).spec
        return Interface(observation, action, self.control_hz, self.robot.name, self.action_kind)

    def with_objects(self, names: Iterable[str]) -> Contract:
        """This contract for a task whose privileged vector has the components `names`. Raises `BadInput`: names are
        given and the station has no `objects` topic."""
        names = tuple(names)
        check_objects(self.name, self.objects, names)
        return dataclasses.replace(self, object_names=names)

    def with_cameras(self, names: Iterable[str]) -> Contract:
        """This contract with some of its cameras only. Raises `BadInput`: it has no camera of that name."""
        return dataclasses.replace(self, cameras=picked(self.name, self.cameras, names))

    def with_picture_sizes(self, observation: Mapping[str, ArraySpec]) -> Contract:
        """This contract with its cameras' pictures resized to what a policy that needs `observation` has learned from;
        cameras that it does not look through stay as they are."""
        return dataclasses.replace(self, cameras=resized(self.cameras, observation))

    @property
    def command_joints(self) -> tuple[str, ...]:
        """The joints of the command vector."""
        return (*self.joints, *(self.gripper_joints if self.gripper_in_command else ()))

    def gripper_width(self, positions: Sequence[float]) -> float:
        """Opening [m] at the measured `positions` of `gripper_joints`, taken as linear in between."""
        closed, opened = self.gripper_range
        share = math.fsum((q - closed) / (opened - closed) for q in positions) / len(positions)
        return share * self.robot.gripper.max_width

    def gripper_joint_positions(self, width: float) -> tuple[float, ...]:
        """Position of each of `gripper_joints` at an opening of `width` [m], the inverse of `gripper_width`."""
        closed, opened = self.gripper_range
        most = self.robot.gripper.max_width
        share = width / most if most > 0 else 0.0
        return (closed + (opened - closed) * share,) * len(self.gripper_joints)

    @property
    def gripper_takes_opening(self) -> bool:
        """True where a command on the `gripper` topic is the opening [m] rather than joint positions."""
        return self.gripper is not None and self.gripper.type == FLOATS and self.gripper.unit == "opening"

    def gripper_values(self, width: float) -> tuple[float, ...]:
        """The numbers of a gripper command for an opening of `width` [m], in the unit of the `gripper` topic."""
        return (width,) if self.gripper_takes_opening else self.gripper_joint_positions(width)

    @property
    def topics(self) -> dict[str, Topic]:
        """Role → topic, of all that `interface` needs: ``joint_states``, ``command``, …, ``images.<camera>``."""
        found: dict[str, Topic] = {"joint_states": self.joint_states, "command": self.command}
        if self.gripper is not None:
            found["gripper"] = self.gripper
        if self.gripper_states is not None:
            found["gripper_states"] = self.gripper_states
        if self.objects is not None and self.object_names:
            found["objects"] = self.objects
        if self.contact is not None:
            found[self.contact.feature] = self.contact
        return found | {f"images.{name}": camera for name, camera in self.cameras.items()}


def check_objects(name: str, objects: Topic | None, names: tuple[str, ...]) -> None:
    """Raise `BadInput` where contract `name` has no topic for the components `names` of a task's privileged vector."""
    if names and objects is None:
        raise BadInput(f"contract {name}", got="no objects topic", expected=f"a topic for {', '.join(names[:3])}, …")


def picked(contract: str, cameras: Mapping[str, Camera], names: Iterable[str]) -> dict[str, Camera]:
    """Those of the `cameras` of a contract that are called `names`. Raises `BadInput`: there is none of that name."""
    found = {}
    for name in names:
        if name not in cameras:
            raise BadInput(f"camera of contract {contract}", got=name, available=cameras or ("none",))
        found[name] = cameras[name]
    return found


def resized(cameras: Mapping[str, Camera], observation: Mapping[str, ArraySpec]) -> dict[str, Camera]:
    """`cameras` with their pictures resized to those of `observation`."""
    found = dict(cameras)
    for name, camera in found.items():
        spec = observation.get(f"images.{name}")
        if spec is not None and len(spec.shape) == 3:
            found[name] = dataclasses.replace(camera, size=(spec.shape[0], spec.shape[1]))
    return found
