"""Robot contracts: one YAML file per station says how its ROS topics become observations and actions.

A contract names the arm (a `RobotSpec`), the ROS names of its joints, the topics and message types of joint states,
commands, gripper and cameras, the rates, and limits that may only be tighter than the robot's own. The nodes, the
data sets and the commands read the same file, by `load_contract`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from robolearn.core.errors import BadInput
from robolearn.core.specs import ArraySpec, Interface
from robots.control import make_control
from robots.limits import Limits
from robots.proprio import proprio_spec
from robots.spec import RobotSpec
from robots.stations.condition import Condition
from robots.stations.message_types import FLOATS, WRENCH
from robots.tool import Pose

DRIVERS = ("franka_ros2", "ur_robot_driver")


@dataclass(frozen=True)
class Topic:
    """A ROS topic.

    Attributes:
      topic: its absolute name, e.g. ``"/joint_states"``.
      type: its message type in full, e.g. ``"sensor_msgs/msg/JointState"``.
      max_age_s: how old the last message may be [s], by local arrival time.
    """

    topic: str
    type: str
    max_age_s: float = 0.1


@dataclass(frozen=True)
class Intrinsics:
    """A lens.

    Attributes:
      size: (height, width) of the pictures that the rest holds for [px].
      fx, fy, cx, cy: focal lengths and centre [px].
      distortion: coefficients in OpenCV's order, k1, k2, p1, p2, k3, …; none: none.
    """

    size: tuple[int, int]
    fx: float
    fy: float
    cx: float
    cy: float
    distortion: tuple[float, ...] = ()


@dataclass(frozen=True)
class CameraPose:
    """Where a camera is mounted: its pose (z forward, x right, y down) in the frame of its `parent`, base or flange."""

    parent: str
    pose: Pose


@dataclass(frozen=True)
class Camera(Topic):
    """A camera, and what becomes of its pictures for the policy.

    Attributes:
      size: (height, width) that they are resized to [px].
      crop: (top, left, height, width) that is cut out of the raw picture before [px]; ``"center"``: the largest part
        in its middle that has the shape of `size`; None: all of it.
      depth: distances [m] that become white and black; needed for depth images and meaningless for others.
      frame: what its pictures state as their frame in the header; empty: they are not asked. Cameras that are swapped
        show by it.
      info: the topic of its CameraInfo; empty: none.
      intrinsics: its lens, or None.
      pose: where it is mounted, or None.
    """

    size: tuple[int, int] = (84, 84)
    crop: tuple[int, int, int, int] | str | None = None
    depth: tuple[float, float] | None = None
    frame: str = ""
    info: str = ""
    intrinsics: Intrinsics | None = None
    pose: CameraPose | None = None


@dataclass(frozen=True)
class Frames:
    """Names of the arm's frames in tf."""

    base: str = "base"
    flange: str = "flange"
    tcp: str = "tcp"


@dataclass(frozen=True)
class GripperAction:
    """The action of a gripper that knows no topic; the node `gripper` passes openings on to it.

    Attributes:
      name: of the action, or of the node whose actions are `move` and `grasp`.
      type: in full, e.g. ``"control_msgs/action/GripperCommand"``.
      speed: [m/s], where the action has one.
      force: while closing [N]; the greatest effort, where the action has no force.
    """

    name: str
    type: str
    speed: float = 0.1
    force: float = 20.0


@dataclass(frozen=True)
class Gripper(Topic):
    """Where gripper commands go.

    Attributes:
      unit: ``"opening"``: one number, the distance between the fingers [m]; ``"joint"``: the position of each
        gripper joint. A `JointTrajectory` is always of joints.
      action: to which the node `gripper` passes on what comes on the topic, or None.
    """

    unit: str = "opening"
    action: GripperAction | None = None


@dataclass(frozen=True)
class Servos:
    """Bus servos that the node `servos` drives, for an arm without a ROS driver.

    Attributes:
      port: serial port, e.g. ``"/dev/ttyACM0"``.
      calibration: LeRobot's ``id``, which names its calibration file.
    """

    port: str
    calibration: str


WRENCH_NAMES = ("fx", "fy", "fz", "mx", "my", "mz")


