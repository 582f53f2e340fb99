"""Joint states: one publisher for the arm's joints, all of them there, finite, within limits, and not frozen."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from hardware.station.seen import Finding, JointSample, SeenTopic
from robots.stations import Contract


def one_speaker(contract: Contract, seen: SeenTopic) -> Iterator[Finding]:
    """Publishers of the arm's joint states; a gripper may have a publisher of its own."""
    arm = [s for s in _samples(seen) if not set(contract.joints).isdisjoint(s.names)]
    speakers = seen.senders(arm)
    silent = sorted({one.node for one in seen.publishers} - set(seen.senders(seen.samples)))
    if len({s.sender for s in arm}) > 1 or len(speakers) > 1:
        who = " and ".join(f"{name} ({count} messages)" for name, count in sorted(speakers.items()))
        fix = "end all but the driver's; mostly it is a forgotten joint_state_publisher"
        yield Finding("joint states publishers", False, f"several for the arm's joints: {who}", fix)
    elif silent:
        found = f"nothing was heard of {' and '.join(silent)}: the arm is not armed beside it"
        yield Finding("joint states publishers", False, found, f"end {' and '.join(silent)}")
    elif speakers:
        yield Finding("joint states publishers", True, f"one for the arm: {' and '.join(speakers)}")


def values(contract: Contract, seen: SeenTopic) -> Iterator[Finding]:
    """Names and positions."""
    samples = _samples(seen)
    there = {name for sample in samples for name in sample.names}
    missing = [name for name in (*contract.joints, *contract.gripper_joints) if name not in there]
    if missing:
        found = f"no {_list(missing)}; there are {_list(sorted(there)) or 'none'}"
        yield Finding("joint names", False, found, "joints and gripper.joints of the contract as the driver calls them")
        if set(missing) & set(contract.joints):
            return
    else:
        yield Finding(
            "joint names", True, f"all {len(contract.joints)} of the arm, {len(contract.gripper_joints)} more"
        )
    whole = [s for s in samples if set(contract.joints) <= set(s.names)]
    ragged = sum(len(s.names) != len(s.positions) for s in samples)
    if ragged:
        yield Finding("joint positions", False, f"{ragged} messages have not a position per name", "mend the driver")
    elif not whole:
        found = "all joints of the arm are never in one message"
        yield Finding("joint positions", False, found, "one joint_state_broadcaster for the arm")
    else:
        q = np.array([[s.positions[s.names.index(name)] for name in contract.joints] for s in whole])
        yield from _positions(contract, q)


def _positions(contract: Contract, q: np.ndarray) -> Iterator[Finding]:
    """Judge (N, n) positions [rad]."""
    bad = ~np.isfinite(q)
    if bad.any():
        name = contract.joints[int(np.argmax(bad.any(0)))]
        found = f"{name} is not a number in {int(bad.any(1).sum())} of {len(q)} messages"
        yield Finding("joint positions", False, found, "the driver's encoder or calibration of that joint")
        return
    lower, upper = contract.limits.lower, contract.limits.upper
    outside = (q.min(0) < lower) | (q.max(0) > upper)
    if outside.any():
        i = int(np.argmax(outside))
        found = f"{contract.joints[i]} at {q[-1, i]:.3f} rad, outside {lower[i]:.3f} to {upper[i]:.3f}"
        fix = "move it inside by hand or with the vendor's program; if it is inside, units (degrees?) or zero are wrong"
        yield Finding("joint positions", False, found, fix)
        return
    margin = math.degrees(float(np.minimum(q - lower, upper - q).min()))
    yield Finding("joint positions", True, f"finite, within limits, {margin:.0f}° from the nearest one")
    (tcp,), _ = contract.robot.chain.forward(q[-1:])
    where = ", ".join(f"{v:.3f}" for v in tcp)
    box = contract.limits.workspace
    if box is None or ((box[0] <= tcp).all() and (tcp <= box[1]).all()):
        yield Finding("tcp", True, f"at ({where}) m" + ("" if box is None else ", in the workspace"))
    else:
        fix = "move the arm into limits.workspace, or widen that"
        yield Finding("tcp", False, f"at ({where}) m, outside the workspace", fix)
    if not contract.simulated and len(q) > 10 and (q == q[0]).all():
        found = "the same to the last bit in all messages"
        fix = "at rest that may be; if it stays while you move the arm, a relay repeats a dead driver's last message"
        yield Finding("joint noise", False, found, fix, needed=False)


def _list(names: list[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def _samples(seen: SeenTopic) -> list[JointSample]:
    return [s for s in seen.samples if isinstance(s, JointSample)]
