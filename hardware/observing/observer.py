"""From messages to a policy's observation: the newest of every input, its freshness and validity.

The age of an input is the steady time since its arrival. Its own stamps give the order of messages and show whether
it still advances: a driver that repeats its last message looks fresh and is not. For pictures see
`hardware.observing.pictures`.

Contact (external torques, or the wrench at the tool) is judged by its magnitude as it comes, without a tare: one would
hide what the arm already pushes against when it is armed. What a sensor shows of its tool's weight belongs to the
driver (UR: payload and `zero_ftsensor`).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from hardware.observing.joints import StationJoints, pick
from hardware.observing.pictures import CameraPictures
from hardware.observing.timing import Freshness
from robolearn.core import BadInput, RobolearnError
from robots.pair import AnyRobot
from robots.stations import AnyContract, Contract
from robots.stations.parts import WRENCH_NAMES

Array = NDArray[np.float64]


class ContactReader:
    """External torques of the joints, or the wrench at the tool, out of messages of a station that has a `contact`
    topic.

    Attributes:
      feature, name: name as an observation, and of the input, for reasons.
      freshness: of the messages, by `clock`, the steady time [s].
      values: (n,) torques [Nm] in the order of the contract's joints, or (6,) force [N] and moment [Nm]; None at first.
    """

    def __init__(self, contract: Contract, clock: Callable[[], float] = time.monotonic) -> None:
        assert contract.contact is not None
        self._sensing = contract.contact
        wrench = contract.contact.feature == "wrench"
        self._names = WRENCH_NAMES if wrench else contract.joints
        self._parts = ("force", "moment") if wrench else contract.joints
        # Raw torques of motors: what carries the arm where it is has to be taken from them.
        self._gravity = contract.robot.gravity if contract.contact.gravity else None
        self._units = ("N", "Nm") if wrench else ("Nm",) * len(contract.joints)
        self.feature = contract.contact.feature
        self.name = f"contact on {contract.contact.topic}"
        self.freshness = Freshness(self.name, contract.contact.max_age_s, clock)
        self.values: Array | None = None

    def update(
        self,
        names: Sequence[str],
        values: Sequence[float] | Array,
        stamp: float,
        positions: Sequence[float] | Array = (),
    ) -> bool:
        """Take a message in, with positions [rad] with raw torques; True where it is whole and newer than the last."""
        if not self.concerns(names):
            return False
        found = pick(self.freshness, names, values, self._names)
        if found is None:
            return False
        if self._gravity is not None:
            if len(positions) != len(values):
                self.freshness.fault = f"{len(positions)} positions beside {len(values)} torques"
                return False
            index = [list(names).index(name) for name in self._names]
            q = np.array([positions[i] for i in index], dtype=np.float64)
            if not np.isfinite(q).all():
                self.freshness.fault = "positions that are not finite"
                return False
            found = self._gravity.external(q, found)
        if not self.freshness.update(stamp):
            return False
        self.values = found
        return True

    def concerns(self, names: Sequence[str]) -> bool:
        """True where a message with these names is about the arm: joint states may be another device's, too."""
        return self._gravity is None or any(name in names for name in self._names)

    def problem(self) -> str:
        """The problem with the messages, or nothing."""
        return self.freshness.problem()

    def push(self) -> str:
        """The excess over what the contract permits, or nothing."""
        if self.values is None:
            return ""
        felt = self.values.reshape(2, 3) if len(self._parts) == 2 else self.values[:, None]
        sizes = np.linalg.norm(felt, axis=1)
        over = sizes / np.array(self._sensing.most)
        i = int(np.argmax(over))
        if over[i] <= 1.0:
            return ""
        return f"{self.name}: {self._parts[i]} {sizes[i]:.1f} {self._units[i]}, allowed {self._sensing.most[i]:g}"


BLACK = 8  # of 255: a picture without anything brighter shows nothing


class NotObserved(RobolearnError):
    """There is no valid observation; the message names the input and what is wrong with it."""


