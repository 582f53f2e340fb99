"""Mutation check of two arms: one line of what makes two arms one robot is wrong, and a test fails."""

from __future__ import annotations

import sys

from mutation import Mutant, kill_replacements

PAIR, SPEC, LIMITS, CHAIN = "robots/pair.py", "robots/spec.py", "robots/limits.py", "robots/chain.py"
CONTROL, CONTRACT = "robots/control.py", "robots/stations/pair_contract.py"
ROBOT = ("tests/robots/test_pair.py",)
COLLISION, NEARING, ARMS = "hardware/safety/collision.py", "hardware/safety/nearing.py", "hardware/safety/arms.py"
GEOMETRY, SAFE = "hardware/safety/geometry.py", ("tests/hardware/safety/test_safety_pair.py",)
ODOMETERS, SELDOM = "hardware/safety/odometers.py", ("tests/hardware/safety/test_safety_odometers.py",)
PREPARED, COMPILED = "hardware/safety/configuration.py", (
    "tests/hardware/safety/test_safety_motion.py::test_nothing_is_compiled_in_mid_motion",
)  # fmt: skip
SCENE, PHYSICS, WORLD = "sim/embedded/scene.py", "sim/embedded/physics.py", ("tests/sim/test_pair_worlds.py",)
SUPERVISOR, STATES, SUPERVISED = (
    "hardware/safety/supervisor.py", "hardware/safety/states.py", ("tests/hardware/safety/test_pair_supervisor.py",)
)  # fmt: skip
JOINTS, OBSERVER, MONITOR = (f"hardware/observing/{name}.py" for name in ("joints", "observer", "monitor"))
SEEN, POINTS, TIME = ("tests/hardware/test_pair_observer.py",), "hardware/execution/setpoints.py", "sim/realtime.py"
JOINED, TOGETHER = "hardware/teleop/joined.py", ("tests/hardware/teleop/test_joined_devices.py",)
RECORDED = ("tests/hardware/test_recording_pair.py",)
JUDGED = ("tests/hardware/test_station_judge.py",)
PLANNED = ("tests/cli/test_trial.py::test_two_arms_and_their_contracts_are_the_plans",)
FAULTY = ("tests/hardware/test_sensor_faults.py::test_a_fault_of_one_of_two_arms_has_its_name_before_the_place",)
LIFT, HAND, EXPERT = "sim/tasks/lift_two.py", "sim/tasks/handover.py", "sim/experts/waypoints.py"

