"""Mutation check of stations: one line of contracts, pictures, calibration or the doctor is wrong, and a test fails."""

from __future__ import annotations

import sys

from mutation import Mutant, kill_replacements

PICTURES, TOOL = ("tests/robots/test_pictures.py",), ("tests/robots/test_tool.py",)
CONTRACT, JUDGE = ("tests/robots/test_contract.py",), ("tests/hardware/test_station_judge.py",)
CALIBRATION = ("tests/hardware/calibration/test_calibration.py",)
NO_POSE = (f"{CALIBRATION[0]}::test_what_fits_no_pose_is_refused",)
SERVOS, SERVO_TESTS = "hardware/servos/driver.py", ("tests/hardware/test_servo_driver.py",)
GRAVITY, GRAVITY_TESTS = "robots/spec.py", ("tests/hardware/safety/test_safety_gravity.py",)
STATION, HAND_EYE = "hardware/station", "hardware/calibration/hand_eye.py"
POSES = ("tests/hardware/test_pose_targets.py",)
STREAMER, HOMING = "hardware/execution/streamer.py", ("tests/hardware/test_homing.py",)
RECORDS, HOMES = "hardware/recording/recording.py", ("tests/hardware/test_recording_homes.py",)
BACK, RESETS = "hardware/teleop/reset_policy.py", ("tests/hardware/test_recording_resets.py",)
HOME, SESSION = "hardware/execution/homing.py", "robolearn/deploy/session.py"
CLAMP = ("tests/hardware/test_workspace_clamp.py",)
SWEPT = ("tests/hardware/safety/test_safety_collision.py::test_fingers_count_wherever_they_may_be",)
GOAL, GOALS = "hardware/ros2/gripper_node.py", ("tests/hardware/test_action_goal.py",)
ARMS = ("tests/sim/test_arms.py",)
SPEC, PIXELS, FILE = "robots/spec.py", "robots/stations/pictures.py", "robots/stations/contract_file.py"
LATE, LATE_TESTS = "robots/chunk_execution.py", ("tests/hardware/test_chunk_execution_arm.py",)
FOLDER, VERSIONS = "robots/stations/folder.py", ("tests/robots/test_station_folder.py",)
FOUND, FOUND_TESTS = "hardware/station/driver_topics.py", ("tests/hardware/test_driver_topics.py",)
PLAYED = ("tests/hardware/teleop/test_supervised.py",)
DEPLOY = "robolearn/deploy/deployment.py"
DEPLOYED = ("tests/deploy/test_deployment.py::test_deploy_prints_an_unfamiliar_posture_and_the_version_of_its_station",)
BEHIND = (
    "tests/deploy/test_refusals.py::test_deploy_names_the_clock_of_an_arm_that_is_behind_and_the_command_that_mends_it",
)

