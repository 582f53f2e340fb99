"""Mutation check of dynamics: one line of their draws, models, sensors or files is wrong, and a test fails."""

from __future__ import annotations

import sys

from mutation import Mutant, kill_replacements

ARM, DRAWS, LATE = "sim/embedded/dynamics.py", "robots/dynamics.py", "robots/transmission.py"
WORLD, FILES = ("tests/sim/test_world_dynamics.py",), ("tests/robots/test_dynamics.py",)
PAIRED, PAIRS = "robolearn/eval/paired.py", ("tests/eval/test_paired.py",)
FOUND, LOGS = ("tests/sim/test_identification.py",), ("tests/robots/test_motion_log.py",)
REJECTED = ("tests/cli/test_identify.py::test_a_fit_that_predicts_no_better_than_the_model_is_rejected",)
VERDICTS = ("tests/cli/test_identify.py::test_the_verdict_on_a_fit_that_predicts_nothing_better",)
MOVED, PLAYED = "hardware/calibration/motion.py", "hardware/execution/played_motion.py"
MOVES = ("tests/hardware/calibration/test_motion.py",)
ROWS, OF_ROWS = "hardware/calibration/rows.py", ("tests/hardware/test_motion_of_rows.py",)
KEPT, OF_SETS = "robolearn/deploy/logged.py", ("tests/cli/test_identify_logs.py::test_bad_input_is_a_line",)
OF_SHARES = ("tests/cli/test_identify_logs.py::test_whole_episodes_are_held_out",)
WAYS, EXCITED = "robots/excitation.py", "robolearn/deploy/excited.py"

