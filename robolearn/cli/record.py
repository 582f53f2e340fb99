"""``robolearn record``: demonstrations by an operator, on the simulated arm or a real one, behind the safety filter."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hardware.teleop.wrapped import reconnecting
from robolearn.cli.node_record import RecordingSetup, make_writer, open_supervised, supervised
from robolearn.cli.station_command import StationCommand, shows_in_terminal
from robolearn.cli.view import TeleopView, check_view, chosen, viewed
from robolearn.core import BadInput, RobolearnError
from robolearn.core.machine import searched_before
from robolearn.core.switches import Count
from robolearn.runs import Progress


@dataclass(frozen=True, kw_only=True)
class Record(RecordingSetup, StationCommand):
    """Record demonstrations: you move the arm, every command goes through the safety filter, what was done is stored.

    Start (Enter on a keyboard) arms the arm and records; success or failure ends the episode; discard drops it, try
    again drops it and begins anew; quit ends. While an episode is recorded, try again and quit have to be pressed twice
    on keys and gamepads. The keys or buttons are shown when it begins. Let go of the dead-man's switch and the arm
    stops: the episode is dropped, and Start goes on. On a real arm the first Start only arms, so that you can put the
    arm in its place; the second one records.
    """

    policy: Path | None = None
    """A policy that moves the arm while you watch, a run or its checkpoint folder: hold the dead-man's switch of the
    device to take over, let go to hand back. Your steps are stored as interventions."""
    episodes: Count = 10
    """Number of episodes; with --resume: of the whole data set in the end."""
    out: Path
    """The data set's folder."""
    resume: bool = False
    """Go on with an existing data set."""
    seconds: float = 60.0
    """Longest episode [s]; it is then stored as a failure."""
    reset: Literal["person", "motion"] = "person"
    """Between the episodes of a real arm: motion opens the gripper where the arm is, lifts the tool and brings the arm
    home by itself, slowly and through the filter, while you hold the dead-man's switch; person: you move it."""
    view: TeleopView = "auto"
    """View of the arm, the task's bodies and the cameras: browser prints the address of a page, window opens it,
    none; auto: browser for devices without a page of their own at a terminal, else none. --teleop browser has a
    page of its own, which window opens."""
    host: str = "127.0.0.1"
    """Address on which the page of --teleop browser or --view listens; 0.0.0.0: for phones on this network too, with
    TLS and a token."""
    port: int = 8070
    """Its port; that of --view takes a free one where this is taken."""

    def run(self) -> dict[str, Any]:
        from hardware.execution.homing import goes_home
        from hardware.ros2.environment import prepare
        from robolearn.deploy.processes import choose_domain, warn_of_enclaves

        if not self.seconds > 0:
            raise BadInput("--seconds", got=self.seconds, expected="more than 0")
        warn_of_enclaves(self.enclaves)
        view = chosen(self.view, self.teleop)
        check_view(view)
        begun = time.perf_counter()
        contract = self.contract()
        goes_home(self.reset, contract)
        # Before what a device lacks: a terminal would not help a policy of another arm.
        policy = None if self.policy is None else open_supervised(self.policy, contract)
        task = self.words(contract)
        prepare()
        choose_domain(self.domain, contract.simulated)
        with searched_before():
            device = own = self.device(contract)  # before anything is written or started: it may not be there
            if policy is not None:
                device = supervised(device, policy, contract, self.seed, task)
            device = viewed(reconnecting(device, own), own, view, contract.robot, self.host, self.port)
            try:
                with make_writer(self.out, contract.interface, task, resume=self.resume) as writer:
                    result = self._record(contract, device, writer, task)
            finally:
                device.close()
        result["wall_s"]["total"] = time.perf_counter() - begun
        return result

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        r = result
        done = f"{r['recorded']} episodes, {r['successes']} of them successes; {r['dropped']} dropped"
        console.print(f"recorded    {done}")
        console.print(f"data set    {r['dataset']}: {r['episodes']} episodes, {r['frames']} frames")
        if r["latency_ms"]["p50"] is not None:
            p50, p99 = r["latency_ms"]["p50"], r["latency_ms"]["p99"]
            console.print(f"latency     {p50:.1f} ms (p99 {p99:.1f}) from observation to command")
        if (slowest := r["control_hz"]["slowest"]) is not None:
            asked = r["control_hz"]["asked"]
            console.print(f"rate        {slowest:.1f} control steps a second in the slowest episode, asked {asked:g}")
        if r["violations"] is not None:
            console.print(f"monitor     {r['violations']} violations of the arm's limits")
        console.print(f"next        robolearn dataset quality {r['dataset']} : which episodes to learn from")

    def _record(self, contract: Any, device: Any, writer: Any, task: str) -> dict[str, Any]:
        from hardware.recording import Session
        from robolearn.deploy.processes import log_folder
        from robolearn.deploy.recorder import START_S, run_recorder, station_nodes

        first = writer.episodes
        wanted = max(self.episodes - first, 0)
        if not wanted:
            return self._result(contract, writer, task, None)
        # A resumed recording must not meet the starts of the first part again.
        seed = self.seed * 1_000_003 + first
        progress = Progress(f"recording on {contract.name}", wanted, unit="episodes", quiet=self.json)
        if screen := shows_in_terminal(self.teleop) and sys.stderr.isatty():
            logging.getLogger("hardware.teleop.teleoperation").setLevel(logging.WARNING)

        def watch(episodes: Any) -> None:
            nodes.check()
            if not screen:
                progress(episodes.recorded, {"successes": episodes.successes, "state": episodes.message})

        session = Session(
            contract, device, contract.interface, writer, task, wanted, first=first, limit_s=self.seconds,
            start_s=START_S, simulated=contract.simulated, judged=self.scripted, homes=self.reset == "motion",
            watch=watch,
        )  # fmt: skip
        own = {"priority": self.realtime_priority, "enclaves": self.enclaves}
        with log_folder("record", self.logs) as logs:
            try:
                with (
                    station_nodes(contract, self.robot, logs.path, task=self.sim_task, seed=seed, **own) as nodes,
                    nullcontext() if screen else progress,
                ):
                    node = run_recorder(session, **own)
            except RobolearnError as error:
                error.add_note(f"{writer.episodes} episodes are safe in {self.out}")
                raise
        if node.interrupted:
            raise KeyboardInterrupt
        return self._result(contract, writer, task, node)

    def _result(self, contract: Any, writer: Any, task: str, node: Any) -> dict[str, Any]:
        from robolearn.deploy.recorder import arm_result

        recording = None if node is None else node.recording
        counts = ("recorded", "successes", "dropped")
        nothing = {"latency_ms": {"p50": None, "p99": None}, "late_steps": 0, "violations": None, "monitor": None}
        return {
            "dataset": str(self.out),
            "robot": contract.name,
            "teleop": self.teleop,
            "task": task,
            "episodes": writer.episodes,
            **{key: 0 if recording is None else getattr(recording.episodes, key) for key in counts},
            "frames": writer.frames,
            **(nothing if node is None else arm_result(node)),
            "control_hz": {
                "asked": contract.control_hz,
                "slowest": None if recording is None else min(recording.rates, default=None),
            },
            "wall_s": {"store": None if recording is None else max(recording.store_s, default=None)},
        }
