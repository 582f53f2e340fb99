"""A teleoperator is one file with its config and one line in the table: the commands offer it, its flags and its
help."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hardware.node_parameters import DeviceOptions, TeleopParameters, descriptions
from hardware.teleop import TELEOPERATORS, make_device, people, teleop_flags
from hardware.teleop.browser.device import Browser
from robolearn.cli.hil.arm import people as people_of_arm
from robolearn.cli.node_record import RecordingSetup
from robots.stations import load_contract

# The one file, and the one line.
DUMMY = """
from dataclasses import dataclass
from typing import Any, ClassVar

from hardware.node_parameters import DeviceOptions, TeleopParameters
from hardware.teleop import TELEOPERATORS
from hardware.teleop.device import TeleopConfig, flag


class Dummy:
    name = "dummy"

    def __init__(self, channel):
        self.channel = channel

    def open(self): ...
    def close(self): ...


@dataclass(frozen=True)
class DummyConfig(TeleopConfig):
    name: ClassVar[str] = "dummy"
    help: ClassVar[str] = "wave"
    channel: int = flag("dummy_channel", 3, "Channel of its radio")

    def build(self, interface, robot, **parts):
        return Dummy(self.channel)


TELEOPERATORS["dummy"] = DummyConfig
"""


def with_dummy(tmp_path: Path, code: str) -> str:
    (tmp_path / "dummy_teleop.py").write_text(DUMMY)
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import dummy_teleop\n{code}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 2), done.stderr
    return done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize("command", ["record", "hil run"])
def test_a_dummy_teleoperator_is_in_the_help_of_the_commands(tmp_path: Path, command: str) -> None:
    words = [*command.split(), "--help"]
    shown = " ".join(with_dummy(tmp_path, f"from robolearn.cli.main import main; main({words!r})").split())
    assert "dummy" in shown and "--dummy-channel" in shown and "Channel of its radio" in shown


@pytest.mark.long
def test_a_dummy_teleoperator_takes_its_flags_and_its_node_its_parameters(tmp_path: Path) -> None:
    code = """
import json
from hardware.node_parameters import TeleopParameters
from hardware.teleop import people
from robolearn.cli.node_record import RecordingSetup
from robolearn.cli.station_command import teleop_parameters, teleop_values
from robolearn.cli.record import Record
from robots.stations import load_contract
record = Record(out="x", teleop="dummy", dummy_channel=7)
device = RecordingSetup(robot="sim", teleop="dummy", **teleop_values(record)).device(load_contract("sim"))
print(json.dumps([device.channel, teleop_parameters(TeleopParameters)().dummy_channel, "dummy" in people()]))
"""
    assert json.loads(with_dummy(tmp_path, code)) == [7, 3, True]


def test_flags_that_two_devices_share_are_one_and_name_both() -> None:
    flags = teleop_flags()
    assert {name: flag.default for name, flag in flags.items()} == {
        "speed": 0.0, "host": "127.0.0.1", "port": 8070, "leader_port": "/dev/ttyACM0", "leader_id": "leader",
    }  # fmt: skip
    assert flags["speed"].help.endswith("(keyboard, gamepad, spacemouse).")
    assert people() == ("keyboard", "gamepad", "spacemouse", "browser", "leader")


@pytest.mark.parametrize("name", people())
def test_what_a_config_says_of_its_device_is_true(name: str) -> None:
    config = TELEOPERATORS[name]
    contract = load_contract(config.station)
    device = make_device(name, contract.interface, contract.robot)
    assert device.name == name == config.name and config.help
    assert config.has_deadman is not hasattr(device, "moving"), "a device without a dead-man has a clutch"
    assert config.shows_in_terminal is not hasattr(device, "invitation"), "one without a page has a status line"


@pytest.mark.parametrize(("robot", "simulated"), [("sim", True), ("fr3", False)])
def test_the_page_is_strict_where_the_arm_is_real(robot: str, simulated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    contract = load_contract(robot)
    monkeypatch.setattr(Browser, "open", lambda device: None)
    device = RecordingSetup(robot=robot, teleop="browser").device(contract)
    assert isinstance(device, Browser) and device.arbiter.heartbeat_s == (1.0 if simulated else 0.3)
    actor: Any = SimpleNamespace(
        opened_page=lambda *_, **__: nullcontext(),
        opened_device=lambda interface, robot, *, simulated: nullcontext(simulated),
    )
    with people_of_arm(actor, contract, contract.interface) as (told, _):
        assert told is simulated


def test_the_nodes_and_their_launch_files_take_the_flags_of_the_devices() -> None:
    """Launch files read `hardware/node_parameters.py` alone, without anything installed: it is held to the table."""
    options = {field.name: field.default for field in dataclasses.fields(DeviceOptions)}
    assert options == {name: flag.default for name, flag in teleop_flags().items()}
    remote, _, local = descriptions(TeleopParameters)["device"].partition(";")
    assert not TELEOPERATORS[TeleopParameters.device].needs_terminal
    for name in people():
        assert name in (local if TELEOPERATORS[name].needs_terminal else remote)
