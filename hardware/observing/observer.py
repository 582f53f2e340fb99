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

from hardware.observing.pictures import CameraPictures
from hardware.observing.timing import Freshness
from hardware.safety.senders import Publishers
from robolearn.core import BadInput, RobolearnError
from robots.spec import proprio
from robots.stations import Contract
from robots.stations.parts import WRENCH_NAMES

Array = NDArray[np.float64]


def pick(
    freshness: Freshness, names: Sequence[str], values: Sequence[float] | Array, wanted: Sequence[str], what: str = ""
) -> Array | None:
    """(n,) values of `wanted` in a message; None, and the fault of `freshness`, where it is not whole or not finite."""
    index = {name: i for i, name in enumerate(names)}
    if len(values) != len(names) or len(index) != len(names):
        freshness.fault = f"{len(names)} names and {len(values)} values, or a name twice"
    elif missing := [name for name in wanted if name not in index]:
        freshness.fault = f"no {what}{missing[0]!r} among {', '.join(names) or 'no names'}"
    else:
        found = np.array([values[index[name]] for name in wanted], dtype=np.float64)
        if np.isfinite(found).all():
            return found
        freshness.fault = "not finite"
    return None


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


GRIPPER_AGES = 10.0  # a gripper with a publisher of its own may be so many times as old as the arm's joints
BLACK = 8  # of 255: a picture without anything brighter shows nothing


class NotObserved(RobolearnError):
    """There is no valid observation; the message names the input and what is wrong with it."""


class JointReader:
    """The arm's joints and its gripper's out of joint states, whatever their order and company. Messages that name no
    joint of the arm are another device's and passed over; a gripper may have its own. A joint of the gripper comes from
    one publisher: while two report it, neither is believed.

    Attributes:
      describe: the name of a publisher, for reasons.
    """

    def __init__(
        self,
        contract: Contract,
        clock: Callable[[], float] = time.monotonic,
        describe: Callable[[Hashable], str] = str,
    ) -> None:
        topic = contract.joint_states
        self.contract = contract
        self.freshness = Freshness(f"joint states on {topic.topic}", topic.max_age_s, clock)
        self.q: Array | None = None
        self._gripper = dict.fromkeys(contract.gripper_joints, np.nan)
        self._gripper_heard = dict.fromkeys(contract.gripper_joints, 0.0)  # when each last arrived
        self.describe = describe
        self._apart = False  # the gripper's joints come on a topic of their own
        self._listen(topic.topic)

    def _listen(self, topic: str) -> None:
        self._second: tuple[Publishers, Hashable] | None = None  # another publisher than the bound one
        self._publishers = {
            name: Publishers(f"gripper joint {name!r} on {topic}", self.freshness.clock, lambda one: self.describe(one))
            for name in self._gripper
        }

    def update(
        self, names: Sequence[str], positions: Sequence[float] | Array, stamp: float, publisher: Hashable = None
    ) -> bool:
        """Take a message of `publisher` in; True where it is the arm's, whole and newer than the last."""
        if not self._apart:
            self._take_gripper(names, positions, publisher)
        if not any(name in names for name in self.contract.joints):
            return False
        q = pick(self.freshness, names, positions, self.contract.joints, "joint ")
        if q is None or not self.freshness.update(stamp):
            return False
        self.q = q
        return True

    def gripper(self, names: Sequence[str], positions: Sequence[float] | Array, publisher: Hashable = None) -> None:
        """Take a message of the gripper's own topic in. From the first one on its joints count nowhere else."""
        topic = self.contract.gripper_states
        if topic is not None and not self._apart and any(name in self._gripper for name in names):
            self._apart = True
            self._listen(topic.topic)
        self._take_gripper(names, positions, publisher)

    def _take_gripper(self, names: Sequence[str], positions: Sequence[float] | Array, publisher: Hashable) -> None:
        if not len(positions) == len(names) == len(set(names)):
            return
        for name, position in zip(names, positions, strict=True):
            if name not in self._gripper:
                continue
            publishers = self._publishers[name]
            if not publishers.heard(publisher):
                self._second = publishers, publisher
            if publishers.alone:
                self._gripper[name], self._gripper_heard[name] = float(position), self.freshness.clock()

    def bind(self) -> None:
        """The arm is armed: another publisher of the gripper's joints than the one that is heard is
        a `second_publisher`."""
        self._second = None
        for publishers in self._publishers.values():
            publishers.bind()

    def second_publisher(self) -> str:
        """Reason to stop an arm that was armed by one publisher of the gripper's joints; empty where it is alone."""
        if self._second is None:
            return ""
        publishers, second = self._second
        return publishers.against(second)

    @property
    def width(self) -> float:
        """Opening of the gripper [m]; NaN before it was heard of, 0 without one."""
        if not self._gripper:
            return 0.0
        return self.contract.gripper_width(list(self._gripper.values()))

    def problem(self) -> str:
        """The problem, or nothing."""
        if problem := self.freshness.problem():
            return problem
        if found := [problem for one in self._publishers.values() if (problem := one.problem())]:
            return found[0]
        silent = [name for name, value in self._gripper.items() if not np.isfinite(value)]
        if silent:
            return f"{self.freshness.name}: no gripper joint {silent[0]!r}"
        now = self.freshness.clock()
        for name, heard in self._gripper_heard.items():
            if now - heard > GRIPPER_AGES * self.freshness.max_age_s:
                return f"{self.freshness.name}: gripper joint {name!r} silent for {now - heard:.2f} s"
        return ""


