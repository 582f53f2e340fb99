"""The maker's own judge: libfranka and a server of its protocol, which enforces the limits of an FR3, follow our chain.

    goals ──► safety filter, 200 Hz ──► points 40 ms ahead ──► joint_trajectory_controller, 1 kHz ──► libfranka

The filter and the points are those of a deployment, on a clock of their own with late ticks; the controller is the
emulator's. What it asks for each millisecond is stored and played to `pylibfranka` against `franka-sim` with enforced
motion limits: a step of velocity above 10 rad/s², or of acceleration above 5,000 rad/s³, aborts a motion by a reflex.
The judge is proved by the same goals without the filter, which it must refuse. It is no hardware: a real arm has a
payload, a temperature and a network.

With `--episodes`, the whole chain on that clock, too: policies with late, missing and replaced chunks, teleoperation,
hand-overs, stops, kills of each part, cancelled goals (`maker_episodes.py`). All of them are judged by finite
differences, and `--play` of them, spread over the kinds, by libfranka, which plays in real time.
With `--live`, a deployment's nodes too, which are killed, held up and interrupted in mid-motion (`maker_live.py`).

    python tests/programs/maker_judge.py [--seed 0] [--rounds 3] [--episodes 1000 --play 200] [--live 10]
    1: the judge says otherwise
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from hardware.execution.ahead import send_ahead
from hardware.execution.horizon import Horizon, Point
from hardware.safety import JointTarget, SafetyFilter
from hardware.safety.states import SafetyState
from robolearn.bench.emulators.trajectory_controller import TrajectoryController, TrajectoryPoint
from robots.stations import load_contract

ROOT = Path(__file__).parents[2]
MAKER = ROOT / ".venv-maker"
CONTROLLER_S = 0.001
LATE_S, LATE_SHARE = 0.06, 0.01  # most of a tick's delay; share of such ticks. Points run out behind 40 ms of it
GOALS_S = 0.05  # from one goal to the next, as a policy of 20 Hz has them
LONG_S = 3.0
REST_S = 6.0  # most of the way to rest behind the last goal
BATCH = 40  # motions that one server of libfranka's protocol judges
STOPS = {
    "goals": "",
    "wild": "",
    "stop": "stop",
    "e-stop": "estop",
    "silence": "silence",
    "dead-man": "deadman",
    "jump": "jump",
    "death": "death",
}
CALM, WILD = (0.2, 0.6), (0.25, 0.8)  # most of amplitude [rad] and rate [Hz]. The filter refuses most of the wild ones
SERVER = """
ip link set lo up || exit 9
"$1" --no-gripper --enforce-motion-limits --physics mujoco > "$4" 2>&1 &
server=$!
sleep 8
"$2" "$3" "$5"
code=$?
kill $server
exit $code
"""


def goals(rng: np.random.Generator, home: np.ndarray, most: tuple[float, float] = CALM) -> np.ndarray:
    """(K, n) goals 50 ms apart: sines of all joints, and from time to time a step of up to a tenth of a radian."""
    t = np.arange(0.0, LONG_S, GOALS_S)[:, None]
    size, rate, phase = rng.uniform(0.05, most[0], 7), rng.uniform(0.2, most[1], 7), rng.uniform(0, 2 * np.pi, 7)
    steps = rng.uniform(-0.1, 0.1, (len(t), 7)) * (rng.random((len(t), 1)) < 0.2)
    return home + size * (np.sin(2 * np.pi * rate * t + phase) - np.sin(phase)) + steps


def filtered(rng: np.random.Generator, name: str) -> np.ndarray:
    """(T, 7) what the controller asks for each millisecond, until rest; a fault ends the motion after two thirds."""
    contract = load_contract("fr3")
    home, period, joints = np.array(contract.robot.home), 1 / contract.stream_hz, contract.joints
    now, clock = 0.0, 100.0
    ahead = contract.command.horizon_s
    guard = SafetyFilter(contract.robot, joints, contract.limits, period, lambda: clock, ahead=True)
    horizon = Horizon(period, ahead)
    leads, asked = TrajectoryController(joints, home), []
    fault = STOPS[name]
    wanted, at, velocity = goals(rng, home, WILD if name == "wild" else CALM), home.copy(), np.zeros(7)
    armed, tick, done = False, 0.0, False

    def at_controllers() -> float:
        return now

    def message(due: list[Point]) -> Callable[[], object]:
        points = [TrajectoryPoint(p.at - due[0].at, p.positions, p.velocities) for p in due]
        return lambda: accepted(leads.accept(joints, points, due[0].at, now))

    while now < LONG_S + 1.5 or (np.any(np.abs(velocity) > 1e-4) and now < LONG_S + REST_S):
        if now >= tick and not (done and fault == "death"):
            late = now + rng.uniform(0.0, LATE_S) * (rng.random() < LATE_SHARE)
            while now < late:  # the process did not run: the controller goes on
                now, clock = now + CONTROLLER_S, clock + CONTROLLER_S
                velocity, at = ask(leads, asked, now, at, velocity)
            tick = period * (int(now / period) + 1)  # what was missed is skipped
            silent = done and fault == "silence"
            guard.deadman(not (done and fault == "deadman"))
            guard.measured(joints, at)
            if not armed and now > 0.4:
                guard.arm()
                armed, begun = True, now
            if armed and not silent and not (done and fault):
                k = int((now - begun) / GOALS_S)
                guard.target(JointTarget(joints, wanted[min(k, len(wanted) - 1)], None))
            if armed and not done and now - begun > 2 / 3 * LONG_S:
                done = True
                if fault == "jump":
                    guard.target(JointTarget(joints, at + 0.6, None))
                elif fault in ("stop", "estop"):
                    getattr(guard, fault)("a person")
            command = guard.step()
            if command is not None:
                send_ahead(horizon, guard, command, at_controllers, message)
                guard.sent()
        now, clock = now + CONTROLLER_S, clock + CONTROLLER_S
        velocity, at = ask(leads, asked, now, at, velocity)
    if np.any(np.abs(velocity) > 1e-4):
        sys.exit(f"{name}: the arm still moves {REST_S} s behind its last goal, at {np.abs(velocity).max():.3f} rad/s")
    if name == "goals" and guard.state is not SafetyState.ARMED:
        sys.exit(f"{name}: the filter ended a motion that nothing was wrong with: {guard.reason}")
    return np.array(asked)


def accepted(refusal: str) -> None:
    assert not refusal, refusal


def ask(leads: TrajectoryController, asked: list, now: float, at: np.ndarray, velocity: np.ndarray) -> tuple:
    """One millisecond of the controller; the arm is where it is asked to be."""
    to = np.array(leads.sample(now, at, velocity))
    asked.append(to)
    return (to - at) / CONTROLLER_S, to


def unfiltered(rng: np.random.Generator) -> np.ndarray:
    """(T, 7) the same goals straight to the controller: one point each, reached when the next one is due."""
    contract = load_contract("fr3")
    home = np.array(contract.robot.home)
    leads, asked, at, velocity = TrajectoryController(contract.joints, home), [], home.copy(), np.zeros(7)
    wanted = goals(rng, home)
    for k in range(int(LONG_S / CONTROLLER_S)):
        now = k * CONTROLLER_S
        if k % round(GOALS_S / CONTROLLER_S) == 0:
            point = TrajectoryPoint(GOALS_S, wanted[min(int(now / GOALS_S), len(wanted) - 1)], None)
            leads.accept(contract.joints, [point], 0.0, now)
        velocity, at = ask(leads, asked, now, at, velocity)
    return np.array(asked)


def whole(number: int, seed: int, play: int) -> tuple[dict[str, np.ndarray], list[str]]:
    """Of so many episodes of `maker_episodes`: the ways for libfranka, and what finite differences find."""
    import maker_episodes as made

    ways, findings, ended, ticks = {}, [], Counter[str](), 0
    worst: dict[str, tuple[float, ...]] = {}
    begun = time.monotonic()
    for name, kind, rng in made.plan(number, seed):
        try:
            one = made.episode(rng, kind)
        except AssertionError as error:  # it does not begin, or does not end
            findings.append(f"{name}: {error}")
            print(findings[-1], flush=True)
            continue
        acceleration, jerk = one.largest()
        ticks += len(one.way)
        ended[one.ended.split(":")[0]] += 1
        count, *most = worst.get(kind, (0, 0.0, 0.0, 0.0))
        worst[kind] = (count + 1, *map(max, most, (acceleration, jerk, one.own_step())))
        if not (acceleration < made.ACCELERATION and jerk < made.JERK):
            findings.append(f"{name}: {acceleration:.1f} rad/s², {jerk:.0f} rad/s³; {one.ended}")
            print(findings[-1], flush=True)
        if one.refused:
            findings.append(f"{name}: the controller refuses a message: {one.refused[0]}")
            print(findings[-1], flush=True)
        if kind not in made.OF_THE_CONTROLLER and len(ways) < play:
            ways[f"filtered, {name}"] = made.trimmed(one.way)
    for kind, (count, acceleration, jerk, own) in worst.items():
        beside = f"; the controller's own steps {own:.0f} rad/s²" if own else ""
        print(f"{kind:30s} {count:4.0f} episodes   {acceleration:5.2f} rad/s² {jerk:6.0f} rad/s³{beside}")
    print(
        f"finite differences: {len(findings)} findings in {ticks:,} ticks of {number} episodes, "
        f"{time.monotonic() - begun:.0f} s; ended {dict(ended)}", flush=True,
    )  # fmt: skip
    return ways, findings


def judge(segments: dict[str, np.ndarray]) -> Iterator[dict]:
    """What libfranka says of each segment, `BATCH` by `BATCH`."""
    names = list(segments)
    for begin in range(0, len(names), BATCH):
        yield from judged({name: segments[name] for name in names[begin : begin + BATCH]})


def judged(segments: dict[str, np.ndarray]) -> list[dict]:
    """The same of some, in a network namespace of its own: the server binds every interface."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        assets = next((MAKER / "lib").glob("python*/site-packages/franky_sim/assets"))
        (folder / "fr3.xml").write_bytes((assets / "fr3.xml").read_bytes())
        (folder / "assets").symlink_to(assets / "meshes")
        np.savez(folder / "set_points.npz", **segments)  # type: ignore[arg-type]
        drive, programs = Path(__file__).with_name("maker_drive.py"), MAKER / "bin"
        words = [programs / "run-franka-sim-server", programs / "python", drive, folder / "server.log",
                 folder / "set_points.npz"]  # fmt: skip
        alone = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
        # The maker asks for a real-time kernel: a set-point that this machine sends late is a reflex, too.
        if os.geteuid() == 0 and (chrt := shutil.which("chrt")):
            alone = [chrt, "--fifo", "20", *alone]
        env = {**os.environ, "FR3_MJCF": str(folder / "fr3.xml"), "MUJOCO_GL": "disable"}
        done = subprocess.run(
            [*alone, "sh", "-c", SERVER, "sh", *map(str, words)], env=env, capture_output=True, text=True, check=False
        )
        if done.returncode:
            log = folder / "server.log"
            sys.exit(f"{done.stderr[-2000:]}\n{log.read_text()[-2000:] if log.exists() else ''}")
        return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3, help="of each kind of end")
    parser.add_argument("--episodes", type=int, default=0, help="of the whole chain, its kinds in turn")
    parser.add_argument("--play", type=int, default=40, help="so many of these to libfranka")
    parser.add_argument("--live", type=int, default=0, help="episodes of a policy through the nodes of a deployment")
    options = parser.parse_args()
    rng, segments, findings = np.random.default_rng(options.seed), {}, []
    for k in range(options.rounds):
        segments |= {f"filtered, {name} {k}": filtered(rng, name) for name in STOPS}
    if options.episodes:
        ways, findings = whole(options.episodes, options.seed, options.play)
        segments |= ways
    if options.live:
        import maker_live

        segments |= maker_live.live(options.live)
    segments |= {f"unfiltered {k}": unfiltered(rng) for k in range(2)}  # last: their reflexes leave the arm somewhere
    found = []
    for row in judge(segments):
        found.append(row)
        missed = f", {row['missed_ms']} ms missed" if row["missed_ms"] else ""
        again = f", played again after reflexes with {row['not_counted']} ms missed" if row["not_counted"] else ""
        print(f"{row['name']:44s} {row['ticks']:6d} ms   {row['error'] or 'no reflex'}{missed}{again}", flush=True)
    ours = [row for row in found if row["name"].startswith("filtered")]
    reflexes, proved = sum(bool(row["error"]) for row in ours), [row for row in found if row not in ours]
    print(
        f"{reflexes} reflexes in {sum(row['ticks'] for row in ours):,} ticks of {len(ours)} motions through the filter"
    )
    print(f"{sum('reflex' in row['error'] for row in proved)} of {len(proved)} motions without it end by a reflex")
    return int(bool(findings) or reflexes > 0 or not all("reflex" in row["error"] for row in proved))


if __name__ == "__main__":
    sys.exit(main())
