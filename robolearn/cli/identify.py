"""``robolearn identify``: the dynamics of an arm from its motion, as a file that worlds draw arms from."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tyro

from robolearn.cli.station_command import MovingCommand
from robolearn.core import BadInput
from robolearn.core.machine import available_cpus
from robolearn.core.switches import Seed
from robolearn.io.atomic import write_bytes
from robolearn.runs import Progress
from robolearn.runs.command import command_text, reported

if TYPE_CHECKING:
    from robots.motion_log import MotionLog
    from robots.stations import Contract
    from sim.identification.fit import Fit

log = logging.getLogger(__name__)

LONGEST_S = 600.0
JUDGED_S = 5.0  # held out at least: the first 4 s of each part are not judged
WAYS = 1.25  # length of a motion with the ways between its pieces, at least
AT_ONCE_S = 1e-4  # a delay that is no delay
EARLY = "the arm seems to move before it is told to; are its joint states stamped too early, or a clock behind?"
NO_BETTER = "the fit predicts the held-out motion no better than the model as it is: no dynamics file was written"
AS_MODELLED = "the model as it is already predicts this arm: no dynamics file is needed, and none was written"
AS_GOOD = 1.05  # error of the model over that of the fit, in the very motion that the fit is of, at which it does
SMALLEST_MRAD = 1e-9  # of an error that others are divided by: a simulated arm is predicted exactly
DRIFT = 3.0  # deviations of a difference that are a change


@dataclass(frozen=True, kw_only=True)
class Identify(MovingCommand):
    """Fit masses, gains, damping, friction, backlash and delay of an arm to its motion, with 95% intervals.

    The arm moves for --seconds, every set-point through the safety filter. A real one's driver runs already; you are
    asked before it moves, and hold the emergency stop. The motion begins where the arm is, was played through the
    station's filter before, and leaves room around the table: clear the arm's workspace. The last part of it is held
    out and judges the result, which is a file for --dynamics: its distributions are the posterior of the fit. Of a fit
    that predicts it no better than the model as it is no file is written. Where the model predicts the fitted motion as
    well as the fit does, the arm is as modelled, and all is well; else the fit is rejected, and the exit code is 1.
    """

    log: Path | None = None
    """What was recorded before, in place of a motion: a data set of `record` or `deploy --record` of this arm, whose
    last episodes are held out, or an .npz: robot, period [s], commanded and measured (T, n) [rad]."""
    seconds: float = 60.0
    """Length of the motion [s], ways between its pieces aside."""
    speed: float = 1.0
    """Share of the motion's usual speed, in (0, 1]: a third of what the station's limits allow each joint. A slow
    motion shows friction and backlash, and little of masses and gains."""
    held_out: float = 0.25
    """Share of the motion, its end, that judges the result."""
    before: tuple[Path, ...] = ()
    """Earlier results of this arm, oldest first: what has changed since the last is listed, and each parameter's course
    over all of them."""
    write: bool = False
    """Put the result into the station's folder, too, as dynamics.json and as its next version."""
    seed: Seed = 0
    """Of the motion, and of the simulated arm."""
    threads: tyro.conf.Suppress[int] = 0
    out: Path
    """Folder for dynamics.json, motion.npz and report.html."""

    def run(self) -> dict[str, Any]:
        if not self.rehearse:
            return self._identify()
        if self.log is not None or self.write:
            got = "--log" if self.log is not None else "--write"
            raise BadInput(
                "--rehearse", got=f"it with {got}", expected="the motion of a simulated arm, which is kept nowhere"
            )
        with self.rehearsed() as there:
            return there._identify()

    def _identify(self) -> dict[str, Any]:
        from robots.dynamics_file import load_dynamics
        from robots.stations import load_contract
        from robots.stations.folder import DYNAMICS, keep

        if not 10.0 <= self.seconds <= LONGEST_S:
            raise BadInput("--seconds", got=self.seconds, expected=f"10 to {LONGEST_S:g}")
        if self.log is None and WAYS * self.seconds * self.held_out < JUDGED_S:  # before an arm moves for nothing
            got = f"{self.seconds:g} s, {self.held_out:g} of them held out"
            raise BadInput("--seconds, --held-out", got=got, expected=f"{JUDGED_S:g} s held out or more")
        if not 0.0 < self.speed <= 1.0:
            raise BadInput("--speed", got=self.speed, expected="above 0, at most 1")
        if not 0.1 <= self.held_out <= 0.5:
            raise BadInput("--held-out", got=self.held_out, expected="0.1 to 0.5")
        contract = load_contract(self.robot)
        station = Path(contract.path).parent
        if self.write and not contract.version:
            expected = "a folder with versions, by robolearn station"
            raise BadInput("--write", got=f"{contract.name}, in no station's folder", expected=expected)
        earlier = [load_dynamics(str(path)) for path in self.before]
        for one in earlier:
            one.check(contract.robot)
        begun = time.perf_counter()
        motion, stopped = None, ""
        if self.log is not None and self.log.is_dir():
            fitted, held = self._logged(contract)
        else:
            motion, stopped = self._motion(contract)
            fitted, held = [motion.part(0.0, 1.0 - self.held_out)], [motion.part(1.0 - self.held_out, 1.0)]
        moved = time.perf_counter()
        seconds = sum(one.seconds for one in fitted), sum(one.seconds for one in held)
        if seconds[1] < JUDGED_S:
            got = f"{sum(seconds):.1f} s of motion, {seconds[1]:.1f} s of them held out"
            raise BadInput("motion", got=got, expected=f"{JUDGED_S:g} s held out: more of it, or --held-out")
        fit, pages, errors = self._fit(contract, fitted, held)
        result = self._result(contract, fit, errors, seconds, earlier)
        result["stopped"] = stopped or None
        result["wall_s"] = {"motion": moved - begun, "fit": time.perf_counter() - moved}
        result |= self._write(motion, fit, result, pages)
        if self.write and result["dynamics"]:
            write_bytes(station / DYNAMICS, Path(result["dynamics"]).read_bytes())
            error = result["held_out"]["identified_mrad"]
            result["station_version"] = keep(station, f"identify: {error:.3f} mrad on held-out motion").number
        result["wall_s"]["total"] = time.perf_counter() - begun
        return result

    def _logged(self, contract: Contract) -> tuple[Sequence[MotionLog], Sequence[MotionLog]]:
        """Of a data set: what is fitted, and what is held out."""
        from robolearn.deploy.logged import held_out, logged_motions

        assert self.log is not None
        if self.dynamics != "none":
            raise BadInput("--dynamics", got=f"{self.dynamics} with --log", expected="one of them")
        return held_out(logged_motions(self.log, contract), self.held_out)

    def _motion(self, contract: Contract) -> tuple[MotionLog, str]:
        """The motion, and why it was stopped before its end, or nothing."""
        from robots.dynamics_file import load_dynamics
        from robots.motion_log import load_log

        dynamics = load_dynamics(self.dynamics)
        if self.log is not None:
            if self.dynamics != "none":
                raise BadInput("--dynamics", got=f"{self.dynamics} with --log", expected="one of them")
            return load_log(self.log, contract.robot), ""
        dynamics.check(contract.robot)
        if contract.simulated and not (contract.driver or contract.servos):
            return self._stepped(contract), ""
        self.check_simulated_only(contract)
        return self._played(contract)

    def _task(self, contract: Contract) -> str:
        from sim.embedded.task import fits
        from sim.registry import task_names

        return next(name for name in task_names() if fits(contract.robot, name))

    def _stepped(self, contract: Contract) -> MotionLog:
        """Of the simulated arm, as fast as it can be simulated."""
        from hardware.calibration.motion import drive
        from robots.excitation import excitation
        from sim.realtime import RealtimeWorld

        world = RealtimeWorld(self._task(contract), self.seed, robot=contract.robot, dynamics=self.dynamics)
        targets = excitation(contract.robot, self.seconds, 1.0 / contract.stream_hz, self.seed, speed=self.speed)
        with Progress("moving the arm", total=len(targets), unit="set-points", quiet=self.json) as progress:
            return drive(world, contract, targets, lambda done: progress(min(done, len(targets))))

    def _played(self, contract: Contract) -> tuple[MotionLog, str]:
        """Of the station's arm, over ROS 2 and in real time."""
        from robolearn.cli.deploy import simulated_arm
        from robolearn.cli.terminal_operator import TerminalOperator, check_may_ask
        from robolearn.deploy.excited import Station, record_motion
        from robolearn.deploy.processes import warn_of_enclaves
        from robots.excitation import excitation

        check_may_ask(contract, self.yes)
        warn_of_enclaves(self.enclaves)
        simulation = None
        if contract.simulated:
            _, simulation = simulated_arm(self._task(contract), 4.0 * self.seconds + 120.0, self.dynamics)
        station = Station(
            contract=contract, robot=self.robot, realtime_priority=self.realtime_priority, enclaves=self.enclaves,
            seed=self.seed, simulation=simulation,
        )  # fmt: skip
        bar: Progress | None = None  # not before the person was asked

        def progress(done: int, of: int) -> None:
            nonlocal bar
            if bar is None:
                bar = moving.enter_context(Progress("moving the arm", of, unit="set-points", quiet=self.json))
            bar(done)

        def draw(attempt: int) -> Any:
            period, seed = 1.0 / contract.stream_hz, self.seed + 1000 * attempt
            return excitation(contract.robot, self.seconds, period, seed, contract.limits, self.speed)

        operator = TerminalOperator(self.yes)
        with ExitStack() as moving:
            moved = record_motion(station, draw, operator, domain=self.domain, logs=self.logs, progress=progress)
        if moved.stopped:
            log.warning("%s; the %.0f s until then are used", moved.stopped, moved.log.seconds)
        return moved.log, moved.stopped

    def _fit(
        self, contract: Contract, fitted: Sequence[MotionLog], held: Sequence[MotionLog]
    ) -> tuple[Fit, Any, tuple[Errors, Errors]]:
        from robolearn.eval.dynamics_page import HeldOut
        from robots.motion_log import SparseLog
        from sim.identification import fit as fits

        sparse = isinstance(held[0], SparseLog)
        skip_s = fits.SKIP_ROWS_S if sparse else fits.SKIP_S
        identifier = fits.Identifier(
            contract.robot, fitted[0].period, self.threads or available_cpus(), skip_s=skip_s
        )  # fmt: skip
        with Progress("fitting", total=fits.ROUNDS * fits.EVALUATIONS, unit="Jacobians", show=("error_mrad",),
                      quiet=self.json) as progress:  # fmt: skip
            fit = identifier.fit(fitted, lambda done, error: progress(done, {"error_mrad": 1e3 * error}))
        both = ({}, fit.values())
        of_fitted, of_held = (
            Errors(*(1e3 * identifier.error(part, values) for values in both)) for part in (fitted, held)
        )
        judged = [(one, one.after(skip_s)) for one in held]
        measured = np.concatenate([one.measured[rows] for one, rows in judged])
        predicted = [np.concatenate([identifier.predict(one, values)[rows] for one, rows in judged]) for values in both]
        period = 1.0 / contract.control_hz if sparse else held[0].period
        return fit, HeldOut(period, measured, *predicted), (of_fitted, of_held)

    def _result(
        self,
        contract: Contract,
        fit: Fit,
        errors: tuple[Errors, Errors],
        seconds: tuple[float, float],
        earlier: list[Any],
    ) -> dict[str, Any]:
        from sim.identification.fit import BEYOND

        unknown = set(fit.unidentified)
        intervals = fit.intervals()
        fitted, held = errors
        rejected, as_modelled = verdict(fitted, held)
        return {
            "robot": contract.robot.name,
            "motion_s": {"fit": seconds[0], "held_out": seconds[1]},
            "parameters": {
                name: {"value": value, "low": low, "high": high, "identified": name not in unknown}
                for name, (value, low, high) in intervals.items()
            },
            "not_identified": list(fit.unidentified),
            "not_shown_by_motion": BEYOND,
            "measured_early": intervals["command_delay.0"][0] < AT_ONCE_S,
            "fitted": fitted.to_json(),
            "held_out": held.to_json(),
            "rejected": rejected,
            "as_modelled": as_modelled,
            "residual_mrad": 1e3 * fit.residual,
            "noise_mrad": 1e3 * fit.noise,
            "drift": drift(earlier[-1], fit.config("now")) if earlier else [],
            "course": course([*earlier, fit.config("now")]) if earlier else {},
        }

    def _write(self, motion: MotionLog | None, fit: Fit, result: dict[str, Any], held: Any) -> dict[str, Any]:
        from robolearn.eval.dynamics_page import write_dynamics_page
        from robots.dynamics import PARAMETERS
        from robots.dynamics_file import write_dynamics

        self.out.mkdir(parents=True, exist_ok=True)
        path, motion_file = self.out / "dynamics.json", self.log
        keep = not (result["rejected"] or result["as_modelled"])
        if keep:
            write_dynamics(path, fit.config(str(path)), source="robolearn identify")
        if motion_file is None:
            assert motion is not None
            motion_file = motion.save(self.out / "motion.npz")
        command = command_text("identify", replace(self, log=motion_file, dynamics="none"))
        units = {name: (parameter.unit, parameter.nominal) for name, parameter in PARAMETERS.items()}
        written = {"dynamics": str(path) if keep else None, "log": str(motion_file)}
        page = self.out / "report.html"
        return written | reported(lambda: write_dynamics_page(page, result, held, units, command, self.before))

    def exit_code(self, result: Mapping[str, Any]) -> int:
        return 1 if result["rejected"] else super().exit_code(result)

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        r, held, delay = result, result["held_out"], result["parameters"]["command_delay.0"]
        share = f"{held['ratio']:.1%} of " if held["ratio"] < 10 else ""
        of_model = f"{share}the model's {held['nominal_mrad']:.3f} mrad"
        console.print(f"held out    {held['identified_mrad']:.3f} mrad, {of_model}")
        early = f": {EARLY}" if r["measured_early"] else ""
        span = f"{1e3 * delay['low']:.1f}–{1e3 * delay['high']:.1f}"
        console.print(f"delay       {1e3 * delay['value']:.1f} ms ({span}){early}")
        known = len(r["parameters"]) - len(r["not_identified"])
        rest = f"; not by this motion: {', '.join(r['not_identified'])}" if r["not_identified"] else ""
        console.print(f"identified  {known} of {len(r['parameters'])} parameters{rest}")
        console.print(f"not shown   by any motion in free space: {', '.join(r['not_shown_by_motion'])}")
        if self.before:
            found = [f"{d['name']} {d['before']:.4g} → {d['now']:.4g}" for d in r["drift"]]
            console.print(f"changed     {', '.join(found) or 'nothing'}")
        if why := r["rejected"] or r["as_modelled"]:
            word = "rejected" if r["rejected"] else "as modelled"
            console.print(f"{word:<12}{why}{', and nothing into the station' if self.write else ''}")
        else:
            console.print(f"dynamics    {r['dynamics']}: robolearn finetune … --dynamics {r['dynamics']}")
        console.print(f"report      {r['report'] or r['report_error']}")
        if "station_version" in r:
            console.print(f"station     version {r['station_version']}")


