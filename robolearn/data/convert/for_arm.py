"""Demonstrations of another maker's arm control → those that the policies of a station act by.

The actions of LIBERO, robosuite, ManiSkill and others mean what their own controllers make of them. What every such
file has is where the joints were. From frame t, with the joints q, the opening w and the control of the station,

    proprio_t = q_t, w_t, tcp pose of q_t by the arm's own kinematics
    action_t  = the one that leads from q_t to q_t+1, with the gripper as the file's last action component says

so a policy learns the motion that was made, and means the same on this arm as one that learned from its own episodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, Interface
from robolearn.data.convert.options import ReadOptions, sound
from robolearn.data.convert.source import EpisodeDraft, EpisodeSource
from robolearn.data.lerobot.features import IMAGES, camera_name
from robots import make_control
from robots.control import Control
from robots.spec import proprio
from robots.stations import Contract

JOINTS, GRIPPER = "joints", "gripper"  # the features that `--map` makes of a file's arrays
OFF_RAD = 0.02  # a joint that an action misses by this much was commanded otherwise

Array = NDArray[np.float64]


def for_arm(source: EpisodeSource, station: Contract, options: ReadOptions = ReadOptions()) -> EpisodeSource:  # noqa: B008
    """The episodes of `source`, which have the features `JOINTS` (T, n) [rad] and `GRIPPER` (T, 1) or (T, 2) [m], as
    those of `station`; its account says what was changed. Raises `BadInput`: one of the two is missing or of another
    size, the rate is another, a camera is none of the station's, or no motion of the fingers says which way of the last
    action component closes them."""
    held = source.interface.observation
    _check(source.interface, station)
    cameras = [key for key in held if key.startswith(IMAGES)]
    arm = station.interface
    # A station resizes its pictures to what a policy has learned from.
    observation = {"proprio": arm.observation["proprio"], **{key: held[key] for key in cameras}}
    interface = replace(arm, observation=observation)
    drafts = list(source.drafts)  # numbers; pictures are decoded when they are needed
    commands = [draft.episode.action[:, -1].astype(np.float64) for draft in drafts]
    low, high = min(a.min() for a in commands), max(a.max() for a in commands)
    middle = (low + high) / 2 if high > low else 0.0  # of -1 and 1, of 0 and 1, of widths
    closes = _closing(commands, [_opening(draft) for draft in drafts])
    control = make_control(interface.action_kind, station.robot, interface.control_hz)
    account, off = source.account, []

    def turned(draft: EpisodeDraft) -> EpisodeDraft:
        episode = draft.episode
        q, width = episode.observation[JOINTS][:, : len(station.joints)].astype(np.float64), _opening(draft)
        _check_range(draft.name, q, width, station)
        grip = np.where(np.sign(episode.action[:, -1] - middle) == closes, 0.0, station.robot.gripper.max_width)
        action, missed = led(control, q, np.concatenate([q[1:], q[-1:]]), grip)
        off.append(missed)
        seen = {"proprio": proprio(q, width, *station.robot.chain.forward(q))}
        return EpisodeDraft(replace(episode, observation=seen, action=action), draft.images, draft.name)

    def all_drafts() -> Iterator[EpisodeDraft]:
        for _, made in sound(turned, drafts, account.left_out, options):
            yield made
        if off and (missed := np.concatenate(off)).any():
            account.changed.append(f"{missed.mean():.1%} of the motions are beyond {interface.action_kind} actions; "
                                   "the nearest is stored")  # fmt: skip

    where = f"{'more' if closes > 0 else 'less'} than {middle:.3g}"
    account.changed += [
        f"actions are the {interface.action_kind} actions of {station.name} that lead to the joints a frame later",
        f"the gripper closes where the last component of the file's action is {where}, as its fingers did",
    ]
    if others := sorted(held.keys() - {JOINTS, GRIPPER, *cameras}):
        account.left_out.append(f"{', '.join(others)}, which the arm does not have")
    return replace(source, interface=interface, drafts=all_drafts(), count=len(drafts))


def led(control: Control, q: Array, goal: Array, width: Array) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Actions (T, Da) that lead from the joints `q` (T, n) to `goal` [rad] and `width` (T,) [m]; (T,) whether one was
    out of reach."""
    found = control.actions(q, goal, width).astype(np.float32)
    reached, _ = control.targets(q, None, found)
    return found, np.abs(reached - goal).max(axis=1) > OFF_RAD