MUTANTS: dict[str, Mutant] = {
    "a-base-turned-the-other-way": Mutant(SPEC, "[[c, -s, 0.0], [s, c, 0.0]", "[[c, s, 0.0], [-s, c, 0.0]", ROBOT),
    "a-base-turned-twice-as-far": Mutant(PAIR, "half = 0.5 * part.base.yaw", "half = part.base.yaw", ROBOT),
    "a-look-is-compiled-in-mid-motion": Mutant(PREPARED, "    geometry.warm_up(rest)\n", "", COMPILED),
    "a-box-is-compiled-in-mid-motion": Mutant(
        PREPARED, "limits.lower.copy(), limits.upper.copy()", "limits.lower, limits.upper", COMPILED
    ),
    "a-base-at-the-origin": Mutant(CHAIN, "self.base_pos + self.base_rot @ pos[0]", "self.base_rot @ pos[0]", ROBOT),
    "an-action-of-the-right-arm-first": Mutant(
        CONTROL,
        "zip(self._arms, self.robot.slices, apart, strict=True)",
        "zip(self._arms, self.robot.slices, apart[::-1], strict=True)",
        ROBOT,
    ),
    "openings-swapped": Mutant(
        PAIR, "part.robot.fingers_of(width[..., k])", "part.robot.fingers_of(width[..., 1 - k])", ROBOT
    ),
    "an-obstacle-at-the-wrong-side-of-its-base": Mutant(
        LIMITS, "self.offset + float(normal", "self.offset - float(normal", ROBOT
    ),
    "a-box-that-does-not-turn-with-its-base": Mutant(LIMITS, "self.yaw + base.yaw", "self.yaw", ROBOT),
    "two-arms-on-one-topic": Mutant(CONTRACT, "if topic.topic in taken:", "if False:", ROBOT),
    "two-arms-at-two-rates": Mutant(CONTRACT, "if getattr(one, name) != getattr(other, name):", "if False:", ROBOT),
    "the-other-arm-is-left-out": Mutant(
        COLLISION,
        "    if a.arm != b.arm:\n        return False\n",
        "    if a.arm != b.arm:\n        return True\n",
        SAFE,
    ),
    "only-one-of-two-arms-moves": Mutant(
        COLLISION, "np.where(across[:, None], reach[pairs[:, 0]], 0.0)", "np.zeros((len(pairs), n))", SAFE
    ),
    "the-second-arm-on-the-first": Mutant(COLLISION, "        below[starts[:-1]] = 0\n", "", SAFE),
    "the-base-of-the-second-arm-at-the-firsts": Mutant(
        PAIR, "points @ part.base.rotation.T + np.array(part.base.position)", "points", SAFE
    ),
    "arms-that-meet-at-home": Mutant(COLLISION, "if (meet := across & close).any():", "if False:", SAFE),
    "odometers-of-the-other-arm-stand": Mutant(
        COLLISION,
        "np.where(across, n * pairs[:, 0], n * len(pieces))",
        "np.where(across, n * len(pieces), n * len(pieces))",
        SELDOM,
    ),
    "odometers-stand": Mutant(ODOMETERS, "moved += steps[0, k]", "moved += 0.0", SELDOM),
    "odometers-know-no-way-ahead": Mutant(
        ODOMETERS, "readings[0, n * piece + k] + ahead", "readings[0, n * piece + k]", SELDOM
    ),
    "odometers-of-the-last-joint-alone": Mutant(
        ODOMETERS, "joints[piece, 0] - 1, -1)", "joints[piece, 1] - 2, -1)", SELDOM
    ),
    "odometers-begin-anew-and-pairs-do-not": Mutant(ODOMETERS, "        odometers.until[:] = -np.inf\n", "", SELDOM),
    "what-a-pair-moved-since-it-was-measured-does-not-count": Mutant(
        NEARING, "clear = here - arm.allowed", "clear = arm.apart[pair] - arm.allowed", SELDOM
    ),
    "half-a-target-counts": Mutant(ARMS, "if len(each) != len(self._arms):", "if False:", SAFE),
    "one-arm-may-be-silent": Mutant(
        ARMS,
        "for arm in self._arms:\n            arm.measured.fresh(now)",
        "for arm in self._arms[:1]:\n            arm.measured.fresh(now)",
        SAFE,
    ),
    "the-worst-arm-excuses-the-other": Mutant(
        GEOMETRY,
        "zip(self._names, self._tcps, excess, self._excess.singularity, strict=True)",
        "zip(self._names, self._tcps, excess, [max(self._excess.singularity)] * 2, strict=True)",
        SAFE,
    ),
    "arms-pass-through-each-other": Mutant(SCENE, "MEETS[1 + k], MEETS[2 - k]", "MEETS[1 + k], MEETS[1 + k]", WORLD),
    "starts-swapped": Mutant(PHYSICS, "home_pos + offsets[:, k]", "home_pos + offsets[:, ::-1][:, k]", WORLD),
    "a-tilted-bar-is-lifted": Mutant(LIFT, "level & (bar", "(bar", WORLD),
    "the-left-hand-may-hold-on": Mutant(HAND, "let_go & (_between", "(_between", WORLD),
    "joint-states-of-the-right-arm-are-the-lefts": Mutant(
        SUPERVISOR,
        "[part.named(name) for name in names]",
        "[name if name in self.contract.joints else f'left_{name}' for name in names]",
        SUPERVISED,
    ),
    "what-is-too-much-in-a-target-is-dropped": Mutant(
        STATES, "zip(starts, [*starts[1:], None],", "zip(starts, [at.stop for at in slices],", SUPERVISED
    ),
    "publishers-of-one-arm-are-those-of-both": Mutant(
        SUPERVISOR, "publishers or repeat(())", "repeat([one for there in publishers for one in there])", SUPERVISED
    ),
    "openings-are-left-as-they-are": Mutant(SUPERVISOR, "names[-len(grippers) :] == grippers", "False", SUPERVISED),
    "set-points-of-the-right-arm-from-the-left": Mutant(POINTS, "q[at], wanted[at])", "q[:7], wanted[at])", SUPERVISED),
    "an-observation-as-new-as-the-newest-arm": Mutant(
        JOINTS, "return min(reader.freshness.stamp", "return max(reader.freshness.stamp", SEEN
    ),
    "one-arm-is-enough-for-an-observation": Mutant(
        JOINTS, "if len(found) == len(self.arms) else", "if found else", SEEN
    ),
    "a-camera-is-judged-by-the-other-arm": Mutant(
        OBSERVER, "            return part.robot, at\n", "            return robot, slice(None)\n", SEEN
    ),
    "violations-of-the-worse-arm-alone": Mutant(
        MONITOR, "sum(one[kind] for one in summaries)", "max(one[kind] for one in summaries)", SEEN
    ),
    "one-gripper-moves-the-other": Mutant(TIME, "self._widths[arm] = width", "self._widths[:] = width", WORLD),
    "fingers-of-the-left-arm-for-both": Mutant(
        TIME, "begin = sum(len(part.robot.gripper.joints) for part in self.robot.parts[:arm])", "begin = 0", WORLD
    ),
    "two-arms-on-one-bus-of-servos": Mutant(
        CONTRACT, "    if one.servos is not None and other", "    if False and other", ROBOT
    ),
    "the-doctor-looks-at-one-arm-twice": Mutant(
        "hardware/station/check.py", "there = seen.of_arm(name)", 'there = seen.of_arm("left")', JUDGED
    ),
    "the-doctors-line-without-its-arm": Mutant(
        "hardware/station/check.py", 'replace(one, name=f"{arm} {one.name}") if arm else one', "one", JUDGED
    ),
    "one-arm-of-two-is-hashed": Mutant(
        "robolearn/cli/trial_hashes.py", "(contract, *contract.arms.values())", "(contract,)", PLANNED
    ),
    "a-fault-of-one-arm-is-that-of-both": Mutant(
        "hardware/ros2/faults.py", "found[where] = what", "found[place] = what", FAULTY
    ),
    "one-arm-does-not-wait-for-the-other": Mutant(EXPERT, "there = there & (away", "there = here & (away", WORLD),
    "one-device-moves-its-arm-alone": Mutant(
        JOINED, "np.concatenate(actions) if len(actions) == len(each) else None", "np.concatenate(actions)", TOGETHER
    ),
    "one-hand-holds-the-switch-of-both": Mutant(
        JOINED, "all(one.engaged for one in each)", "any(one.engaged for one in each)", RECORDED
    ),
    "a-device-sees-the-other-arm": Mutant(
        JOINED,
        'np.split(observation["proprio"], self._ends, axis=-1)]',
        'np.split(observation["proprio"], self._ends, axis=-1)[::-1]]',
        TOGETHER,
    ),
    "one-that-cannot-tell-excuses-one-that-was-lost": Mutant(
        JOINED, "for known in (False, None, True)", "for known in (None, False, True)", TOGETHER
    ),
    "two-read-one-terminal": Mutant(
        "hardware/teleop/__init__.py", "**(mute if made else options)", "**options", TOGETHER
    ),
    "two-leaders-on-one-port": Mutant(
        "hardware/teleop/leader.py", 'len(set(found) - {""}) != len(arms) or', "", TOGETHER
    ),
    "hands-at-rest-hold-one-opening-for-a-joint": Mutant(
        "hardware/teleop/teleoperation.py",
        "[self._asked[1][: len(q)], target[len(q) :]]",
        "[self._asked[1][:-1], target[-1:]]",
        RECORDED,
    ),
    "one-gripper-takes-the-other-along": Mutant(
        "hardware/teleop/supervised.py",
        "np.where(asked == self._found, self._found, np.float32(np.nan))",
        "np.where((asked == self._found).all(), self._found, np.float32(np.nan))",
        ("tests/hardware/teleop/test_supervised.py",),
    ),
    "a-camera-of-one-arm-is-frozen-by-the-other": Mutant(
        "robolearn/data/validate/videos.py",
        "return own if own.any() else ~own",
        "return np.ones(count, np.bool_)",
        ("tests/data/tools/test_data_validate.py::test_a_camera_of_one_of_two_arms_is_judged_by_that_arm",),
    ),
}

if __name__ == "__main__":
    sys.exit(kill_replacements("two arms", MUTANTS))
