"""Teleoperation and recording as programs, and what `robolearn record` shares with them.

`robolearn.cli.node_record teleop --contract fr3 --device gamepad`, and `… record --out data/fr3 --task "…"`. They begin
nothing else: safety node and arm run already, as `launch/record.launch.py` has it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hardware.node_parameters import RecordParameters, TeleopParameters, parameter_names
from hardware.teleop import make_device
from hardware.teleop.wrapped import clutched, reconnecting
from robolearn.cli.choices import DemoQuality, SimTask, Station, Teleop
from robolearn.cli.station_command import device_options, teleop_parameters, teleop_values, with_teleop_flags
from robolearn.core import BadInput, Interface, Policy, bind_policy, check_choice, look_up
from robolearn.core.switches import Seed

if TYPE_CHECKING:
    from hardware.teleop import Device
    from robots.stations import AnyContract


@dataclass(frozen=True, kw_only=True)
@with_teleop_flags
class RecordingSetup:
    """A recording: task, arm, device."""

    robot: Station = "sim"
    """The robot contract, by name or as a file of your own."""
    teleop: Teleop = "keyboard"
    """Your device; scripted: none, the simulated arm acts by itself."""
    task: str = ""
    """The task in words; on the simulated arm those of --sim-task."""
    cameras: tuple[str, ...] | None = None
    """Cameras of the contract; all by default, on the simulated arm (front, wrist) none."""
    sim_task: SimTask = "lift"
    """On the simulated arm."""
    seed: Seed = 0
    """Of the simulated arm's starts and of the script's choices."""
    quality: DemoQuality = "expert"
    """Quality of the script's demonstrations."""

    @property
    def scripted(self) -> bool:
        """True where no person is at the device."""
        return self.teleop == "scripted"

    def contract(self) -> AnyContract:
        """The station, with what this recording looks at."""
        from robots.stations import load_any_contract

        contract = load_any_contract(self.robot)
        simulated = contract.simulated
        if simulated:
            from sim.embedded.scene import check_robot
            from sim.tasks import TASKS

            task = look_up("task of the simulated arm", self.sim_task, TASKS)()
            check_robot(contract.robot, self.sim_task, task.arms)
            contract = contract.with_objects(task.observation_names)
        cameras = (() if simulated else tuple(contract.cameras)) if self.cameras is None else self.cameras
        return contract.with_cameras(cameras)

    def words(self, contract: AnyContract) -> str:
        """The task in words."""
        if self.task.strip():
            return self.task
        if not contract.simulated:
            raise BadInput("--task", got="nothing", expected='the task in words, e.g. "put the cup on the shelf"')
        from sim.tasks import TASKS

        return TASKS[self.sim_task]().prompt

    def device(self, contract: AnyContract) -> Device:
        """The device, open; a script plays the simulated arm alone."""
        options = device_options(self.teleop, teleop_values(self))
        if self.scripted:
            from sim.experts import make_expert

            if not contract.simulated:
                raise BadInput("--teleop scripted", got=f"robot {contract.name}", expected="a simulated one: robot sim")
            expert = make_expert(self.sim_task, contract.interface, 1, self.quality, self.seed)
            # The simulated arm says when an episode ends.
            options = {"teleoperator": expert, "succeeded": lambda: False, "max_steps": sys.maxsize}
        device = make_device(self.teleop, contract.interface, contract.robot, simulated=contract.simulated, **options)
        device.open()
        notice = getattr(device, "notice", "")
        if notice:  # not for logs: it may hold a token
            print(notice, file=sys.stderr, flush=True)
        return device


def open_supervised(path: str | Path, contract: AnyContract) -> Policy:
    """The policy at `path`, for the arm of `contract`; raises `BadInput` where it is for another one."""
    from policies.storage.config_file import FOREIGN
    from policies.storage.loading import check_policy, open_policy
    from policies.wrappers.prompted import set_goals

    what = f"policy {path} on {contract.name}"
    if not str(path).startswith(FOREIGN):  # refused before its weights are read; one of LeRobot's is loaded for that
        check_policy(path, contract.interface, what=what, simulated=contract.simulated)
    policy = open_policy(path)
    bind_policy(policy, contract.interface, what=what)
    set_goals(policy, None, what=f"policy {path}")  # who is taken over from has no goal of its own
    return policy