@dataclass(frozen=True)
class Errors:
    """Root mean squares of a motion's measured minus predicted positions [mrad], by the model as it is and a fit."""

    nominal: float
    identified: float

    def to_json(self) -> dict[str, float]:
        ratio = self.identified / max(self.nominal, SMALLEST_MRAD)
        return {"nominal_mrad": self.nominal, "identified_mrad": self.identified, "ratio": ratio}


def verdict(fitted: Errors, held: Errors) -> tuple[str | None, str | None]:
    """(why the fit is rejected, why there is nothing to fit), or None; by the part of the motion that was fitted and
    the part that was held out."""
    if held.identified < held.nominal:
        return None, None
    if fitted.nominal <= AS_GOOD * max(fitted.identified, SMALLEST_MRAD):
        return None, AS_MODELLED
    return NO_BETTER, None


def course(configs: Sequence[Any]) -> dict[str, list[dict[str, float] | None]]:
    """Name → value and 95% interval in each of `configs`; None where a file does not have it."""
    from robots.dynamics import PARAMETERS

    found: dict[str, list[dict[str, float] | None]] = {}
    for name, last in configs[-1].spreads.items():
        for i in range(len(last.a)):
            row: list[dict[str, float] | None] = []
            for spread in (config.spreads.get(name) for config in configs):
                if spread is None or spread.kind != "normal" or len(spread.a) != len(last.a):
                    row.append(None)
                    continue
                value, reach = spread.a[i], 1.96 * spread.b[i if len(spread.b) > 1 else 0]
                row.append({"value": value, "low": max(value - reach, PARAMETERS[name].low), "high": value + reach})
            found[f"{name}.{i}"] = row
    return found


def drift(before: Any, now: Any) -> list[dict[str, Any]]:
    """Parameters of two identifications that differ by more than `DRIFT` deviations of the difference."""
    found = []
    for name, new in now.spreads.items():
        old = before.spreads.get(name)
        if old is None or old.kind != "normal" or len(old.a) != len(new.a):
            continue
        for i, (a, b) in enumerate(zip(old.a, new.a, strict=True)):
            sds = [spread.b[i if len(spread.b) > 1 else 0] for spread in (old, new)]
            sd = (sds[0] ** 2 + sds[1] ** 2) ** 0.5
            if sd > 0.0 and abs(b - a) > DRIFT * sd:
                found.append({"name": f"{name}.{i}", "before": a, "now": b, "sigmas": (b - a) / sd})
    return found