class Observer:
    """The newest observation of the features that a policy needs: ``proprio``, ``objects``, ``external_torque`` or
    ``wrench``, ``images.<camera>``, of those that the station offers. `clock` is the steady time [s].

    Attributes:
      joints: of arm and gripper.
      describe: the name of a publisher of pictures, for reasons.
    """

    def __init__(
        self, contract: Contract, features: Collection[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.contract = contract
        self.features = tuple(features)
        self.joints = JointReader(contract, clock)
        self._objects: Freshness | None = None
        self._object_values: Array = np.zeros(0)
        if "objects" in features:
            if contract.objects is None:
                raise BadInput(f"contract {contract.name}", got="no objects topic", expected="objects")
            self._objects = Freshness(f"objects on {contract.objects.topic}", contract.objects.max_age_s, clock)
        self.contact: ContactReader | None = None
        if contract.contact is not None and contract.contact.feature in features:
            self.contact = ContactReader(contract, clock)
        self.describe: Callable[[Hashable], str] = str
        self._pictures: dict[str, CameraPictures] = {}
        for feature in features:
            if feature.startswith("images."):
                name = feature.removeprefix("images.")
                camera = contract.cameras[name]
                self._pictures[name] = CameraPictures(
                    f"camera {name} on {camera.topic}", contract.robot, camera.max_age_s,
                    contract.joint_states.max_age_s, clock, lambda one: self.describe(one),
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
        at, q = self.joints.freshness.stamp, self.joints.q
        self._pictures[camera].update(
            fingerprint, decode, stamp, frame=wrong, q=q, joints_at=at, publisher=publisher
        )  # fmt: skip

    def stamps(self) -> tuple[float, float]:
        """Of the joint states, and how far the objects' stamp is from it [s]."""
        stamp = self.joints.freshness.stamp
        return stamp, 0.0 if self._objects is None else abs(self._objects.stamp - stamp)

    def source_stamps(self) -> dict[str, float]:
        """Feature → stamp of its newest message [s], as the source gave it."""
        stamps = {"proprio": self.joints.freshness.stamp}
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

    def _twins(self) -> str:
        """Two cameras of topics of their own that show the same to the last byte, or nothing."""
        for (name, one), (other, two) in itertools.combinations(self._pictures.items(), 2):
            cameras = self.contract.cameras
            if one.print == two.print and cameras[name].topic != cameras[other].topic:
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
            tcp = self.contract.robot.chain.forward(q[None])
            out["proprio"] = proprio(q[None], np.array([self.joints.width]), *tcp)
        if "objects" in self.features:
            out["objects"] = self._object_values[None].astype(np.float32)
        if self.contact is not None:
            assert self.contact.values is not None
            out[self.contact.feature] = self.contact.values[None].astype(np.float32)
        for name, picture in self._pictures.items():
            try:
                pixels = picture.pixels()
            except BadInput as error:
                raise NotObserved(f"{picture.freshness.name}: {error}") from None
            if pixels.max() < BLACK:
                raise NotObserved(f"{picture.freshness.name}: the picture is black")
            out[f"images.{name}"] = pixels[None]
        return out