def supervised(device: Device, policy: Policy, contract: AnyContract, seed: int, task: str) -> Device:
    """`policy`, prompted with the `task`, and `device` to take over; it is closed if the policy refuses the prompt."""
    from hardware.teleop.chunk_player import ChunkPlayer
    from hardware.teleop.supervised import Supervised
    from policies.wrappers.prompted import set_prompt

    try:
        set_prompt(policy, "", task)
        return Supervised(clutched(device), ChunkPlayer(policy, seed, simulated=contract.simulated), contract.interface)
    except BaseException:
        device.close()
        raise


def make_writer(out: str | Path, interface: Interface, task: str, *, resume: bool, device: bool = True) -> Any:
    """The data set, with room for the stamps of a recording, by a `device` or without one.

    An empty set is what a start that failed has left: it is gone on with, `resume` or not.

    It has stored a step and forgotten it: what is loaded and compiled for that is there before the arm moves. Loading a
    library stops a whole process for half a second.
    """
    from hardware.recording import stamp_names
    from robolearn.data.lerobot import layout
    from robolearn.data.writing.writer import EpisodeWriter

    names = stamp_names(interface, device=device)
    if (Path(out) / layout.INFO_PATH).exists() and layout.read_info(Path(out)).get("total_episodes") == 0:
        resume = True
    # The recording judges its rate while it goes on.
    writer = EpisodeWriter(out, interface, resume=resume, stamps=names, task=task, real_time=False)
    try:
        blank = {key: np.zeros(spec.shape, spec.dtype) for key, spec in interface.observation.items()}
        writer.add(blank, np.zeros(interface.action.shape), stamps=dict.fromkeys(names, 0.0))
        writer.discard()
    except BaseException:
        writer.close()
        raise
    return writer


def main_teleop(argv: Sequence[str] | None = None) -> int:
    """The teleoperation node."""
    from robolearn.deploy.nodes import run_node

    return run_node(_teleop_node, parameter_names(teleop_parameters(TeleopParameters)), argv)


def main_record(argv: Sequence[str] | None = None) -> int:
    """The recorder."""
    from robolearn.deploy.nodes import run_node

    with ExitStack() as stack:
        return run_node(lambda: _record_node(stack), parameter_names(teleop_parameters(RecordParameters)), argv)


def _teleop_node() -> Any:
    from hardware.ros2.teleop_node import TeleopNode

    def make_device(contract: AnyContract, name: str) -> Device:
        device = RecordingSetup(robot=contract.name, teleop=name, **teleop_values(node.parameters)).device(contract)
        return reconnecting(device, device)

    node = TeleopNode(make_device, defaults=teleop_parameters(TeleopParameters)())
    return node


def _record_node(stack: ExitStack) -> Any:
    from hardware.execution.homing import goes_home
    from hardware.recording import Session
    from hardware.ros2.record_node import RecordNode
    from robolearn.cli.view import TeleopView, check_view, chosen, viewed
    from robolearn.data.lerobot import layout

    def make_session(p: RecordParameters) -> Session:
        if not p.out:
            raise BadInput("parameter out", got="nothing", expected="a folder for the data set")
        asked: Any = p.view
        check_choice("parameter view", asked, TeleopView)
        view = chosen(asked, p.device)
        check_view(view)
        cameras = tuple(p.cameras.replace(",", " ").split()) or None
        given: dict[str, Any] = {name: getattr(p, name) for name in ("task", "sim_task", "seed", "quality")}
        setup = RecordingSetup(robot=p.contract, teleop=p.device, cameras=cameras, **given, **teleop_values(p))
        contract = setup.contract()
        homes = goes_home(p.reset, contract, what="parameter reset")
        task, own = setup.words(contract), setup.device(contract)
        device = viewed(reconnecting(own, own), own, view, contract.robot, p.host, p.port)
        stack.callback(device.close)
        out = Path(p.out)
        resume = (out / layout.INFO_PATH).exists()
        writer = stack.enter_context(make_writer(out, contract.interface, task, resume=resume))
        simulated = contract.simulated
        return Session(
            contract, device, contract.interface, writer, task, max(p.episodes - writer.episodes, 0),
            first=writer.episodes, limit_s=p.seconds, simulated=simulated, judged=setup.scripted, homes=homes,
        )  # fmt: skip

    return RecordNode(make_session, defaults=teleop_parameters(RecordParameters)())


if __name__ == "__main__":
    MAINS = {"teleop": main_teleop, "record": main_record}
    if len(sys.argv) < 2 or sys.argv[1] not in MAINS:
        print(f"error: {BadInput('node', got=' '.join(sys.argv[1:2]) or 'nothing', available=MAINS)}", file=sys.stderr)
        sys.exit(2)
    sys.exit(MAINS[sys.argv[1]](sys.argv[2:]))
