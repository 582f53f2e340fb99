"""``robolearn benchmark safety``: fuzzed commands through the safety filter, judged by the independent monitor."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

from robolearn.core import BadInput
from robolearn.core.switches import Seed, Within, available
from robolearn.runs import Progress
from robolearn.runs.command import Command, print_table

COSTED = 300  # postures
MOVED = 3000  # commands in motion that are timed, at most
_ROBOTS = available(lambda: (*import_module("robots").ROBOTS, *import_module("robots").PAIRS))
BLOCK = 1000  # commands between two looks at the tcp and at the progress bar


@dataclass(frozen=True, kw_only=True)
class BenchmarkSafety(Command):
    """Send fuzzed commands through the safety filter to an arm that follows; count what breaks a limit, and the cost.

    Half of the commands meet the robot's own limits at 200 Hz, half tighter ones with a workspace box at 100 Hz. Two
    arms are driven into each other instead, over a table, and MuJoCo measures how near they come. What a command costs
    in motion is timed by itself.
    """

    commands: Annotated[int, Within(2)] = 100_000
    """Fuzzed commands in all."""
    seed: Seed = 0
    """Seed of everything random."""
    robot: Annotated[str, _ROBOTS] = "panda"
    """Which arm, or two."""
    postures: Annotated[int, Within(0)] = 0
    """Random postures that the filter's geometry and MuJoCo judge; an armed filter is driven into the arm itself and a
    table, a thousandth as many times."""

    def run(self) -> dict[str, Any]:
        from hardware.safety import Limits
        from robolearn.bench.safety.motion import cost_in_motion
        from robots import PAIRS, ROBOTS

        if self.robot in PAIRS:
            return self._two_arms(PAIRS[self.robot])
        if self.robot not in ROBOTS:
            raise BadInput("--robot", got=self.robot, available=(*ROBOTS, *PAIRS))
        robot = ROBOTS[self.robot]
        own = Limits.of(robot)
        settings = [(own, 0.005, self.commands - self.commands // 2), (_tighter(robot, own), 0.01, self.commands // 2)]
        parts: list[dict[str, Any]] = []
        logging.getLogger("hardware.safety").setLevel(logging.CRITICAL)  # it would tell of thousands of faults
        began = time.perf_counter()
        with Progress("fuzzing", total=self.commands, unit="commands", quiet=self.json) as progress:
            for limits, period, commands in settings:
                before = sum(part["commands"] for part in parts)
                seed = 2 * self.seed + len(parts)
                parts.append(_fuzz(robot, limits, period, seed, commands, lambda n, m, b=before: progress(b + n, m)))
        together = _together(parts, time.perf_counter() - began)
        together["motion_us"] = cost_in_motion(robot, own, 0.005, min(self.commands, MOVED), self.seed)
        return {**together, "geometry": self._geometry(robot)} if self.postures else together

    def _two_arms(self, pair: Any) -> dict[str, Any]:
        """Two arms, driven into each other; MuJoCo judges every command."""
        import numpy as np

        from hardware.safety import Limits
        from robolearn.bench.safety.motion import cost_in_motion
        from robolearn.bench.safety.pair import PairAttack
        from robots.limits import Plane

        began = time.perf_counter()
        logging.getLogger("hardware.safety").setLevel(logging.CRITICAL)
        table = Plane("table", np.array([0.0, 0.0, 1.0]))
        limits = Limits.joined(pair, [Limits.of(part.robot).tightened(obstacles=(table,)) for part in pair.parts])
        attack = PairAttack(pair, limits, 0.005, self.seed)
        with Progress("driving two arms", total=self.commands, unit="commands", quiet=self.json) as progress:
            while attack.ticks < self.commands:
                attack.run(min(attack.ticks + BLOCK, self.commands))
                progress(attack.ticks, {"contacts": attack.contacts})
        cost = cost_in_motion(pair, limits, 0.005, min(self.commands, MOVED), self.seed)
        return {
            "robot": pair.name, **attack.summary(), "motion_us": cost, "wall_s": {"total": time.perf_counter() - began}
        }  # fmt: skip

    def exit_code(self, result: Mapping[str, Any]) -> int:
        return int(result.get("contacts", 0) + result.get("overlaps", 0) > 0)

    def _geometry(self, robot: Any) -> dict[str, Any]:
        """Postures and drives that MuJoCo judges."""
        import numpy as np

        from hardware.safety import Limits
        from robolearn.bench.safety.collisions import Attack, compare_postures, cost_of_a_check
        from robots.limits import Plane

        limits = Limits.of(robot)
        with Progress("judging postures", total=self.postures, unit="postures", quiet=self.json) as progress:
            found = compare_postures(robot, limits, self.postures, self.seed, lambda done: progress(done, {}))
        table = Plane("table", np.array([0.0, 0.0, 1.0]))
        attack = Attack(robot, limits.tightened(obstacles=(table,)), 0.005, self.seed)
        attack.run(max(self.postures // 1000, 1))
        cost = cost_of_a_check(robot, limits, COSTED, self.seed)
        drives = {"drives": attack.tries, "drive_commands": attack.commands, "drive_overlaps": attack.overlaps}
        return {**found, "cost": cost, **drives}

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        if "ticks" in result:
            cost = result["filter_us"]
            console.print(
                f"{result['ticks']:,} commands that drive two arms into each other: {result['contacts']} contacts "
                f"between them, {result['overlaps']} of one with itself or the table; never nearer than "
                f"{result['nearest_mm']:.1f} mm; stopped {result['stopped']} times"
            )
            console.print(f"a command costs {cost['p50']:.0f} µs (99% below {cost['p99']:.0f} µs)", highlight=False)
            _show_motion(result["motion_us"], console)
            return
        words = "no violation" if result["violations"] == 0 else f"[red]{result['violations']} violations[/red]"
        console.print(f"{result['commands']:,} fuzzed commands: {words}; latched {result['latched']:,} times")
        cost, wall = result["filter_us"], result["filter_wall_us"]
        console.print(
            f"a command costs {cost['p50']:.0f} µs (99% below {cost['p99']:.0f} µs); "
            f"as the clock on the wall saw it, {wall['p50']:.0f} µs ({wall['p99']:.0f} µs)",
            highlight=False,
        )
        _show_motion(result["motion_us"], console)
        peak = result["peak"]
        console.print("largest share of a limit: " + ", ".join(f"{k} {peak[k]:.1%}" for k in _SHARES), highlight=False)
        if "geometry" in result:
            found = result["geometry"]
            console.print(
                f"{found['postures']:,} postures, {found['overlapping']:,} overlapping: {found['let_through']} let "
                f"through; {found['refused']:,} refused, {found['refused_far']} of them more than 4 cm clear; driven "
                f"at itself and a table {found['drives']} times: {found['drive_overlaps']} overlaps"
            )
            cost = found["cost"]
            console.print(
                f"a check of a posture costs {cost['check_us']:.0f} µs, of a way of {cost['way_set_points']} "
                f"set-points {cost['way_us']:.0f} µs; all distances of {cost['pairs']} pairs {cost['gaps_us']:.0f} µs, "
                f"of {cost['mujoco_pairs']} by mj_geomDistance {cost['mujoco_us']:.0f} µs; "
                f"kinematics {cost['forward_us']:.1f} µs, MuJoCo's {cost['mujoco_forward_us']:.1f} µs",
                highlight=False,
            )
        refusals = sorted(result["refusals"].items(), key=lambda item: -item[1])
        print_table(console, ("refused at", "times"), [(stage, f"{count:,}") for stage, count in refusals])


_SHARES = ("velocity", "acceleration", "jerk")


def _show_motion(cost: Mapping[str, float], console: Any) -> None:
    console.print(
        f"with every joint in motion, nothing near and nothing judged, {cost['p50']:.0f} µs (99% below "
        f"{cost['p99']:.0f} µs; {cost['commands']:,} commands)",
        highlight=False,
    )


def _tighter(robot: Any, own: Any) -> Any:
    """Half the speed, a narrower joint box, and a box of 30 cm around the tcp at home."""
    import numpy as np

    home = np.asarray(robot.home)
    tcp = robot.chain.forward(home[None])[0][0]
    return own.tightened(
        lower=np.maximum(own.lower, home - 1.0),
        upper=np.minimum(own.upper, home + 1.0),
        velocity=0.5 * own.velocity,
        acceleration=0.5 * own.acceleration,
        workspace=np.stack([tcp - 0.15, tcp + 0.15]),
        max_jump=0.3,
    )


def _fuzz(robot: Any, limits: Any, period: float, seed: int, commands: int, show: Any) -> dict[str, Any]:
    """`commands` fuzzed commands through one filter."""
    import numpy as np

    from hardware.observing.monitor import LimitMonitor
    from robolearn.bench.safety.fuzz import Fuzz

    fuzz = Fuzz(robot, limits, period, seed)
    monitor = LimitMonitor(limits.lower, limits.upper, limits.velocity, limits.acceleration, limits.jerk, period)
    cost, wall = np.empty(commands), np.empty(commands)
    sent: list[Any] = []
    outside = bad_gripper = 0
    for i in range(commands):
        monitor.state(fuzz.measured, fuzz.now)
        command = fuzz.step()
        cost[i], wall[i] = fuzz.filter_ns, fuzz.wall_ns
        if command is not None:
            monitor.command(command.positions, fuzz.now)
            sent.append(command.positions)
            bad_gripper += command.gripper is not None and not 0.0 <= command.gripper <= limits.gripper_max
        if fuzz.moved:
            monitor.new_motion()
        if (i + 1) % BLOCK == 0 or i + 1 == commands:
            outside += _outside(robot, limits, sent)
            sent.clear()
            show(i + 1, {"violations": monitor.summary()["violations"]})
    seen, status = monitor.summary(), fuzz.filter.status()
    return {
        "commands": commands,
        "sent": seen["commands"],
        "violations": seen["violations"] + outside + bad_gripper,
        "by_kind": {**seen["violations_by_kind"], "workspace": outside, "gripper": bad_gripper},
        "peak": seen["peak"],
        "latched": fuzz.latched,
        "armed": fuzz.armed,
        "refusals": status["refusals"],
        "clamped": status["clamped"],
        "spells": dict(fuzz.spells),
        "cost": cost,
        "wall": wall,
    }


def _outside(robot: Any, limits: Any, sent: list[Any]) -> int:
    """Number of set-points that put the tcp outside the workspace."""
    import numpy as np

    if limits.workspace is None or not sent:
        return 0
    tcp = robot.chain.forward(np.stack(sent))[0]
    inside = (tcp >= limits.workspace[0] - 1e-3) & (tcp <= limits.workspace[1] + 1e-3)
    return int((~inside.all(1)).sum())


def _together(parts: list[dict[str, Any]], total_s: float) -> dict[str, Any]:
    import numpy as np

    def added(key: str) -> dict[str, int]:
        return dict(sum((Counter(part[key]) for part in parts), Counter()))

    def percentiles(key: str) -> dict[str, float]:
        p50, p99 = np.percentile(np.concatenate([part[key] for part in parts]) / 1e3, [50, 99])
        return {"p50": float(p50), "p99": float(p99)}

    sums = {
        key: sum(part[key] for part in parts)
        for key in ("commands", "sent", "violations", "latched", "armed", "clamped")
    }
    return {
        **sums,
        "violations_by_kind": added("by_kind"),
        "peak": {key: max(part["peak"][key] for part in parts) for key in _SHARES},
        "filter_us": percentiles("cost"),
        "filter_wall_us": percentiles("wall"),
        "refusals": added("refusals"),
        "spells": added("spells"),
        "wall_s": {"total": total_s},
    }
