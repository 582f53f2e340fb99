"""``robolearn record``: demonstrations by an operator, on the simulated arm or a real one, behind the safety filter."""

from __future__ import annotations

import logging
import logging.handlers
import queue
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robolearn.cli.choices import DemoQuality, SimTask, Station, Teleop
from robolearn.cli.node_record import RecordingSetup, make_writer, open_supervised, supervised
from robolearn.cli.teleop_flags import shows_in_terminal, teleop_values, with_teleop_flags
from robolearn.cli.view import TeleopView, check_view, chosen, viewed
from robolearn.runs.command import Command, at_least, check_seed

START_S = 120.0  # for everything to come up: on a busy machine the imports of the nodes alone take half a minute


@dataclass(frozen=True, kw_only=True)
@with_teleop_flags
class Record(Command):
    """Record demonstrations: you move the arm, every command goes through the safety filter, what was done is stored.

    START arms the arm and records; SUCCESS or FAILURE ends the episode; DISCARD drops it, REDO drops it and begins
    anew; QUIT ends. While an episode is recorded, keys and gamepads have to say REDO and QUIT twice. The keys or
    buttons are shown when it begins. Let go of the dead-man's switch and the arm stops: the episode is dropped, and
    START goes on. On a real arm the first START only arms, so that you can put the arm in its place; the second one
    records.
    """

    robot: Station = "sim"
    """The robot contract, by name or as a file of your own."""
    teleop: Teleop = "keyboard"
    """Your device; scripted: none, the simulated arm acts by itself."""
    policy: Path | None = None
    """A policy that moves the arm while you watch, a run or its checkpoint folder: hold the dead-man's switch of the
    device to take over, let go to hand back. Your steps are stored as interventions."""
    task: str = ""
    """The task in words; on the simulated arm those of --sim-task."""
    episodes: int = 10
    """Number of episodes; with --resume: of the whole data set in the end."""
    out: Path
    """The data set's folder."""
    resume: bool = False
    """Go on with an existing data set."""
    cameras: tuple[str, ...] | None = None
    """Cameras of the contract; all by default, on the simulated arm (front, wrist) none."""
    seconds: float = 60.0
    """Longest episode [s]; it is then stored as a failure."""
    sim_task: SimTask = "lift"
    """On the simulated arm."""
    seed: int = 0
    """Of the simulated arm's starts and of the script's choices."""
    quality: DemoQuality = "expert"
    """Quality of the script's demonstrations."""
    view: TeleopView = "auto"
    """View of the arm, the task's bodies and the cameras: browser prints the address of a page, window opens it,
    none; auto: browser for devices without a page of their own at a terminal, else none. --teleop browser has a
    page of its own, which window opens."""
    host: str = "127.0.0.1"
    """Address on which the page of --teleop browser or --view listens; 0.0.0.0: for phones on this network too, with
    TLS and a token."""
    port: int = 8070
    """Its port; that of --view takes a free one where this is taken."""
    realtime_priority: int = 10
    """Of the nodes (SCHED_FIFO, 1 to 99), where this machine permits it; 0: none."""
    enclaves: bool = False
    """Every node in its enclave of `robolearn permissions` (SROS2); needs ROS_SECURITY_KEYSTORE and its keys."""
    logs: Path | None = None
    """Folder for the logs of the nodes; by default a temporary one, kept when something fails."""
    domain: int | None = None
    """ROS domain; by default ROS_DOMAIN_ID, and on the simulated arm one that is likely to be free."""

    def run(self) -> dict[str, Any]:
        from hardware.ros2.environment import prepare
        from hardware.teleop.wrapped import reconnecting
        from robolearn.core import BadInput
        from robolearn.core.machine import searched_before
        from robolearn.deploy.processes import choose_domain, warn_of_enclaves

        at_least(1, episodes=self.episodes)
        check_seed(self.seed)
        if not self.seconds > 0:
            raise BadInput("--seconds", got=self.seconds, expected="more than 0")
        warn_of_enclaves(self.enclaves)
        view = chosen(self.view, self.teleop)
        check_view(view)
        begun = time.perf_counter()
        setup = RecordingSetup(
            self.robot, self.teleop, self.task, self.cameras, self.sim_task, self.seed, self.quality,
            teleop_values(self),
        )  # fmt: skip
        contract = setup.contract()
        # Before what a device lacks: a terminal would not help a policy of another arm.
        policy = None if self.policy is None else open_supervised(self.policy, contract)
        task = setup.words(contract)
        prepare()
        choose_domain(self.domain, contract.simulated)
        with searched_before():
            device = own = setup.device(contract)  # before anything is written or started: it may not be there
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
        if r["violations"] is not None:
            console.print(f"monitor     {r['violations']} violations of the arm's limits")
        console.print(f"next        robolearn dataset quality {r['dataset']} : which episodes to learn from")

    def _record(self, contract: Any, device: Any, writer: Any, task: str) -> dict[str, Any]:
        from hardware.recording import Session
        from hardware.ros2.environment import make_room_for_pictures
        from hardware.ros2.process import host
        from hardware.ros2.record_node import RecordNode
        from robolearn.core import RobolearnError
        from robolearn.deploy import StackProcesses
        from robolearn.deploy.processes import arm_programs, enclave, may_be_realtime
        from robolearn.runs import Progress

        first = writer.episodes
        wanted = max(self.episodes - first, 0)
        if not wanted:
            return self._result(contract, writer, task, first, None)
        make_room_for_pictures()
        logs = self.logs or Path(tempfile.mkdtemp(prefix="robolearn-record-"))
        # A resumed recording must not meet the starts of the first part again.
        seed = self.seed * 1_000_003 + first
        programs = arm_programs(contract, self.robot, self.realtime_priority, self.enclaves, self.sim_task, seed)
        nodes = StackProcesses(programs, logs, {"OMP_NUM_THREADS": "1"})
        failed, node = True, None
        progress = Progress(f"recording on {contract.name}", wanted, unit="episodes", quiet=self.json)
        if screen := shows_in_terminal(self.teleop) and sys.stderr.isatty():
            logging.getLogger("hardware.teleop.teleoperation").setLevel(logging.WARNING)

        def watch(episodes: Any) -> None:
            nodes.check()
            if not screen:
                progress(episodes.recorded, {"successes": episodes.successes, "state": episodes.message})

        def make_node() -> Any:
            nonlocal node
            session = Session(
                contract, device, contract.interface, writer, task, wanted, first=first, limit_s=self.seconds,
                start_s=START_S, simulated=contract.simulated, judged=self.teleop == "scripted", watch=watch,
            )  # fmt: skip
            priority = self.realtime_priority if may_be_realtime() else 0
            node = RecordNode(lambda _: session, contract=contract, overrides={"realtime_priority": priority})
            return node

        try:
            with nodes, unhurried_logs(), nullcontext() if screen else progress:
                if host(make_node, [sys.argv[0], *enclave(contract, "record", self.enclaves)]):
                    raise RobolearnError("the recording failed; its log says why")
            if bad := {name: code for name, code in nodes.codes.items() if code}:
                raise RobolearnError(f"nodes that did not end cleanly: {bad}")
            failed = False
        except RobolearnError as error:
            error.add_note(f"{writer.episodes} episodes are safe in {self.out}; logs: {logs}")
            raise
        finally:
            if self.logs is None and not failed:
                shutil.rmtree(logs, ignore_errors=True)
        assert node is not None
        if node.interrupted:
            raise KeyboardInterrupt
        return self._result(contract, writer, task, first, node)

    def _result(self, contract: Any, writer: Any, task: str, first: int, node: Any) -> dict[str, Any]:
        from robolearn.deploy.deployment import number

        report = node.report.values if node is not None and node.report else {}
        monitor = node.monitor if node is not None else {}
        recording = node.recording if node is not None else None
        episodes = recording.episodes if recording is not None else None
        return {
            "dataset": str(self.out),
            "robot": contract.name,
            "teleop": self.teleop,
            "task": task,
            "episodes": writer.episodes,
            "recorded": episodes.recorded if episodes is not None else 0,
            "successes": episodes.successes if episodes is not None else 0,
            "dropped": episodes.dropped if episodes is not None else 0,
            "frames": writer.frames,
            "latency_ms": {p: number(report.get(f"latency_{p}_ms")) for p in ("p50", "p99")},
            "late_steps": recording.late_steps if recording is not None else 0,
            "violations": monitor.get("violations"),
            "monitor": monitor or None,
            "wall_s": {"store": max(recording.store_s, default=None) if recording is not None else None},
        }


@contextmanager
def unhurried_logs() -> Iterator[None]:
    """Write log lines in a thread of their own: a terminal that stands still must not stop the arm."""
    root, lines = logging.getLogger(), queue.SimpleQueue()
    handlers = list(root.handlers)
    listener = logging.handlers.QueueListener(lines, *handlers)
    root.handlers = [logging.handlers.QueueHandler(lines)]
    listener.start()
    try:
        yield
    finally:
        listener.stop()
        root.handlers = handlers
