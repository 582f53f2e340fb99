"""Mutation check of the arm's border: units, clocks, pictures or turns are read wrongly in one line, and a test fails."""

from __future__ import annotations

import sys

from mutation import Mutant, kill_replacements

UNITS, UNIT_TESTS = "robolearn/data/convert/joint_units.py", ("tests/data/tools/test_joint_units.py",)
STATED = "robots/stated_scale.py"
SPECS, MIXTURE = "robolearn/core/specs.py", "robolearn/data/mixture.py"
FORMATS = "robolearn/data/convert/formats/config.py"
LOADING = ("tests/policies/test_loading.py",)
DEPLOYED = "tests/cli/test_degrees_to_an_arm.py"

PUBLISHERS = ("tests/hardware/safety/test_safety_publishers.py",)
MEASURED, STUCK = "hardware/safety/measured.py", ("tests/hardware/safety/test_safety_stuck.py",)
SUPERVISOR = "hardware/safety/supervisor.py"

CLOCKS, FAULTS = "hardware/observing/clocks.py", ("tests/hardware/test_faults_in_time.py",)
TIMING = ("tests/hardware/test_timing.py",)
STREAMER = "hardware/execution/streamer.py"
POSES = ("tests/hardware/test_pose_targets.py",)
STOPPED = tuple(f"tests/hardware/test_faults_in_time.py::test_{name}" for name in (
    "the_policy_says_that_it_cannot_go_on", "a_stop_by_another_than_the_policy_is_two_policies",
    "a_stop_from_before_arming_is_none_and_one_before_the_first_chunk_is"))  # fmt: skip
POLICY_STOP, POLICY_STOPS = "hardware/execution/policy_stop.py", ("tests/hardware/test_policy_stop.py",)

PICTURES, OBSERVED = "hardware/observing/pictures.py", ("tests/hardware/test_observer.py",)
JOINTS, INPUTS = "hardware/observing/joints.py", "hardware/safety/inputs.py"
PHASE, PHASES = "hardware/execution/tick_phase.py", ("tests/hardware/test_tick_phase.py",)
PREDICTION, QUICK = "hardware/execution/prediction.py", ("tests/hardware/test_decision_time.py",)
HOST = "hardware/ros2/process.py"
LAG, LAGS = "hardware/observing/lag.py", ("tests/hardware/test_lag.py",)
READINGS, READ = "hardware/safety/readings.py", ("tests/hardware/safety/test_safety_readings.py",)
NOISY, NOISES = "hardware/observing/picture_noise.py", ("tests/hardware/test_picture_noise.py",)

DRIVER_DOUBLE = "robolearn/bench/emulators/ros2_control.py"
LEADS, LED = "robolearn/bench/emulators/trajectory_controller.py", ("tests/bench/test_trajectory_controller.py",)

SCENE = "sim/embedded/scene.py"
TURNED = ("tests/robots/test_pictures.py", "tests/sim/test_station_cameras.py",
          "tests/hardware/test_sim_arm_node.py::test_a_camera_on_its_side_sends_pictures_that_lie")  # fmt: skip

LEADER, LEADER_TESTS = "hardware/teleop/leader.py", ("tests/hardware/teleop/test_teleop_leader.py",)
FAMILIAR, NORMALIZE = "policies/normalize.py", ("tests/policies/test_normalize.py",)

SESSION, SESSIONS = "hardware/teleop/teleoperation.py", ("tests/hardware/test_recording_in_time.py",)

AHEAD, MOTION, FILTER = "hardware/execution/horizon.py", "hardware/safety/motion.py", "hardware/safety/filter.py"
LATE = ("tests/hardware/test_horizon.py", "tests/hardware/test_trajectory_at_1khz.py", "tests/hardware/safety/test_safety_stalls.py",
        "tests/hardware/safety/test_safety_motion.py")  # fmt: skip

HABITS = ("tests/hardware/test_emulated_habits.py::test_a_machine_that_was_held_up_makes_the_arm_no_faster",)

TURNS = ("tests/hardware/test_callback_groups.py",)

PRIORITIES = ("tests/hardware/test_node_priority.py",)

LAUNCHING, LAUNCHED = (
    "launch/launching.py",
    ("tests/launch/test_launch_files.py::test_ros2_launch_ends_with_the_code_of_the_node_that_failed",),
)

SENDING, SENT = "hardware/execution/ahead.py", ("tests/hardware/test_horizon.py",)

ENDED = ("tests/launch/test_launch_files.py::test_a_program_of_a_launch_file_ends_without_taking_its_modules_down",)