MUTANTS: dict[str, Mutant] = {
    "joints-by-words-in-any-order": Mutant(FILE, "return not rising or (", "return (", CONTRACT),
    "joints-by-numbers-in-any-order": Mutant(FILE, " and counted != sorted(counted))", " and False)", CONTRACT),
    "joints-by-capitals-in-any-order": Mutant(FILE, "apart.lower()", "apart", CONTRACT),
    "any-format-is-unpacked": Mutant(PIXELS, "cv2.IMREAD_COLOR) if height * width else None", "cv2.IMREAD_COLOR)", PICTURES),
    "calibrates-on-nan": Mutant(HAND_EYE, "if not all(np.isfinite(part).all() for", "if False and not all(np.isfinite(part).all() for", NO_POSE),
    "calibrates-on-one-view-again-and-again": Mutant(HAND_EYE, "if (poses := _poses(views)) < LEAST:", "if (poses := _poses(views)) < 0:", NO_POSE),
    "a-repeated-view-is-a-new-one": Mutant(HAND_EYE, "if not len(kept) or not (near &", "if True or not (near &", NO_POSE),
    "a-bell-in-a-name": Mutant("robots/stations/values.py", 'Field(min_length=1), must(str.isprintable, "a word without control characters")]', "Field(min_length=1)]", CONTRACT),
    "deploy-is-silent-of-the-posture": Mutant(DEPLOY, 'if warned := client.policy.get("unfamiliar"):', 'if warned := "":', DEPLOYED),
    "deploy-of-any-version": Mutant(DEPLOY, "deployment.contract.version or None", "None", DEPLOYED),
    "doctor-of-any-version": Mutant(
        "robolearn/cli/doctor.py", '"version": contract.version or None', '"version": None',
        ("tests/cli/test_doctor.py::test_the_version_of_a_station_is_in_what_doctor_finds",),
    ),
    "deploy-beside-a-clock-that-is-behind": Mutant("hardware/observing/clocks.py", "if youngest > oldest:", "if False:", BEHIND),
    "deploy-names-no-cure-for-clocks": Mutant("hardware/observing/clocks.py", "sudo chronyc makestep (", "(", BEHIND),
    "a-vector-in-any-order": Mutant(FOUND, "(kind == TRAJECTORY and set(one.joints)", "(set(one.joints)", FOUND_TESTS),
    "two-arms-are-one": Mutant(FOUND, "if len(prefixes) > 1:", "if False:", FOUND_TESTS),
    "joint-states-of-a-part": Mutant(FOUND, "if set(named) <= set(heard.names)", "if set(named) & set(heard.names)", FOUND_TESTS),
    "a-prefix-twice": Mutant(FOUND, "before + joint.removeprefix(before)", "before + joint", FOUND_TESTS),
    "a-vector-ahead-of-time": Mutant(FOUND, "if self.command is not None and self.command.type != TRAJECTORY:", "if False:", FOUND_TESTS),
    "chunks-on-the-way-home": Mutant(STREAMER, "not self.stopped and self._homing is None", "not self.stopped", HOMING),
    "home-for-ever": Mutant(STREAMER, "            self._homing = None  # over", "            pass  # over", HOMING),
    "home-for-one-who-is-gone": Mutant(STREAMER, "late = self._clock() - self._homing_asked > HOMING_S", "late = False", HOMING),
    "home-on-old-joints": Mutant(STREAMER, "            if problem := self._problem():\n                self.halt(problem)\n            elif (target", "            if False:\n                self.halt(problem)\n            elif (target", HOMING),
    "a-way-home-is-not-tried-before": Mutant(HOME, "    drive(PerfectArm(contract.joints, q), contract, way)\n", "", HOMING),
    "home-along-the-table": Mutant(HOME, "above[0, 2] += RISE_M", "above[0, 2] += 0.0", HOMING),
    "home-with-the-thing": Mutant(HOME, "[arm.limits.gripper_max for arm in arms]", "[0.0 for _ in arms]", HOMING),
    "a-hand-does-not-take-over": Mutant(RECORDS, "            if self._moved_by_hand(self.sample):", "            if False:", HOMES),
    "home-is-recorded": Mutant(RECORDS, "if EpisodeCommand.BEGIN in commands and (why := self._leading()):", "if False and (why := self._leading()):", HOMES),
    "the-device-moves-it-on-its-way": Mutant(RECORDS, "elif home is None or not home.going or self._asked is None or self._moved_by_hand(sample):", "else:", HOMES),
    "things-are-back-for-nothing": Mutant(RECORDS, "if back is not None and back.back and not reason:", "if back is not None and not reason:", RESETS),
    "the-next-begins-on-old-chunks": Mutant(RECORDS, "            self.device.prepared()  # the arm is elsewhere than after the episode before\n", "", RESETS),
    "a-reset-goes-on-after-a-stop": Mutant(RECORDS, "                back.end(False, back.reason or NOT_BACK)\n", "                pass\n", RESETS),
    "a-verdict-outlives-a-stop": Mutant(RECORDS, "(back.going or back.back)", "back.going", RESETS),
    "a-reset-before-the-first-episode": Mutant(RECORDS, "back is not None and before is Phase.RECORDING", "back is not None", RESETS),
    "a-late-reset-goes-on": Mutant(BACK, "elif self._player.stopped:", "elif False:", RESETS),
    "a-reset-for-ever": Mutant(BACK, "elif self._count >= self._steps:", "elif False:", RESETS),
    "a-reset-counts-the-person": Mutant(BACK, "        self._watch(observation)\n", "        self._watch(observation)\n        self._count += 1\n", RESETS),
    "a-reset-by-both": Mutant(BACK, "        if not theirs.automatic:", "        if False:", RESETS),
    "a-reset-goes-on-from-before": Mutant(BACK, "            self._player.begin()  # it begins anew where", "            pass  # it begins anew where", RESETS),
    "a-verdict-of-the-reset-before": Mutant(BACK, "(self._action is not None and self._judge and", "(self._judge and", RESETS),
    "a-judge-of-other-actions": Mutant(BACK, "                self._action = action\n", "                pass\n", RESETS),
    "a-refused-way-is-silent": Mutant(HOME, 'self.cancel(f"the arm does not go home: {error}")', "self.cancel()", HOMES),
    "home-before-leave": Mutant(SESSION, "        self._home()\n        if again:", "        if again:\n            self._home()", ("tests/deploy/test_deployment.py",)),
    "a-chunk-waits-for-the-next-tick": Mutant(STREAMER, "        self._arrival.add(self.stream.latency_s)\n        self.tick()\n", "        self._arrival.add(self.stream.latency_s)\n", HOMING),
    "late-by-time-alone": Mutant(
        "hardware/execution/streamer.py", "relative=self._set_points.relative", "relative=False", LATE_TESTS
    ),
    "late-counts-what-was-before": Mutant(LATE, "- max(at, start)", "- at", LATE_TESTS),
    "late-actions-do-not-end": Mutant(LATE, "min(end, at + self._period)", "end", LATE_TESTS),
    "late-actions-overlap": Mutant(LATE, "            end = at\n", "", LATE_TESTS),
    "late-on-the-other-side": Mutant(LATE, "grid[None]) - executed", "grid[None]) + executed", LATE_TESTS),
    "late-what-is-done-is-not-counted": Mutant(LATE, "place += out[:, j]", "pass", LATE_TESTS),
    "late-a-step-behind": Mutant(LATE, "begin[:, None] + 1.0 +", "begin[:, None] +", LATE_TESTS),
    "late-anywhere-on-a-standstill": Mutant(LATE, "beside + _EPSILON", "beside - _EPSILON", LATE_TESTS),
    "late-grippers-are-displaced": Mutant(LATE, "~opening & displacements", "opening | displacements", LATE_TESTS),
    "late-along-rotations": Mutant(LATE, "kind in TRANSLATION for", "True for", LATE_TESTS),
    "late-without-bounds": Mutant(LATE, "np.clip(goals[:, j] - place, -1.0, 1.0)", "goals[:, j] - place", LATE_TESTS),
    "late-never-held": Mutant(LATE, "self.executed.add(now, action)", "pass", LATE_TESTS),
    "late-played-by-time": Mutant(
        "hardware/teleop/chunk_player.py", 'relative=interface.action_kind == "tcp_delta"', "relative=False", PLAYED
    ),
    "late-played-with-all-before": Mutant(LATE, ".since(start, now", ".since(0.0, now", (*PLAYED, *LATE_TESTS)),
    "steps-at-any-rate": Mutant(
        "hardware/execution/setpoints.py", "contract.robot, contract.control_hz)", "contract.robot)", CLAMP
    ),
    "late-without-a-tail": Mutant(
        "hardware/execution/prediction.py", "return 0 if steps < 1 else math.ceil(steps) + 1", "return 0",
        ("tests/cli/test_deploy.py::test_a_slow_policy_goes_on_with_what_it_predicted",),
    ),
    "tool-forgotten": Mutant(SPEC, "if self.tool is None:\n            return chain", "return chain", TOOL),
    "flange-at-the-last-joint": Mutant(
        SPEC, "tcp_pos=np.array(self.flange) + np.array(tcp.position)", "tcp_pos=np.array(tcp.position)", TOOL
    ),
    "poses-of-any-frame": Mutant("hardware/safety/supervisor.py", "if frame != base:", "if False:", POSES),
    "poses-without-opening": Mutant(
        "hardware/ros2/safety_node.py", "o.y, o.z]), self._target_opening)", "o.y, o.z]), None)", POSES
    ),
    "rpy-the-other-way-round": Mutant("robots/spec.py", "z @ y @ x)", "x @ y @ z)", TOOL),
    "tool-without-space": Mutant(SPEC, "found += (box_piece", "_ = (box_piece", TOOL),
    "namespace-forgotten": Mutant(FILE, 'f"{contract.namespace}/{name}"', 'f"/{name}"', CONTRACT),
    "crop-ignored": Mutant(PIXELS, "rgb = rgb[top : top + height, left : left + width]", "", PICTURES),
    "byte-order": Mutant(PIXELS, '">" if message.is_bigendian else "<"', '"<"', PICTURES),
    "lower-byte": Mutant(PIXELS, "samples = samples >> 8", "samples = samples & 255", PICTURES),
    "u-and-v": Mutant(
        PIXELS, 'cv2.COLOR_YUV2RGB_UYVY if', 'cv2.COLOR_YUV2BGR_UYVY if', PICTURES
    ),
    "depth-not-measured-is-near": Mutant(PIXELS, "np.where(measured, metres, far)", "metres", PICTURES),
    "doctor-second-publisher": Mutant(
        f"{STATION}/findings.py", "len({s.sender for s in arm}) > 1 or len(speakers) > 1", "False", JUDGE
    ),
    "doctor-silent-publisher": Mutant(f"{STATION}/findings.py", "    elif silent:", "    elif False:", JUDGE),
    "doctor-gaps": Mutant(f"{STATION}/findings.py", "if beat.gap > longest:", "if False:", JUDGE),
    "doctor-last-gap": Mutant(f"{STATION}/seen.py", ", ended - times[-1])", ", 0.0)", JUDGE),
    "doctor-old-stamps": Mutant("hardware/observing/clocks.py", "if youngest > oldest:", "if False:", JUDGE),
    "doctor-future-stamps": Mutant(
        "hardware/observing/clocks.py", "if oldest_seen < -FUTURE_S:", "if False:", JUDGE
    ),
    "doctor-wrong-type": Mutant(f"{STATION}/findings.py", "    if wrong:", "    if False:", JUDGE),
    "doctor-no-listener": Mutant(f"{STATION}/findings.py", "        elif wrong:", "        elif True:", JUDGE),
    "doctor-other-commander": Mutant(f"{STATION}/findings.py", "        if others:", "        if False:", JUDGE),
    "doctor-frame-of-another": Mutant(
        f"{STATION}/findings.py", "if camera.frame and sent != camera.frame:", "if False:", JUDGE
    ),
    "doctor-no-frame": Mutant(
        f"{STATION}/findings.py", "elif not camera.frame and not alone:", "elif False:", JUDGE
    ),
    "doctor-limits": Mutant(f"{STATION}/findings.py", "    if outside.any():", "    if False:", JUDGE),
    "doctor-slow-camera": Mutant(f"{STATION}/findings.py", "if beat.hz < SLOW * least_hz:", "if False:", JUDGE),
    "doctor-small-picture": Mutant(
        f"{STATION}/findings.py", "if cut_height < want_height or cut_width < want_width:", "if False:", JUDGE
    ),
    "doctor-lens": Mutant(f"{STATION}/findings.py", "if off <= LENS and same_shape:", "if True:", JUDGE),
    "doctor-hung-safety-node": Mutant(f"{STATION}/check.py", "> SILENT_S:", "> 1e9:", JUDGE),
    "one-axis-is-enough": Mutant(HAND_EYE, "if spread[1] < TURNED:", "if False:", CALIBRATION),
    "flange-the-wrong-way": Mutant(HAND_EYE, 'if parent == "flange" else', 'if parent == "base" else', CALIBRATION),
    "any-board": Mutant(HAND_EYE, "if abs(scale - 1.0) >", "if False and abs(scale - 1.0) >", CALIBRATION),
    "any-residual": Mutant(HAND_EYE, "if rms > FAR_PX:", "if False:", CALIBRATION),
    "distortion-ignored": Mutant(
        HAND_EYE, "k, distortion = matrix_of(lens), np.array(lens.distortion)", "k, distortion = matrix_of(lens), None",
        CALIBRATION,
    ),
    "clamp-without-planes": Mutant("hardware/execution/setpoints.py", "pos += max(", "pos += 0 * max(", CLAMP),
    "clamp-without-workspace": Mutant("hardware/execution/setpoints.py", "if self._box is not None:", "if False:", CLAMP),
    "clamp-without-what-is-held": Mutant("hardware/execution/setpoints.py", "if limits.held is not None:", "if False:", CLAMP),
    "clamp-moves-an-arm-back-in": Mutant(
        "hardware/execution/setpoints.py", "low = np.where(now[0] > low - AT_IT_M, low, now[0])", "", CLAMP
    ),
    "clamp-of-points-without-thickness": Mutant("hardware/execution/setpoints.py", " - self._radii)", ")", CLAMP),
    "futures-that-rclpy-keeps": Mutant(GOAL, "client.remove_future(other)", "pass", GOALS),
    "driver-that-hangs-is-waited-for": Mutant(GOAL, "return self._asked is not None and", "return False and", GOALS),
    "goal-that-was-forgotten": Mutant(GOAL, "self._ended = None\n        self._future", "self._future", GOALS),
    "refused-and-asked-at-once": Mutant(
        "hardware/execution/gripper_goals.py", "if now < self._not_before:", "if False:",
        ("tests/hardware/test_gripper_actions.py::test_a_gripper_that_refuses_is_asked_twice_a_second",),
    ),
    "fingers-open-only": Mutant("robots/shapes.py", "(low, high) if kind", "(high,) if kind", SWEPT),
    "torque-before-the-goal": Mutant(
        SERVOS, "self._bus.write(self._measured)\n            self._bus.torque", "self._bus.torque", SERVO_TESTS
    ),
    "servos-without-limits": Mutant(
        SERVOS, "((goal < self._lower) | (goal > self._upper), ", "(goal < -99, ", SERVO_TESTS
    ),
    "servos-jump": Mutant(SERVOS, "if away[i] > self._max_jump[i]:", "if False:", SERVO_TESTS),
    "servos-of-two-publishers": Mutant(SERVOS, "if others > 0:", "if False:", SERVO_TESTS),
    "servos-go-on-after-a-refusal": Mutant(
        SERVOS, "self._wanted, self._refusing = None, True", "self._refusing = True", SERVO_TESTS
    ),
    "servos-press-on": Mutant(SERVOS, "> BLOCKED_RAD:", "> 99.0:", SERVO_TESTS),
    "jaw-lets-go": Mutant(
        SERVOS, "np.where(arm, reading.positions, self._goal)", "reading.positions", SERVO_TESTS
    ),
    "servos-sag-at-each-silence": Mutant(SERVOS, "> BLOCKED_RAD:", "> -1.0:", SERVO_TESTS),
    "servos-dead-for-ever": Mutant(SERVOS, "now - self._heard > LOST_S:", "False:", SERVO_TESTS),
    "arm-dropped-at-the-end": Mutant(SERVOS, "            if release:", "            if True:", SERVO_TESTS),
    "gravity-forgotten": Mutant(GRAVITY, "return self.torques(q) - np", "return -np", GRAVITY_TESTS),
    "gravity-of-another-posture": Mutant(GRAVITY, "self._data.qpos[self._q] = q", "pass", GRAVITY_TESTS),
    "tool-without-weight": Mutant(GRAVITY, "tool is not None and tool.mass > 0.0", "False", GRAVITY_TESTS),
    "tool-weighs-at-the-flange": Mutant(GRAVITY, " + np.array(tool.centre))", ")", GRAVITY_TESTS),
    "efforts-of-another-device": Mutant(
        "hardware/observing/observer.py", "return self._gravity is None or any(", "return True or any(", GRAVITY_TESTS
    ),
    "jaw-begins-anywhere": Mutant(
        "hardware/safety/inputs.py", "return None if self._gripper is None else self._gripper.width", "return None",
        ("tests/hardware/test_servos_node.py::test_the_jaw_begins_where_it_is_measured_and_goes_no_faster_than_it_may",),
    ),
    "stale-pose": Mutant(
        "hardware/safety/filter.py", "self._pose = self.geometry.pose(positions)", "pass",
        ("tests/bench/test_impedance.py::test_a_pose_is_that_of_the_set_point_that_the_filter_allows",),
    ),
    "deploy-forgets-who-was-stopped": Mutant(
        "robolearn/deploy/session.py", "                yield error.episode\n", "                pass\n",
        ("tests/deploy/test_session.py",),
    ),
    "deploy-flatters-who-was-stopped": Mutant(
        "robolearn/deploy/session.py", "EpisodeResult(index, False, ", "EpisodeResult(index, True, ",
        ("tests/deploy/test_session.py",),
    ),
    "deploy-throws-episodes-away": Mutant(
        "robolearn/deploy/deployment.py", "        if not results:\n", "        if True:\n",
        ("tests/deploy/test_deployment.py",),
    ),
    "a-crash-loses-its-logs": Mutant(
        "robolearn/deploy/processes.py", "    except Exception as error:\n        logs.kept",
        "    except RobolearnError as error:\n        logs.kept", ("tests/deploy/test_logs.py",),
    ),
    "logs-of-all-are-kept": Mutant(
        "robolearn/deploy/processes.py", "        if not logs.kept:", "        if False:", ("tests/deploy/test_logs.py",)
    ),
    "deploy-writes-nothing": Mutant(
        "robolearn/deploy/deployment.py", "write_json(folder.path / RESULT, result)", "pass",
        ("tests/deploy/test_deployment.py",),
    ),
    "terminal-before-the-arm": Mutant(
        "robolearn/cli/deploy.py", "            checked(deployment)  #", "            pass  #",
        ("tests/cli/test_deploy.py::test_what_does_not_fit_is_named",),
    ),
    "nodes-of-the-current-folder": Mutant(
        "robolearn/deploy/processes.py", '"-P", "-m", ', '"-m", ',
        ("tests/deploy/test_deployment.py::test_files_of_the_current_folder_are_no_part_of_our_nodes",),
    ),
    "jaw-closes-as-fingers-do": Mutant(SPEC, "(opened - closed) / self.max_width * width", "0.5 * width", ARMS),
    "small-arm-before-a-large-bench": Mutant(
        "sim/embedded/task.py", "if self.scale == 1.0:\n            return start", "if True: return start", ARMS
    ),
    "cameras-stay-far-away": Mutant("sim/embedded/scene.py", "s = layout.scale", "s = 1.0", ARMS),
    "jaw-grips-at-the-tcp": Mutant("sim/tasks/lift.py", "return aim - rot @ view.grip, rot", "return aim, rot", ARMS),
    "five-joints-give-up-the-place": Mutant(
        SPEC, "IKConfig(position_weight=POSITION_FIRST)", "IKConfig()",
        ("tests/sim/test_experts.py::test_the_expert_lifts_with_every_arm",),
    ),
    "jaw-shown-from-zero": Mutant(
        "hardware/ros2/sim_driver.py", "scale * (fingers - shut)", "scale * fingers",
        ("tests/cli/test_rehearsal.py::test_an_episode_of_an_so101_whose_jaw_is_the_last_number_of_the_command",),
    ),
    "a-rehearsal-that-solves-nothing": Mutant(
        "tests/programs/rehearse_arms.py", "sum(solved[:EPISODES]) >= rate * EPISODES", "sum(solved[:EPISODES]) >= 0",
        ("tests/cli/test_rehearsal_judge.py::test_four_episodes_of_which_two_are_solved_will_do",),
    ),
    "recording-stores-what-was-asked-at-the-border": Mutant(
        "hardware/recording/recording.py",
        "            and np.array_equal(row.target, self.set_points.wanted(row.q, row.action))\n", "",
        ("tests/hardware/test_recording_in_time.py",),
    ),
    "a-version-of-what-has-not-changed": Mutant(FOLDER, "    if past and not changes(folder, past[-1]):\n        return past[-1]\n", "", VERSIONS),
    "a-version-is-no-copy": Mutant(FOLDER, "        shutil.copyfile(folder / name, part / name)\n", "        (part / name).touch()\n", VERSIONS),
    "changes-since-go-unsaid": Mutant(FOLDER, "    changed = changes(folder, past[-1])\n", "    changed = []\n", VERSIONS),
    "the-first-version-counts": Mutant(FOLDER, "key=lambda one: one.number)", "key=lambda one: -one.number)", VERSIONS),
    "a-torn-version-stays": Mutant(FOLDER, "    shutil.rmtree(part, ignore_errors=True)\n    part.mkdir(parents=True)\n", "    part.mkdir(parents=True)\n", VERSIONS),
    "dynamics-of-a-folder-are-none": Mutant("robots/dynamics_file.py", "    path = in_station(Path(name), DYNAMICS_FILE)\n", "    path = Path(name)\n", VERSIONS),
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(kill_replacements("stations", MUTANTS))