MUTANTS: dict[str, Mutant] = {
    "measured-a-period-early": Mutant(MOVED, "np.interp(grid + period, times[1], column)", "np.interp(grid, times[1], column)", MOVES),
    "the-next-set-point-counts": Mutant(MOVED, 'side="right") - 1', 'side="right")', MOVES),
    "holes-are-drawn-over": Mutant(MOVED, "if (widest := float(gaps.max())) > GAP_S:", "if (widest := float(gaps.max())) > 9.0:", MOVES),
    "an-arm-that-was-moved-jumps": Mutant(PLAYED, "            if far > ELSEWHERE:", "            if far > 9.0:", MOVES),
    "a-stopped-motion-goes-on": Mutant(PLAYED, 'if self.state == "moving":\n            self.stop(', 'if False:\n            self.stop(', MOVES),
    "the-end-is-not-held": Mutant(PLAYED, "return self.way[min(k, len(self.way) - 1)]", "return self.way[k] if k < len(self.way) else None", MOVES),
    "written-while-armed": Mutant(PLAYED, 'return self.state == "done" and not self._arming', 'return self.state == "done"', MOVES),
    "the-way-begins-at-its-goal": Mutant(PLAYED, "start + share[:, None] * (targets[0] - start)", "targets[0] + 0 * share[:, None]", MOVES),
    "a-motion-is-not-tried-before": Mutant(EXCITED, "drive(PerfectArm(contract.joints, start), contract, targets)", "pass", MOVES),
    "beyond-the-workspace": Mutant(WAYS, "if limits is not None and limits.workspace is not None:", "if False:", MOVES),
    "as-fast-as-the-arm": Mutant(WAYS, "velocity = speed * (np.array(robot.velocity) if limits is None else limits.velocity)", "velocity = np.array(robot.velocity)", MOVES),
    "targets-of-the-next-row": Mutant(ROWS, 'side="right") - 1', 'side="right").clip(max=len(sent) - 1)', OF_ROWS),
    "targets-are-set-points": Mutant(ROWS, "commanded[i] = motion.q", "commanded[i] = goals[k]", OF_ROWS),
    "rows-by-the-action's-stamp": Mutant(ROWS, "at = seen - begin", "at = sent - begin", OF_ROWS),
    "a-joint-state-counts-twice": Mutant(ROWS, " & (np.diff(seen, prepend=-np.inf) > 0.0)", "", OF_ROWS),
    "rows-on-the-grid": Mutant("robots/motion_log.py", "share = (place - before)[:, None]", "share = 0.0", OF_ROWS),
    "the-filter's-moment-is-known": Mutant("robots/motion_log.py", "return self.period / np.sqrt(12.0)", "return 0.0", OF_ROWS),
    "gaps-of-rows-are-drawn-over": Mutant(KEPT, "apart.max() * hz > LATE", "apart.max() * hz > 99.0", OF_SETS),
    "old-joints-are-now": Mutant(KEPT, "if abs(age[worst]) > GAP_S else", "if abs(age[worst]) > 9.0 else", OF_SETS),
    "of-any-arm": Mutant(KEPT, "if interface.embodiment != contract.robot.name:", "if False:", OF_SETS),
    "of-any-rate": Mutant(KEPT, "if abs(interface.control_hz - contract.control_hz) > 1e-6 * contract.control_hz:", "if False:", OF_SETS),
    "predicted-actions-were-sent": Mutant(KEPT, "all() or PREDICTED_ACTIONS in interface.extra:", "all():", OF_SETS),
    "what-judges-was-fitted": Mutant(KEPT, "return list(motions[:-count]), list(", "return list(motions), list(", OF_SHARES),
    "payload-is-carried": Mutant(ARM, "CARRIER + value(\"payload\")[0]", "CARRIER", WORLD),
    "links-carry-themselves": Mutant(ARM, "body.gravcomp = 0.0", "pass", WORLD),
    "damping-as-modelled": Mutant(ARM, "= m.dof_damping[v] * damping", "= m.dof_damping[v]", WORLD),
    "friction-creeps": Mutant(ARM, "[0.999, 0.9999, 0.001, 0.5, 2.0]", "[0.9, 0.95, 0.001, 0.5, 2.0]", WORLD),
    "offset-of-sensors-alone": Mutant(ARM, "x[..., : self._n] -= self.offset[rows, None]", "pass", WORLD),
    "sensors-are-on-time": Mutant(ARM, "newer = self._seen[rows, -1 - whole]", "newer = self._seen[rows, -1]", WORLD),
    "set-points-on-the-way-are-forgotten": Mutant(
        ARM, '{"line": self._line, "last": self._last, "seen": self._seen}', '{"last": self._last, "seen": self._seen}',
        WORLD,
    ),
    "actions-from-the-true-arm": Mutant(
        "sim/embedded/world.py", "        seen = self._seen\n        tcp", "        seen = self.truth\n        tcp", WORLD
    ),
    "not-drawn-again-on-resume": Mutant(
        "sim/embedded/world.py", "self.physics.draw_physics(self._worlds, self._keys(self._worlds))", "pass", WORLD
    ),
    "dynamics-move-the-starts": Mutant(
        "sim/embedded/physics.py", "            whole = rng.integers(most + 1)\n",
        "            whole = rng.integers(most + 1) if self.arms is None else 0\n", WORLD,
    ),
    "play-on-one-side": Mutant(LATE, "max(y, u - half)", "max(y, u)", FILES),
    "parts-of-a-step-are-dropped": Mutant(LATE, "if part > 0.0:", "if False:", FILES),
    "correlation-is-read-and-dropped": Mutant(DRAWS, "z[at] = self._factor @ z[at]", "pass", FILES),
    "bounds-collect-draws": Mutant(DRAWS, "ndtri(below + share * (above - below))", "ndtri(share)", FILES),
    "upper-bound-is-forgotten": Mutant(DRAWS, "share * (above - below)", "share * (1.0 - below)", FILES),
    "a-posterior-is-truncated": Mutant(DRAWS, 'f"{name}.{i}" not in self.correlated for', "True for", FILES),
    "things-beyond-their-bounds": Mutant(
        "sim/embedded/physics.py", "spread.at(draws[..., i], *bounds[i])", "spread.at(draws[..., i])", WORLD
    ),
    "world-drawn-in-each-episode": Mutant(
        DRAWS, '"world": [2, seed, start]', '"world": [2, seed, start, episode]', FILES
    ),
    "ranks-of-simulation-count": Mutant(
        PAIRED, "np.abs(r[..., :, None] - r[..., None, :]) * violated",
        "np.abs(s[..., :, None] - s[..., None, :]) * violated", PAIRS,
    ),
    "one-episode-is-certain": Mutant(
        PAIRED, "rng.beta(w + 0.5, m - w + 0.5, shape)", "rng.binomial(m, w / m, shape) / m", PAIRS
    ),
    "noise-speaks-against-a-simulator": Mutant(PAIRED, "float(min(max(high, allowed), 1.0))", "float(high)", PAIRS),
    "noise-violates-ranks": Mutant(PAIRED, "float(max(min(low, allowed), 0.0))", "float(low)", PAIRS),
    "points-decide": Mutant(PAIRED, "if r_low >= R and high <= MMRV:", "if r >= R and violation <= MMRV:", PAIRS),
    "pairs-that-agree-are-proof": Mutant(PAIRED, "np.append(left, [1.0, -weight]).var", "left.var", PAIRS),
    "pairs-of-constant-outcomes-are-sure": Mutant(PAIRED, "if np.ptp(y) == 0.0 or", "if", PAIRS),
    "motion-around-the-filter": Mutant(
        "hardware/calibration/motion.py", "arm.command(command.positions)", "arm.command(target)",
        ("tests/cli/test_identify.py::test_the_filter_is_between_the_motion_and_the_arm",),
    ),
    "delay-is-not-fitted": Mutant(
        "sim/identification/model.py", "np.broadcast_to(way, (len(rows), *way.shape))", "np.roll(np.broadcast_to("
        "way, (len(rows), *way.shape)), 2, axis=1)", FOUND,
    ),
    "degrees-are-radians": Mutant("robots/motion_log.py", "if outside[row, joint] > OUTSIDE:", "if False:", LOGS),
    "limits-of-another-joint": Mutant("robots/motion_log.py", "{robot.upper[joint]:.4g} rad", "{robot.upper[0]:.4g} rad", LOGS),
    "a-worse-fit-is-handed-over": Mutant(
        "robolearn/cli/identify.py", "return NO_BETTER, None", "return None, None", REJECTED
    ),
    "a-rejected-fit-is-a-version": Mutant(
        "robolearn/cli/identify.py", 'if self.write and result["dynamics"]:', "if self.write:", REJECTED
    ),
    "a-rejected-fit-is-a-success": Mutant(
        "robolearn/cli/identify.py", 'return 1 if result["rejected"] else', "return", REJECTED
    ),
    "an-arm-as-modelled-is-a-failure": Mutant(
        "robolearn/cli/identify.py", "if fitted.nominal <= AS_GOOD", "if fitted.nominal <= 0.0", VERDICTS
    ),
    "every-poor-fit-is-of-an-arm-as-modelled": Mutant(
        "robolearn/cli/identify.py", "if fitted.nominal <= AS_GOOD", "if held.nominal <= AS_GOOD", VERDICTS
    ),
    "rest-identifies": Mutant("sim/identification/fit.py", "if sd > KEPT * own)", "if sd > 2.0 * own)", FOUND),
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(kill_replacements("dynamics", MUTANTS))
