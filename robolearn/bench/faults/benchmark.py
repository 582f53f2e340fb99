"""``robolearn benchmark faults``: how soon each fault of a station stops the arm, over real DDS."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robolearn.core import BadInput
from robolearn.core.switches import Count
from robolearn.runs import Progress
from robolearn.runs.command import Command, print_table

if TYPE_CHECKING:
    from robolearn.bench.faults.faults import Fault
    from robolearn.bench.faults.station import FaultStation

CAMERA_AGE_S = 0.15  # as a lab has it that is to be stopped within 0.2 s
NOISY_ARM = {"arm": "robolearn.bench.faults.noisy_arm", "rest_s": 2.5}
CONTACT = {
    "topic": "/external_joint_torques",
    "type": "sensor_msgs/msg/JointState",
    "max_torque": [25.0] * 4 + [8.0] * 3,
}


@dataclass(frozen=True, kw_only=True)
class BenchmarkFaults(Command):
    """Start a station with the simulated arm, give it one fault after the other, and measure from outside.

    Policy, streamer, safety node and arm are processes. For each fault: when the stop was reported, when the commands
    to the controller stood, and what a limit monitor counted. Anything that is not noticed, or for another reason than
    expected, is a failure.
    """

    only: tuple[str, ...] = ()
    """Faults whose names contain one of these; by default all."""
    repeats: Count = 1
    """Repetitions of each; the largest times are shown."""
    domain: int | None = None
    """ROS domain; by default ROS_DOMAIN_ID, or one that is likely to be free."""
    logs: Path | None = None
    """Folder for the nodes' logs; by default a temporary one, kept when something fails."""
    realtime_priority: int = 10
    """Of the nodes (SCHED_FIFO), where this machine permits it."""

    def run(self) -> dict[str, Any]:
        from hardware.ros2.environment import prepare
        from robolearn.deploy.processes import choose_domain, log_folder

        prepare()
        from robolearn.bench.faults.faults import FAULTS

        chosen = [fault for fault in FAULTS if not self.only or any(word in fault.name for word in self.only)]
        if not chosen:
            raise BadInput("--only", got=", ".join(self.only), available=[fault.name for fault in FAULTS])
        choose_domain(self.domain, simulated=True)
        began = time.perf_counter()
        with log_folder("faults", self.logs) as logs:
            rows = self._measure(chosen, logs.path)
            failed = sum(not row["expected"] for row in rows)
            logs.kept = logs.kept or failed > 0
        violations = sum(row["violations"] for row in rows)
        return {
            "faults": rows,
            "count": len(rows),
            "failed": failed,
            "violations": violations,
            "logs": str(logs.path) if logs.kept else None,
            "wall_s": {"total": time.perf_counter() - began},
        }

    def exit_code(self, result: Mapping[str, Any]) -> int:
        return 1 if result["failed"] or result["violations"] else 0

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        rows = [
            (row["fault"] if row["expected"] else f"[red]{row['fault']}[/red]", _ms(row["reported_ms"]),
             _ms(row["stands_ms"]), row["reason"])
            for row in result["faults"]
        ]  # fmt: skip
        print_table(console, ("fault", "reported after", "commands stand after", "reason"), rows)
        console.print(
            f"{result['count'] - result['failed']} of {result['count']} as expected; "
            f"{result['violations']} limit violations"
        )

    def _measure(self, chosen: list[Fault], folder: Path) -> list[dict[str, Any]]:
        from hardware.ros2.runtime import realtime
        from robolearn.bench.faults.faults import NOISY, POSES, STATIONS
        from robolearn.bench.faults.station import FaultStation
        from robolearn.deploy.processes import may_be_realtime

        rows: list[dict[str, Any]] = []
        with Progress("faults", len(chosen), unit="faults", quiet=self.json) as progress:
            for which in STATIONS:
                faults = [fault for fault in chosen if fault.station == which]
                if not faults:
                    continue
                options = {NOISY: NOISY_ARM, POSES: {"poses": True}}.get(which, {})
                contract = _contract(folder, which)
                with FaultStation(contract, folder / which, self.realtime_priority, **options) as station:
                    if may_be_realtime():
                        realtime(self.realtime_priority)  # the dead-man's heartbeat must be on time
                    for fault in faults:
                        rows.append(_worst([_try(station, fault) for _ in range(self.repeats)]))
                        progress(len(rows), {"failed": sum(not row["expected"] for row in rows)})
        return rows


def _contract(folder: Path, which: str) -> Path:
    """The simulated arm's contract for a station: contact, one camera, two cameras, or none of these."""
    import yaml

    from robolearn.bench.faults import faults
    from robots.stations import CONTRACTS

    content = yaml.safe_load((CONTRACTS / "sim.yaml").read_text())
    cameras = content.pop("cameras")
    cameras = {name: camera | {"max_age_s": CAMERA_AGE_S} for name, camera in cameras.items()}
    front = {"cameras": {"front": cameras["front"]}}
    has = {faults.CONTACT: {"contact": CONTACT}, faults.CAMERAS: {"cameras": cameras}, faults.POSES: {}}
    content |= has.get(which, front)
    path = folder / f"{which}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return path


def _try(station: FaultStation, fault: Fault) -> dict[str, Any]:
    """One fault, measured."""
    station.calm()
    station.move()
    before = station.violations()
    with ExitStack() as stack:
        at = fault.inject(station, stack)
        silent = station.watch(fault.watch_s)
        stops = ([] if silent is None else [(silent, "the safety node is silent")]) + list(station.stops)
        stands = station.stood()
    reported, reason = min(stops, default=(None, ""))
    return {
        "fault": fault.name,
        "noticed": reported is not None,
        "expected": any(word in reason for word in fault.why) if fault.why else reported is None,
        "reported_ms": None if reported is None else 1e3 * (reported - at),
        "stands_ms": None if reported is None else 1e3 * (stands - at),
        "reason": reason,
        "violations": station.violations() - before,
    }


def _worst(tries: list[dict[str, Any]]) -> dict[str, Any]:
    """The largest times of several tries, and what went wrong in any."""
    bad = [one for one in tries if not one["expected"]]

    def largest(key: str) -> float | None:
        found = [one[key] for one in tries if one[key] is not None]
        return max(found) if len(found) == len(tries) else None

    return {
        **(bad or tries)[0],
        "reported_ms": largest("reported_ms"),
        "stands_ms": largest("stands_ms"),
        "violations": sum(one["violations"] for one in tries),
        "tries": len(tries),
        "each_ms": [one["reported_ms"] for one in tries],
    }


def _ms(value: float | None) -> str:
    return "not" if value is None else f"{value:.0f} ms"