class Observer:
    """The newest observation of the features that a policy needs: ``proprio``, ``objects``, ``external_torque`` or
    ``wrench``, ``images.<camera>``, of those that the station offers. `clock` is the steady time [s].

    Attributes:
      joints: of arms and grippers.
      describe: the name of a publisher of pictures, for reasons.
    """

    def __init__(
        self, contract: AnyContract, features: Collection[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.contract = contract
        self.features = tuple(features)
        self.joints = StationJoints(contract, clock)
        self._objects: Freshness | None = None
        self._object_values: Array = np.zeros(0)
        if "objects" in features:
            if contract.objects is None:
                raise BadInput(f"contract {contract.name}", got="no objects topic", expected="objects")
            self._objects = Freshness(f"objects on {contract.objects.topic}", contract.objects.max_age_s, clock)
        felt = [arm for arm in contract.arms.values() if arm.contact is not None and arm.contact.feature in features]
        self.contact = ContactReader(felt[0], clock) if felt else None
        self.describe: Callable[[Hashable], str] = str
        self._pictures: dict[str, CameraPictures] = {}
        self._seen_by: dict[str, slice] = {}  # camera → the joints that move what it shows
        newest = max(arm.joint_states.max_age_s for arm in contract.arms.values())
        for feature in features:
            if feature.startswith("images."):
                name = feature.removeprefix("images.")
                camera = contract.cameras[name]
                robot, self._seen_by[name] = _moves(contract, name)
                self._pictures[name] = CameraPictures(
                    f"camera {name} on {camera.topic}", robot, camera.max_age_s, newest, clock,
                    lambda one: self.describe(one),
                )  # fmt: skip

    def objects(self, names: Sequence[str], values: Sequence[float] | Array, stamp: float) -> bool:
        """Take the task's vector in; True where it is whole and newer than the last."""
        freshness = self._objects
        if freshness is None:
            return False
        found = pick(freshness, names, values, self.contract.object_names)
        if found is None or not freshness.update(stamp):
            return False
        self._object_values = found
        return True

    def image(
        self, camera: str, fingerprint: int, decode: Callable[[], NDArray[np.uint8]], stamp: float, frame: str = "",
        publisher: Hashable = None,
    ) -> None:  # fmt: skip
        """Take a picture of `camera` in, sent by `publisher`. `decode` makes (H, W, 3) of it when it is needed;
        `fingerprint` is a checksum of its bytes, `stamp` [s] and `frame` are its header's."""
        wanted, wrong = self.contract.cameras[camera].frame, ""
        if wanted and frame.lstrip("/") != wanted:
            wrong = f"its pictures are of {frame or 'nothing'}, not of {wanted}: are cameras swapped?"
        at, q = self.joints.stamp, self.joints.q
        moved = None if q is None else q[self._seen_by[camera]]
        self._pictures[camera].update(
            fingerprint, decode, stamp, frame=wrong, q=moved, joints_at=at, publisher=publisher
        )  # fmt: skip

    def stamps(self) -> tuple[float, float]:
        """Of the joint states, and how far those of two arms, or the objects' stamp from it, are apart [s]."""
        stamp, apart = self.joints.stamp, self.joints.apart
        return stamp, apart if self._objects is None else max(apart, abs(self._objects.stamp - stamp))

    def source_stamps(self) -> dict[str, float]:
        """Feature → stamp of its newest message [s], as the source gave it."""
        stamps = {"proprio": self.joints.stamp}
        if self._objects is not None:
            stamps["objects"] = self._objects.stamp
        if self.contact is not None:
            stamps[self.contact.feature] = self.contact.freshness.stamp
        return stamps | {f"images.{name}": picture.freshness.stamp for name, picture in self._pictures.items()}

    def problem(self) -> str:
        """The problem of the first input that is not fresh or not valid, or nothing."""
        for one in (self.joints, self._objects, self.contact):
            if one is not None and (problem := one.problem()):
                return problem
        for picture in self._pictures.values():
            if problem := picture.problem():
                return problem
        return self._twins()

    def silence(self) -> str:
        """The problem of the first input that has sent nothing new for as long as is allowed, or nothing."""
        readers = [reader.freshness for reader in self.joints.arms.values()]
        contact = None if self.contact is None else self.contact.freshness
        for one in (*readers, self._objects, contact, *self._pictures.values()):
            if one is not None and (problem := one.silence()):
                return problem
        return ""

    def _twins(self) -> str:
        """Two cameras of topics of their own that show the same to the last byte, or nothing."""
        for (name, one), (other, two) in itertools.combinations(self._pictures.items(), 2):
            cameras = self.contract.cameras
            if one.same_as(two) and cameras[name].topic != cameras[other].topic:
                return f"{one.freshness.name}: the very picture of camera {other}; does one device send both?"
        return ""

    def observation(self) -> dict[str, NDArray]:
        """Feature → (1, …), as `robolearn.core.Observation` of one world. Raises `NotObserved`: an input is not fresh
        or not valid."""
        if problem := self.problem():
            raise NotObserved(problem)
        q = self.joints.q
        assert q is not None
        out: dict[str, NDArray] = {}
        if "proprio" in self.features:
            robot = self.contract.robot
            out["proprio"] = robot.proprio(q[None], self.joints.openings, *robot.forward(q[None]))
        if "objects" in self.features:
            out["objects"] = self._object_values[None].astype(np.float32)
        if self.contact is not None:
            assert self.contact.values is not None
            out[self.contact.feature] = self.contact.values[None].astype(np.float32)
        if problem := self.pictures_problem():
            raise NotObserved(problem)
        for name, picture in self._pictures.items():
            out[f"images.{name}"] = picture.pixels()[None]
        return out

    def pictures_problem(self) -> str:
        """The problem of what the newest pictures show, which takes as long as to decode them once; or nothing."""
        for picture in self._pictures.values():
            try:
                if picture.brightest() < BLACK:
                    return f"{picture.freshness.name}: the picture is black"
            except BadInput as error:
                return f"{picture.freshness.name}: {error}"
        return ""


def _moves(contract: AnyContract, camera: str) -> tuple[AnyRobot, slice]:
    """The arm that a camera belongs to, and its joints among those of all; the whole robot where it is neither's."""
    robot = contract.robot
    for part, arm, at in zip(robot.parts, contract.arms.values(), robot.slices, strict=True):
        if camera in map(part.named, arm.cameras):
            return part.robot, at
    return robot, slice(None)
