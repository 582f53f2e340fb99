"""Observations of a station, message by message, and the findings that all topics have in common."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from robots.stations import Topic


@dataclass(frozen=True)
class Endpoint:
    """A publisher or subscription.

    Attributes:
      node: the full name of its node.
      type: message type, e.g. ``"sensor_msgs/msg/Image"``.
      key: identifies it among messages; None where the middleware does not report it.
    """

    node: str
    type: str
    key: bytes | None = None


@dataclass(frozen=True)
class StationSample:
    """A message.

    Attributes:
      arrived: time of day at which the middleware received it [s].
      stamp: of its header, 0 where there is none [s].
      sender: key of its publisher, or None.
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
    """

    size: tuple[int, int]
    encoding: str
    checksum: int
    problem: str = ""
    brightness: float = 255.0


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
      topics: role → what was seen, roles as in `Contract.topics`, and ``"safety_state"``.
      ended: time of day at which watching ended [s].
      safety: state and reason of the newest report of the safety node, or None.
    """

    topics: Mapping[str, SeenTopic]
    ended: float
    safety: tuple[str, str] | None = None


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


SLOW = 0.8  # share of the rate that is needed at which a topic counts as slow
FUTURE_S = 0.02  # stamps this far ahead are another clock's; within, it is one that is disciplined


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


def publishers(what: str, key: str, topic: Topic, seen: SeenTopic) -> Finding:
    """`topic` is published, in the contract's type (`key`: its section there)."""
    right = sorted({one.node for one in seen.publishers if one.type == topic.type})
    wrong = [one for one in seen.publishers if one.type != topic.type]
    name = f"{what} topic"
    if right and seen.samples:
        return Finding(name, True, f"{topic.topic}, {topic.type}, from {' and '.join(right)}")
    if right:
        why = f": {seen.mismatches[0]}" if seen.mismatches else ""
        fix = "change its QoS" if why else "look at that node: its device, its log"
        return Finding(name, False, f"{' and '.join(right)} publishes {topic.topic}, but nothing arrives{why}", fix)
    if wrong:
        found = f"{topic.topic} is {wrong[0].type} from {wrong[0].node}; the contract expects {topic.type}"
        return Finding(name, False, found, f"{key}.type: {wrong[0].type} in the contract, or the topic that has it")
    there = f"; of that type there are {', '.join(seen.elsewhere[:4])}" if seen.elsewhere else ""
    fix = f"start its driver, or correct {key}.topic in the contract{there}"
    return Finding(name, False, f"no publisher on {topic.topic}", fix)


def rhythm(what: str, beat: Rhythm, longest: float, why: str, least_hz: float = 0.0) -> Finding:
    """Messages come at `least_hz` [Hz] at least, and never `longest` [s] apart (`why`: what that comes from)."""
    name, gap = f"{what} rate", 1e3 * beat.gap
    found = f"{beat.hz:.1f} Hz, longest gap {gap:.0f} ms"
    if beat.count < 2:
        found = f"{beat.count} message, then nothing for {gap:.0f} ms"
    if beat.gap > longest:
        fix = f"a faster driver, or a network that loses less: at most {1e3 * longest:.0f} ms, {why}"
        return Finding(name, False, found, fix)
    if beat.hz < SLOW * least_hz:
        return Finding(name, False, f"{found}; actions come at {least_hz:g} Hz", f"set it to {least_hz:g} Hz or more")
    return Finding(name, True, found)


def stamps(what: str, samples: Sequence[StationSample], oldest: float) -> Finding:
    """Stamps rise, and are `oldest` [s] at most when they arrive."""
    name, age = f"{what} stamps", statistics.median(sample.age for sample in samples)
    if any(sample.stamp == 0 for sample in samples):
        return Finding(name, False, "0: never set", "let the driver stamp its messages with the time of measurement")
    by_sender: dict[bytes | None, list[float]] = {}
    for sample in samples:
        by_sender.setdefault(sample.sender, []).append(sample.stamp)
    repeated = sum(b <= a for times in by_sender.values() for a, b in pairwise(times))
    if repeated:
        fix = "a node repeats or reorders messages: subscribe to the driver's own topic"
        return Finding(name, False, f"{repeated} of {len(samples)} do not rise", fix)
    found = f"{1e3 * age:.1f} ms old at arrival, at most {1e3 * max(s.age for s in samples):.0f} ms"
    if age < -FUTURE_S:
        return Finding(name, False, f"{-age:.3g} s in the future", "one clock for both machines: chrony or PTP")
    if age > oldest:
        fix = "one clock for both machines (chrony or PTP), or a driver that stamps when it measures"
        return Finding(name, False, f"{age:.3g} s old at arrival, more than {oldest:g} s", fix)
    return Finding(name, True, found)
