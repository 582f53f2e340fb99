"""Observations of a station, message by message, and the findings that all topics have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from robots.stations import AnyContract, Contract, Topic

SAFETY_STATE = "safety_state"  # the role of the safety node's report beside those of the contract
LENS_TYPE = "sensor_msgs/msg/CameraInfo"


def station_roles(contract: AnyContract) -> dict[str, Topic]:
    """Role → topic, of all that a station is judged by: roles as in `Contract.topics`, and more. Of two arms those of
    each begin with its name and a dot; what is left are the cameras and objects of the station itself."""
    found: dict[str, Topic] = {}
    if isinstance(contract, Contract):
        posture = contract.command.posture
        found |= contract.topics | ({} if posture is None else {"command.posture": posture})
    else:
        for name, arm in contract.arms.items():
            found |= {f"{name}.{role}": one for role, one in station_roles(replace(arm, objects=None)).items()}
        apart = {topic.topic for topic in found.values()}
        own = {name: camera for name, camera in contract.cameras.items() if camera.topic not in apart}
        found |= {f"images.{name}": camera for name, camera in own.items()}
    if contract.objects is not None:
        found["objects"] = contract.objects
    infos = {name: camera.info for name, camera in contract.cameras.items() if camera.info}
    return found | {f"info.{name}": Topic(info, LENS_TYPE) for name, info in infos.items() if f"images.{name}" in found}


@dataclass(frozen=True)
class Endpoint:
    """A publisher or subscription: the full name of its node and its type, e.g. ``"sensor_msgs/msg/Image"``.

    Its `key` identifies it among messages; None where the middleware does not report it.
    """

    node: str
    type: str
    key: bytes | None = None


@dataclass(frozen=True)
class StationSample:
    """A message: the time of day at which the middleware received it, and of its header's stamp, or 0 [s].

    Its `sender` is the key of its publisher, or None.
    """

    arrived: float
    stamp: float
    sender: bytes | None

    @property
    def age(self) -> float:
        """Of the stamp at arrival [s]; negative: from the future."""
        return self.arrived - self.stamp


@dataclass(frozen=True)
class JointSample(StationSample):
    """Joint states: names and as many positions, or not."""

    names: tuple[str, ...]
    positions: tuple[float, ...]


@dataclass(frozen=True)
class PictureSample(StationSample):
    """A picture.

    Attributes:
      size: (height, width) [px]; (0, 0) where the message is not read.
      encoding: of a raw image; the format of a compressed one.
      checksum: of its bytes.
      problem: why it cannot be read; empty when it can.
      brightness: mean of all channels, 0 to 255.
      frame: that of its header.
    """

    size: tuple[int, int]
    encoding: str
    checksum: int
    problem: str = ""
    brightness: float = 255.0
    frame: str = ""


@dataclass(frozen=True)
class LensSample(StationSample):
    """A CameraInfo: (height, width) [px] and the 9 numbers of its matrix K, row by row [px]."""

    size: tuple[int, int]
    matrix: tuple[float, ...]


@dataclass
class SeenTopic:
    """One topic of the contract.

    Attributes:
      publishers, listeners: of all programs, without the one that looks.
      samples: the messages of the contract's type, in order of arrival.
      mismatches: endpoints that cannot reach each other because of their QoS, in words.
      elsewhere: other topics of the contract's type.
    """

    publishers: tuple[Endpoint, ...] = ()
    listeners: tuple[Endpoint, ...] = ()
    samples: list[StationSample] = field(default_factory=list)
    mismatches: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()

    def senders(self, samples: Sequence[StationSample]) -> dict[str, int]:
        """Node → number of `samples` that it sent."""
        names = {endpoint.key: endpoint.node for endpoint in self.publishers}
        return Counter(names.get(sample.sender, "one that has gone") for sample in samples)


@dataclass
class SeenStation:
    """A station, watched for some seconds.

    Attributes:
      topics: role → what was seen, roles as in `station_roles`, and ``"safety_state"``.
      ended: time of day at which watching ended [s].
      safety: state and reason of the newest report of the safety node, or None.
    """

    topics: Mapping[str, SeenTopic]
    ended: float
    safety: tuple[str, str] | None = None

    def of_arm(self, name: str) -> SeenStation:
        """The part of it that is one of two arms."""
        begin = f"{name}."
        own = {role.removeprefix(begin): seen for role, seen in self.topics.items() if role.startswith(begin)}
        return replace(self, topics=own)


@dataclass(frozen=True)
class Rhythm:
    """Timing of messages: number, mean rate [Hz], longest gap [s] (the time since the last one included)."""

    count: int
    hz: float
    gap: float

    @staticmethod
    def of(samples: Sequence[StationSample], ended: float) -> Rhythm:
        times = [sample.arrived for sample in samples]
        if len(times) < 2:
            return Rhythm(len(times), 0.0, ended - times[0] if times else float("inf"))
        span = times[-1] - times[0]
        gap = max(max(b - a for a, b in pairwise(times)), ended - times[-1])
        return Rhythm(len(times), (len(times) - 1) / span if span > 0 else 0.0, gap)


@dataclass(frozen=True)
class Finding:
    """One line.

    Attributes:
      name: what was looked at.
      ok: whether it can stay as it is.
      found: what is there.
      fix: what to do; empty where nothing is wrong.
      needed: False: worth a look, but no reason against moving.
    """

    name: str
    ok: bool
    found: str
    fix: str = ""
    needed: bool = True