def _check(held: Interface, station: Contract) -> None:
    what, joints = f"--robot {station.name}", len(station.joints)
    sizes = {name: held.observation[name].size for name in (JOINTS, GRIPPER) if name in held.observation}
    fingers = sizes.get(GRIPPER, sizes.get(JOINTS, 0) - joints)
    if sizes.get(JOINTS) not in (joints, joints + 2) or fingers not in (1, 2):
        got = ", ".join(f"{name} of {size} numbers" for name, size in sizes.items()) or "no joints"
        expected = f"{JOINTS}: {joints} positions [rad], and {GRIPPER}: the opening, or both fingers' positions [m]"
        hint = f"--map NAME={JOINTS} NAME={GRIPPER} takes them from arrays of the file"
        raise BadInput(what, got=got, expected=expected, hint=hint)
    if abs(held.control_hz - station.control_hz) > 1e-6 * station.control_hz:
        hint = "A contract of your own may have another control_hz; --hz says the rate of the file where it is wrong"
        raise BadInput(
            what, got=f"{held.control_hz:g} Hz in the file", expected=f"{station.control_hz:g} Hz", hint=hint
        )
    known, cameras = (
        [camera_name(key) for key in one.observation if key.startswith(IMAGES)] for one in (station.interface, held)
    )
    for camera in cameras:
        if camera not in known:
            hint = f"--map NAME=images.{known[0]} renames it" if known else "--no-images leaves it out"
            raise BadInput(f"{what}: camera", got=camera, available=known, hint=hint)


def _check_range(name: str, q: Array, width: Array, station: Contract) -> None:
    robot, slack = station.robot, 0.05
    beyond = (q < robot.lower - slack) | (q > robot.upper + slack)
    if beyond.any():
        frame, joint = (int(i) for i in np.argwhere(beyond)[0])
        expected = f"{robot.lower[joint]:.2f} to {robot.upper[joint]:.2f} rad"
        raise BadInput(
            f"{name}: {station.joints[joint]} at frame {frame}", got=f"{q[frame, joint]:.3f}", expected=expected
        )
    if width.max() > 1.2 * robot.gripper.max_width + 1e-3:
        frame = int(width.argmax())
        expected = f"at most {robot.gripper.max_width:g} m, or two fingers' positions"
        raise BadInput(f"{name}: {GRIPPER} at frame {frame}", got=f"{width[frame]:.3f}", expected=expected)


def _opening(draft: EpisodeDraft) -> Array:
    """(T,) opening [m]: as it is, or the sum of two fingers' ways, of which makers let one count backwards."""
    held = draft.episode.observation
    fingers = held[GRIPPER] if GRIPPER in held else held[JOINTS][:, -2:]
    return np.abs(fingers.astype(np.float64)).sum(axis=1)


def _closing(commands: list[Array], openings: list[Array]) -> float:
    """1 or −1: 1 where the fingers are the closer, the larger the commands (T,) are."""
    command, opening = np.concatenate(commands), np.concatenate(openings)
    if np.ptp(command) > 0:
        follows = float(np.mean((command - command.mean()) * (opening - opening.mean())))
    else:  # one command throughout: it is what the fingers did
        follows = float(command[0] * sum(w[-1] - w[0] for w in openings))
    if abs(follows) < 1e-6:
        got, expected = "fingers that do not follow the last component of the actions", "a command of the gripper"
        raise BadInput("gripper", got=got, expected=expected, hint="--map NAME=action takes another array")
    return -float(np.sign(follows))