@dataclass(frozen=True)
class ContactSensing(Topic):
    """Where the arm reports what the world does to it, and how much of that stops it.

    A `JointState` has the external torque of each joint in its efforts: the driver's own estimate, without gravity,
    inertia and friction; with `gravity` the raw torque of each motor, from which the model's gravity is taken here. A
    `WrenchStamped` has force and moment at the tool, without the tool's weight.

    Attributes:
      gravity: whether the efforts hold gravity: those of the joint states, beside the positions that it is taken for.
      most: the largest magnitudes: of the torque of each joint [Nm], or of force [N] and moment [Nm].
    """

    most: tuple[float, ...] = ()
    gravity: bool = False

    @property
    def feature(self) -> str:
        """Its name as an observation: ``external_torque`` [Nm], (n,), or ``wrench`` [N, Nm], (6,)."""
        return "wrench" if self.type == WRENCH else "external_torque"


@dataclass(frozen=True, eq=False)
class Contract:
    """What a station offers, and how it is reached.

    Attributes:
      name: the contract's name.
      robot: the arm.
      action_kind: what an action means, ``"tcp_delta"`` or ``"joint_position"``.
      control_hz: rate of the actions [Hz].
      stream_hz: rate of the commands to the controller [Hz].
      joints: (n,) ROS names of the arm's joints, base to tip: the order of the command vector.
      joint_states: where they are measured, in whatever order.
      command: where set-points go: `Float64MultiArray`, one-point `JointTrajectory`, or the tcp's `PoseStamped`.
      posture: where the joints of a commanded pose go, as a `JointState`: an arm with more than six takes a pose by
        many of them, and only those that the safety filter looked at are meant. None: nowhere.
      horizon_s: how far ahead of the arm set-points are sent [s], for a trajectory controller: no motion ends because a
        message comes late, and the arm follows that much later. 0: each is for now.
      gripper_joints: ROS names of the gripper's joints in `joint_states`.
      gripper_range: position of each of them when the gripper is closed and when it is open, in the driver's unit.
      gripper: where gripper commands go, or None.
      gripper_in_command: whether the positions of the gripper's joints are the last numbers of the command vector.
      gripper_states: where the gripper is measured, where that is not on `joint_states`.
      servos: those that the node `servos` drives, or None.
      driver: whose habits the station has, of `DRIVERS`: which emulator of a driver stands in for it in a rehearsal.
      conditions: what the robot's controller has to report before the arm may move, and while it does.
      objects: the task's privileged vector as named positions (simulation only), or None.
      object_names: components of that vector; the task knows them, see `with_objects`.
      contact: where contact is measured, or None.
      cameras: camera name → where its images arrive.
      limits: what the safety filter holds to; nowhere looser than the robot's own.
      namespace: where the topics of the arm and of our nodes are, ``""`` or ``"/left"``.
      frames: names of the arm's frames.
      simulated: whether our commands start the arm, as a simulation; a real one moves only after somebody agreed to it.
      path: the file this was read from.
    """

    name: str
    robot: RobotSpec
    action_kind: str
    control_hz: float
    stream_hz: float
    joints: tuple[str, ...]
    joint_states: Topic
    command: Topic
    gripper_joints: tuple[str, ...]
    gripper_range: tuple[float, float]
    gripper: Gripper | None
    limits: Limits
    horizon_s: float = 0.0
    posture: Topic | None = None
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
    frames: Frames = Frames()
    simulated: bool = False
    path: str = ""

    @property
    def interface(self) -> Interface:
        """What the station offers to policies, in the words of the simulated worlds."""
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
        """This contract for a task whose privileged vector has the components `names`.

        Raises:
          BadInput: names are given and the station has no `objects` topic.
        """
        names = tuple(names)
        if names and self.objects is None:
            raise BadInput(
                f"contract {self.name}", got="no objects topic", expected=f"a topic for {', '.join(names[:3])}, …"
            )
        return dataclasses.replace(self, object_names=names)

    def with_cameras(self, names: Iterable[str]) -> Contract:
        """This contract with some of its cameras only.

        Raises:
          BadInput: it has no camera of that name.
        """
        names = tuple(names)
        for name in names:
            if name not in self.cameras:
                raise BadInput(f"camera of contract {self.name}", got=name, available=self.cameras or ("none",))
        return dataclasses.replace(self, cameras={name: self.cameras[name] for name in dict.fromkeys(names)})

    def with_picture_sizes(self, observation: Mapping[str, ArraySpec]) -> Contract:
        """This contract with its cameras' pictures resized to what a policy that needs `observation` has learned from;
        cameras that it does not look through stay as they are."""
        cameras = dict(self.cameras)
        for name, camera in cameras.items():
            spec = observation.get(f"images.{name}")
            if spec is not None and len(spec.shape) == 3:
                cameras[name] = dataclasses.replace(camera, size=(spec.shape[0], spec.shape[1]))
        return dataclasses.replace(self, cameras=cameras)

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
        """Whether a command on the `gripper` topic is the opening [m] rather than joint positions."""
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
