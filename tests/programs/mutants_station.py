"""Mutation check of stations: one line of contracts, pictures, calibration or the doctor is wrong, and a test fails."""

from __future__ import annotations

import sys

from mutation import Mutant, kill_replacements

PICTURES, TOOL = ("tests/robots/test_pictures.py",), ("tests/robots/test_tool.py",)
CONTRACT, JUDGE = ("tests/robots/test_contract.py",), ("tests/hardware/test_station_judge.py",)
CALIBRATION = ("tests/hardware/calibration/test_calibration.py",)
STATION, HAND_EYE = "hardware/station", "hardware/calibration/hand_eye.py"
BORDER = ("tests/hardware/test_border.py",)
SWEPT = ("tests/hardware/safety/test_safety_collision.py::test_fingers_count_wherever_they_may_be",)
GOAL, GOALS = "hardware/ros2/action_goal.py", ("tests/hardware/test_action_goal.py",)
SPEC, PIXELS, FILE = "robots/spec.py", "robots/stations/pictures.py", "robots/stations/contract_file.py"

MUTANTS: dict[str, Mutant] = {
    "tool-forgotten": Mutant(SPEC, "if self.tool is None:\n            return chain", "return chain", TOOL),
    "flange-at-the-last-joint": Mutant(
        SPEC, "tcp_pos=np.array(self.flange) + np.array(tcp.position)", "tcp_pos=np.array(tcp.position)", TOOL
    ),
    "rpy-the-other-way-round": Mutant("robots/tool.py", "z @ y @ x)", "x @ y @ z)", TOOL),
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
        f"{STATION}/joints.py", "len({s.sender for s in arm}) > 1 or len(speakers) > 1", "False", JUDGE
    ),
    "doctor-silent-publisher": Mutant(f"{STATION}/joints.py", "    elif silent:", "    elif False:", JUDGE),
    "doctor-gaps": Mutant(f"{STATION}/lines.py", "if beat.gap > longest:", "if False:", JUDGE),
    "doctor-last-gap": Mutant(f"{STATION}/seen.py", ", ended - times[-1])", ", 0.0)", JUDGE),
    "doctor-old-stamps": Mutant(f"{STATION}/lines.py", "if age > oldest:", "if False:", JUDGE),
    "doctor-future-stamps": Mutant(f"{STATION}/lines.py", "if age < -FUTURE_S:", "if False:", JUDGE),
    "doctor-wrong-type": Mutant(f"{STATION}/lines.py", "    if wrong:", "    if False:", JUDGE),
    "doctor-no-listener": Mutant(f"{STATION}/findings.py", "        elif wrong:", "        elif True:", JUDGE),
    "doctor-other-commander": Mutant(f"{STATION}/findings.py", "        if others:", "        if False:", JUDGE),
    "doctor-limits": Mutant(f"{STATION}/joints.py", "    if outside.any():", "    if False:", JUDGE),
    "doctor-slow-camera": Mutant(f"{STATION}/lines.py", "if beat.hz < SLOW * least_hz:", "if False:", JUDGE),
    "doctor-small-picture": Mutant(
        f"{STATION}/pictures.py", "if cut_height < want_height or cut_width < want_width:", "if False:", JUDGE
    ),
    "doctor-lens": Mutant(f"{STATION}/pictures.py", "if off <= LENS and same_shape:", "if True:", JUDGE),
    "doctor-hung-safety-node": Mutant(f"{STATION}/findings.py", "> SILENT_S:", "> 1e9:", JUDGE),
    "one-axis-is-enough": Mutant(HAND_EYE, "if spread[1] < TURNED:", "if False:", CALIBRATION),
    "flange-the-wrong-way": Mutant(HAND_EYE, 'if parent == "flange" else', 'if parent == "base" else', CALIBRATION),
    "any-board": Mutant(HAND_EYE, "if abs(scale - 1.0) >", "if False and abs(scale - 1.0) >", CALIBRATION),
    "any-residual": Mutant(HAND_EYE, "if rms > FAR_PX:", "if False:", CALIBRATION),
    "distortion-ignored": Mutant(
        HAND_EYE, "k, distortion = matrix_of(lens), np.array(lens.distortion)", "k, distortion = matrix_of(lens), None",
        CALIBRATION,
    ),
    "border-without-planes": Mutant("hardware/border.py", "pos += max(", "pos += 0 * max(", BORDER),
    "border-without-workspace": Mutant("hardware/border.py", "if self._box is not None:", "if False:", BORDER),
    "border-without-what-is-held": Mutant("hardware/border.py", "if limits.held is not None:", "if False:", BORDER),
    "border-moves-an-arm-back-in": Mutant(
        "hardware/border.py", "low = np.where(now[0] > low - AT_IT_M, low, now[0])", "", BORDER
    ),
    "border-of-points-without-thickness": Mutant("hardware/border.py", " - self._radii)", ")", BORDER),
    "futures-that-rclpy-keeps": Mutant(GOAL, "client.remove_future(other)", "pass", GOALS),
    "driver-that-hangs-is-waited-for": Mutant(GOAL, "return self._asked is not None and", "return False and", GOALS),
    "goal-that-was-forgotten": Mutant(GOAL, "self._ended = None\n        self._future", "self._future", GOALS),
    "refused-and-asked-at-once": Mutant(
        "hardware/gripper_goals.py", "if now < self._not_before:", "if False:",
        ("tests/hardware/test_gripper_actions.py::test_a_gripper_that_refuses_is_asked_twice_a_second",),
    ),
    "fingers-open-only": Mutant("robots/shapes.py", "(low, high) if kind", "(high,) if kind", SWEPT),
    "recording-stores-what-was-asked-at-the-border": Mutant(
        "hardware/recording/recording.py",
        "            and np.array_equal(row.target, self.set_points.wanted(row.q, row.action))\n", "",
        ("tests/hardware/test_recording_in_time.py",),
    ),
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(kill_replacements("stations", MUTANTS))