MUTANTS: dict[str, Mutant] = {
    "a-launched-program-takes-its-modules-down": Mutant(
        "robolearn/core/machine.py", "    os._exit(code)\n", "    sys.exit(code)\n", ENDED
    ),
    "a-learner-takes-its-modules-down": Mutant(
        "robolearn/hil/processes.py", "import leave; leave(main())", "import leave; import sys; sys.exit(main())", ENDED
    ),
    "a-process-that-stood-still-was-late": Mutant(DRIVER_DOUBLE, "if sent > ran_until else received", "if False else received", LED),
    "no-message-is-late": Mutant(DRIVER_DOUBLE, "if sent > ran_until else received", "if True else received", LED),
    "one-and-minus-one-are-half-a-turn-of-a-joint": Mutant(
        "robots/control.py", "goal = lower + 0.5 * (a[:, :-1] + 1.0) * (upper - lower)", "goal = np.pi * a[:, :-1]",
        (f"{DEPLOYED}::test_the_arm_ends_in_the_pose_of_the_demonstrations",),
    ),
    "actions-of-no-stated-unit-reach-an-arm": Mutant(
        SPECS, "if needed.action_kind != offered.action_kind:", "if False:",
        (f"{DEPLOYED}::test_units_that_are_not_stated_or_wrong_move_no_arm",),
    ),
    "what-is-sent-ahead-is-not-what-the-filter-has": Mutant(SENDING, "points(checked.positions,", "points(command.positions,", SENT),
    "what-is-sent-ahead-is-not-checked": Mutant(SENDING, "checked = safety.checked(command)", "checked = command", SENT),
    "what-is-late-is-made-ahead-of-the-arm": Mutant(SENDING, "if checked is None or _late(horizon, safety, clock):", "if checked is None:", SENT),
    "what-was-late-while-it-was-made-is-sent": Mutant(
        SENDING, "    if _late(horizon, safety, clock):\n        return\n", "", SENT
    ),
    "the-filter-hears-nothing-of-a-late-set-point": Mutant(
        SENDING, "safety.left_to_rest(rest.positions, max(rest.at - now, 0.0))", "pass", SENT
    ),
    "what-was-sent-ahead-does-not-count": Mutant(SENDING, "    horizon.sent()\n", "", SENT),
    "a-motion-from-rest-begins-with-what-is-left-of-a-horizon": Mutant(
        AHEAD, "elif goal - self._points[-1].at > 2 * self._period and", "elif False and", ("tests/hardware/test_horizon.py",)
    ),
    "a-busy-machine-makes-a-motion-from-rest-a-step": Mutant(
        AHEAD, "            self._rate, at = 0.0, goal\n", "            self._rate, at = 0.0, goal - 6 * self._period\n",
        ("tests/hardware/test_horizon.py",),
    ),
    "an-arm-that-sags-is-armed-with-a-step": Mutant(AHEAD, "NEAR_RAD = 0.0015", "NEAR_RAD = 0.0", ("tests/hardware/test_horizon.py",)),
    "an-arm-that-was-moved-is-led-back": Mutant(AHEAD, "NEAR_RAD = 0.0015", "NEAR_RAD = 0.5", ("tests/hardware/test_horizon.py",)),
    "a-refused-arming-forgets-where-the-arm-is-held": Mutant(
        AHEAD, "        if self._sent is not None:\n            self._holds = ",
        "        if True:\n            self._holds = None if self._sent is None else ", ("tests/hardware/test_horizon.py",),
    ),
    "a-lead-begins-before-its-message-may-be-there": Mutant(
        AHEAD, "begin, points = now + SPARE * self._seconds,", "begin, points = now,", ("tests/hardware/test_horizon.py",)
    ),
    "an-arm-at-rest-stays-too-far-ahead": Mutant(
        AHEAD, "            at = -np.inf  # it rests there\n", "            at = self._points[-1].at + self._period\n",
        ("tests/hardware/test_horizon.py",),
    ),
    "a-simulated-arm-catches-up-with-its-controller": Mutant(
        "hardware/ros2/sim_arm_node.py", "self.world.advance(min(period, MAX_LED_S / steps))",
        "self.world.advance(min(seconds, MAX_BEHIND_S) / steps)", HABITS,
    ),
    "a-joint-state-is-stamped-when-the-physics-is-done": Mutant(
        "hardware/ros2/sim_arm_node.py", "self._ros_now() if at is None else at)", "self._ros_now())", HABITS
    ),
    "a-node-is-real-time-while-it-loads": Mutant(
        "hardware/ros2/runtime.py", '        if not self.value("autostart"):\n',
        '        realtime(self.value("realtime_priority"))\n        if not self.value("autostart"):\n', PRIORITIES,
    ),
    "a-thread-that-stepped-back-is-brought-to-the-front": Mutant(
        "hardware/ros2/runtime.py", "{*other_threads, *_background_threads}", "{*other_threads}", PRIORITIES
    ),
    "a-turn-waits-for-everything": Mutant(
        "hardware/ros2/callback_groups.py", "        return self.open", "        return True", TURNS
    ),
    "nothing-that-is-seldom-is-looked-at": Mutant(
        "hardware/ros2/process.py", "turns % SELDOM == 0", "turns % SELDOM > SELDOM", TURNS
    ),
    "a-mismatch-is-waited-for-in-each-turn": Mutant(
        "hardware/ros2/callback_groups.py", "            one.callback_group = self\n", "", TURNS
    ),
    "a-stranger-moves-the-jaw": Mutant(JOINTS, "if publishers.alone:", "if True:", OBSERVED),
    "two-publishers-of-the-jaw-are-observed": Mutant(
        JOINTS, "if (problem := one.problem())]:", "if (problem := '')]:", (*OBSERVED, *PUBLISHERS)
    ),
    "no-publisher-of-the-jaw-is-bound": Mutant(
        INPUTS, "            self._gripper.bind()\n", "            pass\n", PUBLISHERS
    ),
    "a-stranger-to-the-jaw-does-not-stop": Mutant(
        INPUTS, "(second := self._gripper.second_publisher())", "(second := '')", PUBLISHERS
    ),
    "a-relay-beside-the-grippers-own-topic": Mutant(JOINTS, "        if not self._apart:\n", "        if True:\n", OBSERVED),
    "two-publishers-of-the-jaw-are-fine-to-doctor": Mutant(
        "hardware/station/findings.py", "if len({s.sender for s in own}) > 1:", "if False:",
        ("tests/hardware/test_station_judge.py",),
    ),
    "nothing-behind-the-last-set-point": Mutant(AHEAD, "return [*self._points, *braked]", "return [*self._points]", LATE),
    "the-way-to-rest-at-another-pace": Mutant(AHEAD, "v_t / pace)", "v_t)", LATE),
    "set-points-while-the-arm-comes-to-rest": Mutant(AHEAD, "        elif self._left:\n            return []\n", "", LATE),
    "a-message-that-the-arm-outruns": Mutant(AHEAD, "SPARE = 0.4", "SPARE = -9.0", LATE),
    "a-motion-begins-a-period-on": Mutant(AHEAD, "stands = q if self._sent is None else self._sent[1].positions", "stands = q", LATE),
    "compiled-in-mid-motion": Mutant("hardware/safety/configuration.py", "    motion.knots_to_rest()\n", "", LATE),
    "what-was-made-counts-as-sent": Mutant(
        AHEAD, "last, rest = self._sent\n", "last, rest = self._made\n", LATE
    ),
    "knots-of-two-phases": Mutant(MOTION, "= t1, t1 + t2, t1 + t2 + t3", "= t1, t1 + t2, t1 + t2", LATE),
    "an-arm-at-rest-is-not-waited-for": Mutant(FILTER, "now < self._until\n        return waits", "False\n        return waits", LATE),
    "late-is-a-stall-ahead-too": Mutant("hardware/safety/output.py", "math.inf if ahead else STALL", "STALL", LATE),
    "commands-of-this-period": Mutant(LEADS, "self._at(self._time + PERIOD_S, self._before", "self._at(self._time, self._before", LED),
    "a-cancelled-goal-is-held-where-it-was-commanded": Mutant(
        LEADS, "self.desired = np.array(positions, dtype=np.float64)", "self.desired = getattr(self, 'desired', positions)", LED
    ),
    "an-aborted-goal-stops-the-arm": Mutant(LEADS, "self.desired + (now - last) * self._velocity", "self.desired", LED),
    "a-slider-that-does-nothing": Mutant(LEADS, "self.speed * (now - last)", "(now - last)", LED),
    "any-error-is-tolerated": Mutant(LEADS, "if error > self._tolerance:", "if False:", LED),
    "any-silence-is-tolerated": Mutant(LEADS, "ends > self._timeout_s:", "ends > 1e9:", LED),
    "zeros-are-a-place-to-begin": Mutant(
        MEASURED, "if not any(positions):", "if False:", ("tests/reports/test_arms_that_move.py",)
    ),
    "turned-the-other-way": Mutant("robots/stations/pictures.py", "np.rot90(rgb, -degrees", "np.rot90(rgb, degrees", TURNED),
    "cut-before-it-is-turned": Mutant(
        "robots/stations/pictures.py", "rgb = turned(raw_picture(message, camera.depth), camera.rotate)\n",
        "rgb = raw_picture(message, camera.depth)\n", TURNED,
    ),
    "drawn-the-other-way": Mutant(SCENE, "half = -0.5 * math", "half = 0.5 * math", TURNED),
    "drawn-by-the-lens-of-a-camera-that-stands": Mutant(SCENE, "if camera.rotate % 180:\n", "if False:\n", TURNED),
    "sent-upright": Mutant("hardware/ros2/sim_arm_node.py", "turned(picture, -camera", "turned(picture, 0 * camera", TURNED),
    "degrees-are-radians": Mutant(
        UNITS, 'factor = 180 / math.pi if unit == "degrees" else 1.0\n    scale', "factor = 1.0\n    scale", UNIT_TESTS
    ),
    "degrees-of-a-jaw-are-radians": Mutant(
        UNITS, 'factor = 180 / math.pi if unit == "degrees" else 1.0\n        ends', "factor = 1.0\n        ends", UNIT_TESTS
    ),
    "percent-is-a-share": Mutant(UNITS, '"percent": (0.0, 100.0)', '"percent": (0.0, 1.0)', UNIT_TESTS),
    "radians-pass-for-degrees": Mutant(UNITS, ".max() <= math.pi:", ".max() <= 0.0:", UNIT_TESTS),
    "limits-are-anywhere": Mutant(UNITS, "BEYOND = 0.1", "BEYOND = 10.0", UNIT_TESTS),
    "joints-in-any-order": Mutant(UNITS, "plain != list(joints):", "False:", UNIT_TESTS),
    "a-cut-is-not-said": Mutant(UNITS, "low[i] < least - TOLERANCE * range_ or", "False and", UNIT_TESTS),
    "normalised-is-anything": Mutant(UNITS, "if low.min() < -1 - TOLERANCE or", "if False and", UNIT_TESTS),
    "unit-is-not-asked": Mutant(FORMATS, '("" if options.action_kind else "normalised")', '"normalised"', UNIT_TESTS),
    "unit-is-lost-by-export": Mutant(FORMATS, 'scale.unit or "unknown"', '"unknown"', UNIT_TESTS),
    "stated-scales-are-not-compared": Mutant(SPECS, "and not _alike(said[0], told[0]):", "and False:", UNIT_TESTS),
    "a-stated-scale-is-the-arm-s": Mutant(STATED, "or not np.allclose(stated, limits", "or False and np.allclose(stated, limits", UNIT_TESTS),
    "any-unit-is-stated": Mutant(STATED, "if unit not in FACTORS:", "if False:", UNIT_TESTS),
    "sets-with-any-scale-are-opened": Mutant(
        "robolearn/data/lerobot/features.py", "    if ACTION_SCALE in interface.extra:\n", "    if False:\n", UNIT_TESTS
    ),
    "policies-with-any-scale-are-opened": Mutant(
        "policies/storage/config_file.py", "    if ACTION_SCALE in interface.extra:\n", "    if False:\n", UNIT_TESTS
    ),
    "scales-are-not-compared": Mutant(SPECS, "(theirs := own_scale(offered)) !=", "(theirs := own_scale(needed)) !=", UNIT_TESTS),
    "from-compares-no-scale": Mutant(
        "robolearn/train/imitation.py",
        '        check_compatible(offered, needed, what="--from, the data", subject="the policy")\n',
        "",
        UNIT_TESTS,
    ),
    "plain-degrees-are-trained-on": Mutant(MIXTURE, "        check_actions(dataset)\n", "", UNIT_TESTS),
    "lerobot-degrees-are-cut": Mutant(
        "policies/storage/lerobot_files.py", "    _check_units(folder, told)\n", "", LOADING
    ),
    "a-finger-hides-a-frozen-arm": Mutant(
        MEASURED, "return values[self._index]", "return values", (*STUCK, *PUBLISHERS)
    ),
    "openings-from-anybody": Mutant(SUPERVISOR, "else self._openings.against(publisher)", 'else ""', PUBLISHERS),
    "openings-of-a-stranger-are-taken": Mutant(
        SUPERVISOR, "            self._openings.bind()\n", "            pass\n", PUBLISHERS
    ),
    "openings-of-two-are-armed": Mutant(SUPERVISOR, "return self._openings.problem()", 'return ""', PUBLISHERS),
    "openings-of-the-silent-are-none": Mutant(
        SUPERVISOR, "problem = self._openings.several(publishers)", 'problem = ""', PUBLISHERS
    ),
    "clock-behind-is-nothing": Mutant(CLOCKS, "if youngest > oldest:", "if False:", FAULTS),
    "clock-by-one-message": Mutant(
        CLOCKS, "least, most = min(self._least, self._before_least)", "least, most = self._most", TIMING
    ),
    "clock-is-not-asked-at-arming": Mutant(
        INPUTS, "problem or self._joints.problem() or self._clock_problem()", "problem or self._joints.problem()", FAULTS
    ),
    "clock-is-not-said-by-the-streamer": Mutant(STREAMER, "reason = self._problem()", "reason = self.joints.problem()", FAULTS),
    "openings-of-another-program": Mutant(
        SUPERVISOR, "problem = self._foreign_opening() if believed else", 'problem = "" if believed else', PUBLISHERS
    ),
    "openings-of-another-program-before-poses": Mutant(
        SUPERVISOR, "if problem := self._foreign_opening():", 'if problem := "":', PUBLISHERS
    ),
    "openings-of-the-last-arming": Mutant(
        SUPERVISOR, "self._set_point, self._opener = False, True, None, None", "self._set_point = False, True, None", PUBLISHERS
    ),
    "targets-of-any-time": Mutant(SUPERVISOR, "problem := self._target_clock.problem()", 'problem := ""', PUBLISHERS),
    "targets-by-their-observation": Mutant(SUPERVISOR, "1e-9 * stamp_ns + after_s)", "1e-9 * stamp_ns)", PUBLISHERS),
    "a-target-that-waited-stops": Mutant(SUPERVISOR, "going = self._clock() - self._target_at <= WINDOW_S", "going = True", PUBLISHERS),
    "targets-without-the-time-of-sending": Mutant(
        STREAMER, "self._wall() - 1e-9 * self._observed_ns))", "0.0))", ("tests/hardware/test_faults_in_time.py",)
    ),
    "poses-of-any-time": Mutant(SUPERVISOR, "elif not -FUTURE_S <= (age :=", "elif not -1e9 <= (age :=", POSES),
    "poses-of-long-ago": Mutant(
        SUPERVISOR, "1e-9 * stamp_ns) <= self.contract.limits.command_timeout_s:", "1e-9 * stamp_ns) <= 1e9:", POSES
    ),
    "pictures-of-any-time": Mutant(PICTURES, "elif behind > self._oldest:", "elif False:", OBSERVED),
    "pictures-of-the-future": Mutant(PICTURES, "elif behind < -self._newest:", "elif False:", OBSERVED),
    "pictures-from-anybody": Mutant(PICTURES, "self._publishers.problem() or", '"" or', OBSERVED),
    "pictures-frozen-but-for-a-bit-wait-for-two-centimetres": Mutant(PICTURES, "MOVED_M, FAR_M = 0.005, 0.2", "MOVED_M, FAR_M = 0.02, 0.2", NOISES),
    "pictures-frozen-but-for-a-bit-wait-for-a-joint": Mutant(PICTURES, " or self._travel(self._seen_at, q) > MOVED_M:", ":", NOISES),
    "blocks-are-never-looked-at-again": Mutant(PICTURES, "q) <= BLOCKS_M:", "q) <= 9.0:", OBSERVED),
    "pictures-frozen-but-for-a-bit": Mutant(PICTURES, "FEW = 1e-3", "FEW = 0.0", OBSERVED),
    "no-finger-jitters": Mutant(
        "hardware/ros2/faults.py", "q[-1] + _NOISE * (-1.0) ** self._count]", "q[-1]]", ("tests/hardware/test_sensor_faults.py",)
    ),
    "a-frozen-picture-without-a-bit": Mutant(
        "hardware/ros2/faults.py", "picture.flat[self._count % picture.size] ^= 1", "pass", ("tests/hardware/test_sensor_faults.py",)
    ),
    "two-cameras-differ": Mutant(
        "hardware/ros2/faults.py", "            return first\n", "            return picture\n", ("tests/hardware/test_sensor_faults.py",)
    ),
    "pictures-hidden-by-a-hand-that-turns": Mutant(
        PICTURES, "self._frozen else None", 'self._frozen else ""', ("tests/hardware/test_picture_noise.py",)
    ),
    "pictures-frozen-but-for-noise": Mutant(PICTURES, ") > FAR_M:", ") > 1e9:", OBSERVED),
    "pictures-of-an-arm-in-view-are-frozen": Mutant(PICTURES, "BLOCK, FAINT = 8, 2.0", "BLOCK, FAINT = 8, 200.0", OBSERVED),
    "pictures-once-frozen-ever-frozen": Mutant(PICTURES, "elif moved or self._frozen or", "elif moved or", OBSERVED),
    "pictures-of-one-device-twice": Mutant("hardware/observing/observer.py", "if one.same_as(two) and", "if False and", OBSERVED),
    "pictures-of-one-device-are-two-in-between": Mutant(PICTURES, "deque(maxlen=2)", "deque(maxlen=1)", OBSERVED),
    "pictures-late-from-now-on-are-passed-over": Mutant(PICTURES, "if not newer and (stamp <= 0 or behind <= self._oldest):", "if not newer:", OBSERVED),
    "pictures-overtaken-are-seen": Mutant(PICTURES, "(stamp <= 0 or behind <= self._oldest)", "stamp <= 0", OBSERVED),
    "pictures-are-black-at-decisions-alone": Mutant("hardware/observing/observer.py", "if picture.brightest() < BLACK:", "if False:", OBSERVED),
    "pictures-stay-as-bright-as-the-first": Mutant(PICTURES, "fingerprint, decode, None, None", "fingerprint, decode, None, self._brightest", OBSERVED),
    "policy-stops-by-one-message": Mutant(POLICY_STOP, "LASTS_S = 0.06", "LASTS_S = 0.0", POLICY_STOPS),
    "policy-stops-by-what-is-waited-for": Mutant(POLICY_STOP, "if problem and self._acted else", "if problem else", POLICY_STOPS),
    "policy-stops-never-forget": Mutant(POLICY_STOP, "min(self._since, now) if problem", "min(self._since, now) if self._since < now or problem", POLICY_STOPS),
    "policy-stops-an-arm-at-rest": Mutant(POLICY_STOP, "if reason and self._on and", "if reason and", POLICY_STOPS),
    "policy-stops-once": Mutant(POLICY_STOP, "self._clock() - self._said < AGAIN_S", "self._said > 0", POLICY_STOPS),
    "policy-stops-by-what-it-refused-before": Mutant(POLICY_STOP, "        if self._acted:\n            self.failed", "        if True:\n            self.failed", POLICY_STOPS),
    "a-stop-by-a-stranger": Mutant(STREAMER, "self.halt(self.stream.foreign(sender) or reason)", "self.halt(reason)", STOPPED),
    "a-stop-of-the-last-arming": Mutant(STREAMER, "if self._led and not self._was_before(1e-9 * stamp_ns):", "if self._led:", STOPPED),
    "a-stop-is-not-heard": Mutant(STREAMER, "if self._led and not self._was_before(1e-9 * stamp_ns):", "if False:", STOPPED),
    "a-stop-with-control-characters": Mutant("hardware/ros2/messages.py", '"".join(c if c.isprintable() else " " for c in reason[:LONGEST_REASON])', "reason[:LONGEST_REASON]", POLICY_STOPS),
    "leader-goes-round": Mutant(LEADER, "* np.round((self._led - q)", "* 0 * np.round((self._led - q)", LEADER_TESTS),
    "leader-jumps": Mutant(LEADER, "JUMP = 1.0", "JUMP = 10.0", LEADER_TESTS),
    "still-joints-are-signals": Mutant("policies/normalize.py", "] = CONSTANT", "] = STD_FLOOR", NORMALIZE),
    "all-that-is-slow-is-still": Mutant("policies/normalize.py", "most - least <= RESOLUTION", "std < STD_FLOOR", NORMALIZE),
    "finer-encoders-make-sag-a-signal": Mutant(
        "policies/normalize.py", "most - least <= RESOLUTION",
        'most - least <= (2.4e-5 if interface.embodiment in ("panda", "ur5e") else RESOLUTION)', NORMALIZE,
    ),
    "a-turn-on-is-familiar": Mutant(FAMILIAR, "turn = (turns != 0) &", "turn = False &", NORMALIZE),
    "a-turn-beyond-six-deviations": Mutant(FAMILIAR, "(np.abs(off * inverse) > WITHIN) &", "far &", NORMALIZE),
    "all-beyond-half-a-turn-is-a-turn": Mutant(
        FAMILIAR, "(2 * rest <= np.abs(off)) & near", "(2 * rest <= np.abs(off))", NORMALIZE
    ),
    "no-nearer-by-a-turn-is-a-turn": Mutant(FAMILIAR, "& (2 * rest <= np.abs(off)) & near", "", NORMALIZE),
    "policies-that-cannot-judge-are-silent": Mutant("robolearn/core/protocols.py", 'if ask else ("", UNJUDGED)', 'if ask else ("", "")', NORMALIZE),
    "jitter-over-two-steps-is-a-signal": Mutant(
        "policies/normalize.py", "[most - least <= RESOLUTION]", "[(std < STD_FLOOR) & (most - least <= RESOLUTION)]", NORMALIZE
    ),
    "still-joints-are-never-unfamiliar": Mutant(FAMILIAR, "np.abs(off) > STILL,", "False,", NORMALIZE),
    "ends-wait-for-a-node-that-is-gone": Mutant(SESSION, "if not idle:", "if True:", SESSIONS),
    "ends-in-motion-wait-for-nobody": Mutant(
        SESSION, "idle = not (self._preparing or self._arming) and self._state in (None, *AT_REST)", "idle = True",
        ("tests/hardware/test_recording_in_time.py", "tests/hardware/test_episodes.py"),
    ),
    "ends-wait-for-an-answer": Mutant(SESSION, "(moving and self._state in AT_REST)", "False", SESSIONS),
    "ends-cry-wolf": Mutant(SESSION, "not (self.done and self._state in AT_REST)", "True", SESSIONS),
    "launch-ends-well-whatever-failed": Mutant(LAUNCHING, "            if not self.failed:\n", "            if False:\n", LAUNCHED),
    "launch-cuts-off-a-checkpoint": Mutant(
        LAUNCHING, "            sigterm_timeout=str(patience_s),\n", "",
        ("tests/launch/test_launch_files.py::test_launch_waits_as_long_as_its_nodes_may_take_to_end",),
    ),
    "launch-ends-as-the-last": Mutant(LAUNCHING, "os._exit(self.failed[0])", "os._exit(self.failed[-1])", LAUNCHED),
    "launch-takes-a-stranger-s-code": Mutant(LAUNCHING, "if code and any(", "if code or any(", LAUNCHED),
    "launch-s-episode-never-ends": Mutant(
        "hardware/execution/episode_end.py", "now - self._begun >= self._seconds", "False",
        ("tests/hardware/test_episode_end.py",),
    ),
    "launch-s-policy-leaves-an-armed-arm": Mutant(
        "hardware/ros2/policy_node.py", "            self._disarm.call_async(Trigger.Request())\n", "            self.leave()\n",
        ("tests/hardware/test_episode_end.py",),
    ),
    "launch-s-verdict-of-the-episode-before": Mutant(
        "hardware/execution/episode_end.py", "not self._first and self._judge.solved", "self._judge.solved",
        ("tests/hardware/test_episode_end.py",),
    ),
    "launch-s-operator-is-not-heard": Mutant(
        "hardware/execution/episode_end.py", "            return self._said\n", "            pass\n",
        ("tests/hardware/test_episode_end.py",),
    ),
    "launch-s-verdict-is-of-every-episode": Mutant(
        "hardware/execution/episode_end.py", "else None), \"\"\n", "else None), self._said\n", ("tests/hardware/test_episode_end.py",),
    ),
    "launch-s-failure-ends-well": Mutant(
        "hardware/ros2/policy_node.py", "            if self._outcome == FAILURE:\n", "            if False:\n",
        ("tests/hardware/test_episode_end.py",),
    ),
    "late-joint-states-under-new-stamps": Mutant(LAG, "return found if self._late >= LOOKS else None", "return None", LAGS),
    "a-look-is-proof": Mutant(LAG, "if self._late >= LOOKS else", "if self._late else", LAGS),
    "an-arm-that-is-held-up-is-late": Mutant(
        LAG, "r[best] <= EXPLAINED * float(past[best].var(axis=1).sum()) and ", "", LAGS
    ),
    "what-tells-nothing-is-late": Mutant(LAG, " and r[best] <= TELLS * in_time", "", LAGS),
    "sag-is-a-delay": Mutant(LAG, "(q.T - past).var(axis=2)", "((q.T - past) ** 2).mean(axis=2)", LAGS),
    "what-is-allowed-is-late": Mutant(LAG, "allowed = math.ceil(self.allowed_s / STEP_S - 1e-6)", "allowed = 0", LAGS),
    "the-other-arm-is-late": Mutant(LAG, "lag.commanded(positions[at], now)", "lag.commanded(positions[:7], now - 0.7)", LAGS),
    "ticks-are-led-the-wrong-way": Mutant(PHASE, "self._nearest(AHEAD_S - float(waits[np.argmin(mean)]))", "self._nearest(float(waits[np.argmin(mean)]) - AHEAD_S)", PHASES),
    "the-slowest-target-leads-the-ticks": Mutant(PHASE, ".mean(axis=1)", ".max(axis=1)", PHASES),
    "ticks-are-led-to-where-all-wait": Mutant(PHASE, "np.argmin(mean)", "np.argmax(mean)", PHASES),
    "the-next-chunk-is-cold": Mutant(STREAMER, "            self.stream.warm()\n", "", QUICK),
    "the-executor-takes-the-interpreter": Mutant(HOST, "if abs(later) > 0.5 * period", "if later < -0.5 * period", QUICK),
    "ticks-are-led-the-long-way-round": Mutant(PHASE, "% self._period - half", "% self._period", PHASES),
    "a-moving-arm-is-hurried": Mutant(PHASE, "earliest = SLOWER if at_rest else FASTER", "earliest = SLOWER", PHASES),
    "an-arm-at-rest-waits": Mutant(PHASE, "earliest = SLOWER if at_rest else FASTER", "earliest = FASTER", PHASES),
    "waits-of-other-ticks": Mutant(PHASE, "deque((wait + moved for", "deque((wait for", PHASES),
    "what-is-owed-is-paid-for-ever": Mutant(PHASE, "            self._owed -= moved\n", "", PHASES),
    "what-was-held-up-leads-ticks": Mutant(PHASE, "if not 0.0 <= seconds <= STALE * self._period:", "if seconds != seconds:", PHASES),
    "the-first-observation-is-old": Mutant(PREDICTION, "after + 2 * EARLY_S, math.inf", "-math.inf, math.inf", QUICK),
    "a-slow-policy-is-warmed": Mutant(PREDICTION, "if statistics.median(self._took) < WARMED_S and self", "if self", QUICK),
    "warming-is-a-decision": Mutant(PREDICTION, "                    warm(self._policy)\n                    continue\n", "                    warm(self._policy)\n", QUICK),
    "warming-draws-noise": Mutant(
        "policies/policy.py", "            self._compute(*self._decided)\n",
        "            self._compute(self._decided[0], self.noise.draw(1))\n", ("tests/policies/test_policy.py",),
    ),
    "a-chunk-is-not-expected": Mutant(STREAMER, "return -BEFORE_S <= self._clock() - self._next_at", "return 0.0 <= self._clock() - self._next_at", QUICK),
    "a-refused-chunk-was-sent": Mutant(STREAMER, "            self.halt(str(error))\n            return False\n", "            self.halt(str(error))\n            return True\n", QUICK),
    "beats-are-never-shifted": Mutant(HOST, "            due += later\n", "", QUICK),
    "the-executor-never-waits": Mutant(HOST, "(EXECUTOR_S if abs(later) > 0.5 * period else 0.0)", "0.0", QUICK),
    "the-executor-always-waits": Mutant(HOST, "if abs(later) > 0.5 * period else 0.0", "if True else 0.0", QUICK),
    "what-moved-is-as-at-rest": Mutant(MEASURED, "and (at_once or now", "and (now", STUCK),
    "what-moves-may-not-lag": Mutant(MEASURED, "at_once = self._delay <= stood", "at_once = 0.0 <= stood", STUCK),
    "a-set-point-that-waited-goes-on": Mutant(MEASURED, " <= 2.0 * self._delay and", " <= 9.0 and", STUCK),
    "a-set-point-that-comes-back-goes-on": Mutant(MEASURED, "(way[-1] * went > ONWARD_RAD)", "(np.abs(went) > ONWARD_RAD)", STUCK),
    "what-creeps-moves": Mutant(MEASURED, "MOVES = 0.1", "MOVES = 0.0", STUCK),
    "encoders-that-stand-are-believed": Mutant(READINGS, "        return now - self._since\n", "        return 0.0\n", READ),
    "what-settles-is-noise": Mutant(READINGS, "noisy = steady & ", "noisy = ", READ),
    "what-moves-is-noise": Mutant(READINGS, " & (turns >= TURNS)", "", READ),
    "rounding-is-noise": Mutant(READINGS, " & (level >= LEAST_RAD)", "", READ),
    "flicker-is-noise": Mutant(READINGS, "RECENT = 20", "RECENT = 1", READ),
    "noise-is-learned-at-once": Mutant(READINGS, "LEARN_S, LEARN = 1.0, 30", "LEARN_S, LEARN = 0.2, 3", READ),
    "an-arm-that-came-to-a-stand-is-frozen": Mutant(READINGS, "if not any(((change", "if False and not any(((change", READ),
    "a-repetition-at-rest-takes-nothing-back": Mutant(READINGS, "self.level, self._block = None, []", "self._block = []", READ),
    "noise-of-another-driver": Mutant(READINGS, "if publisher != self._publisher:", "if False:", READ),
    "encoders-that-repeat-once-are-frozen": Mutant(READINGS, "self._repeats < REPEATS or now - self._since <= self._timeout", "not self._repeats", READ),
    "old-readings-are-no-leap": Mutant(READINGS, "if not excess[j] > 0.0:", "if True:", READ),
    "what-was-lost-is-a-leap": Mutant(READINGS, "max(stamp - last[1], now - last[2])", "0.005", READ),
    "what-was-held-up-is-a-leap": Mutant(READINGS, "            self._last = last\n            return \"\"\n", "            return \"\"\n", READ),
    "what-moves-leaps": Mutant(READINGS, "1.5 * speed * ago", "0.0 * ago", READ),
    "what-speeds-up-leaps": Mutant(READINGS, "PUSHED = 50.0", "PUSHED = 0.0", READ),
    "a-slow-bus-leaps": Mutant(READINGS, "LATE * timeout", "0.2 * 0.1", READ),
    "noise-leaps": Mutant(READINGS, "NOISES = 5.0", "NOISES = 0.0", READ),
    "cameras-with-noise-that-stand-are-believed": Mutant(PICTURES, "self.freshness.problem() or self.silence()", "self.freshness.problem()", NOISES),
    "pictures-that-stand-wait-for-far": Mutant(PICTURES, "(NEAR_RAD if self._noise.stands else MOVED_RAD)", "MOVED_RAD", NOISES),
    "pictures-that-come-thrice-stand": Mutant(PICTURES, "(NEAR_RAD if self._noise.stands else MOVED_RAD)", "NEAR_RAD", NOISES),
    "pictures-that-stand-beside-an-arm-at-rest": Mutant(PICTURES, "NEAR_RAD = 0.015", "NEAR_RAD = -1.0", NOISES),
    "pictures-that-stand-are-no-silence": Mutant(PICTURES, '(self._frozen if self._noise.stands else "")', '""', NOISES),
    "a-cube-that-falls-is-noise": Mutant(NOISY, "SHARE, MOST = 0.3, 0.5", "SHARE, MOST = 0.001, 0.02", NOISES),
    "compression-hides-noise": Mutant(NOISY, ".mean()) > MOST", ".mean()) > 1.0", NOISES),
    "a-picture-that-came-twice-is-frozen": Mutant(NOISY, "SAME, SAME_S = 4, 0.1", "SAME, SAME_S = 2, 0.0", NOISES),
    "a-picture-that-came-twice-proves-noise": Mutant(NOISY, "self._same + 1, 0", "self._same + 1, self._pairs", NOISES),
    "noise-is-learned-in-motion": Mutant(NOISY, "<= STILL_RAD", "<= 9.0", NOISES),
    "noise-of-another-camera": Mutant(NOISY, "if publisher != self._publisher:", "if False:", NOISES),
    "silence-is-waited-for": Mutant(POLICY_STOP, " or self._silent >= LOOKS", "", POLICY_STOPS),
    "one-look-is-silence": Mutant(POLICY_STOP, "LOOKS = 2", "LOOKS = 1", POLICY_STOPS),
    "a-camera-s-silence-is-no-silence": Mutant("hardware/observing/observer.py", "contact, *self._pictures.values())", "contact)", OBSERVED),
    "what-is-late-is-silent": Mutant("hardware/observing/timing.py", " and not self.fault:", ":", OBSERVED),
    "a-turn-on-is-acted-on": Mutant(
        "hardware/ros2/policy_node.py", "reason, warned = familiarity(", "_, warned = familiarity(",
        ("tests/hardware/test_unfamiliar_arm.py",),
    ),
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(kill_replacements("the arm's border", MUTANTS))
