"""`robolearn doctor`: each check on machines that have and lack the thing, and one run on this one."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from robolearn.cli.checks import (
    CHECKS,
    SIMULATION,
    Check,
    Machine,
    devices,
    software,
)
from robolearn.cli.checks.machine import Answer
from robolearn.cli.checks.software import INDEX
from robolearn.cli.doctor import Doctor
from robolearn.cli.main import main
from robolearn.core.plugins import Plugin

GIB = 2**30
TORCH = Answer(0, {"version": "2.13.0", "threads": 2, "gpus": []})
WORLDS = Answer(0, {"mujoco": "4.0.0", "steps_per_s": 400.0, "gl": "egl", "renderer": "llvmpipe (LLVM)", "fps": 100.0})
TALK = Answer(0, {"rmw": "rmw_fastrtps_cpp", "domain": 0, "range": "LOCALHOST", "wait_s": 0.6, "roundtrip_ms": 0.8})


@dataclass
class Imagined(Machine):
    """A machine of which a test says what is there; by default everything for simulation and ROS, no devices."""

    environ: dict[str, str] = field(default_factory=dict)
    version: tuple[int, ...] = (3, 11, 7)
    prefix: str = "/venv"
    torch: Answer = TORCH
    worlds: Answer = WORLDS
    talked: Answer = TALK
    programs: tuple[str, ...] = ("chrt",)
    works: bool = True
    modules: tuple[str, ...] = ("rclpy",)
    releases: dict[str, str] = field(default_factory=lambda: {"ros-kilted-rclpy": "9.1.2"})
    files: dict[str, str] = field(default_factory=dict)  # path → content
    closed: tuple[str, ...] = ()
    shm: tuple[int, int] | None = (4 * GIB, 4 * GIB)
    dead: int = 0
    variants: tuple[Plugin, ...] = ()

    def python(self, *arguments: str, timeout_s: float = 0) -> Answer:
        assert arguments == ("-m", "hardware.ros2.dds_check")
        return self.talked

    def succeeds(self, command: object) -> bool:
        return self.works

    def which(self, program: str) -> str | None:
        return f"/usr/bin/{program}" if program in self.programs else None

    def module(self, name: str) -> bool:
        return name in self.modules

    def release(self, distribution: str) -> str | None:
        return self.releases.get(distribution)

    def paths(self, pattern: str) -> list[str]:
        stem = pattern.removesuffix("*")
        return sorted(path for path in self.files if path == pattern or (stem != pattern and path.startswith(stem)))

    def usable(self, path: str) -> bool:
        return path not in self.closed

    def text(self, path: str) -> str:
        return self.files.get(path, "")

    def space(self, path: str) -> tuple[int, int] | None:
        return self.shm

    def left_behind(self, folder: str = "/dev/shm") -> int:
        return self.dead

    def cpus(self) -> int:
        return 2

    def plugins(self) -> list[Plugin]:
        return list(self.variants)

    def place(self) -> Path:
        return Path("/home/u/robolearn")

    def folder(self) -> Path:
        return Path("/home/u/robolearn/examples")

    def install(self, extra: str = "") -> str:
        return f"pip install robolearn[{extra}]"


def spacemouse(about: str, **options: Any) -> Imagined:
    """A machine with one raw HID device, and what is said about it there."""
    device = "/sys/class/hidraw/hidraw0"
    return Imagined(files={device: "", f"{device}/device/uevent": about}, **options)


def only(checks: list[Check]) -> Check:
    (check,) = checks
    assert check.found and "\n" not in check.found + check.fix
    assert not (check.ok and check.fix), "nothing to mend"
    return check


def test_a_machine_with_everything() -> None:
    files = dict.fromkeys(("/dev/input/js0", "/dev/video0", "/dev/ttyACM0", "/profile.xml", f"/venv/{INDEX}"), "")
    files |= {
        "/sys/class/hidraw/hidraw3": "",
        "/sys/class/hidraw/hidraw3/device/uevent": "HID_ID=0003:0000256F:0000C635",
    }
    machine = Imagined(
        environ={"FASTDDS_DEFAULT_PROFILES_FILE": "/profile.xml", "AMENT_PREFIX_PATH": "/opt/ros/x:/venv"},
        torch=Answer(0, TORCH.values | {"gpus": ["H200"]}),
        programs=("chrt", "ros2"),
        modules=("rclpy", "pygame", "hidraw", "pyspacemouse"),
        files=files,
    )
    for check in (only(check(machine)) for checks in CHECKS.values() for check in checks):
        assert check.ok, check


@pytest.mark.parametrize(
    ("check", "machine", "found", "fix"),
    [
        (software.python, Imagined(version=(3, 10, 2)), "3.10.2", "python3.11"),
        (
            software.bytecode,
            Imagined(environ={"PYTHONDONTWRITEBYTECODE": "1"}),
            "every program compiles torch",
            "unset PYTHONDONTWRITEBYTECODE",
        ),
        (
            software.program,
            Imagined(files={"/home/u/robolearn/examples/pyproject.toml": '[project]\nname = "robolearn"'}),
            "not from the checkout /home/u/robolearn/examples",
            "pip install -e /home/u/robolearn/examples",
        ),
        (software.torch, Imagined(torch=Answer(1, {}, "ImportError: libc10")), "libc10", "pip install"),
        (software.gpu, Imagined(), "none; everything runs on the CPU", ""),
        (software.gpu, Imagined(programs=("nvidia-smi",)), "without CUDA", "download.pytorch.org"),
        (software.gpu, Imagined(programs=("nvidia-smi",), works=False), "none", ""),
        (software.worlds, Imagined(worlds=Answer(1, {}, "no mujoco.batch")), "no mujoco.batch", "pip install"),
        (
            software.cameras,
            Imagined(worlds=Answer(-6, {"mujoco": "4.0.0", "steps_per_s": 1.0}, "no EGL")),
            "no EGL",
            "apt install libegl1",
        ),
        (software.cameras, Imagined(worlds=Answer(1, {}, "x")), "not tried", "apt install libegl1"),
        (software.rclpy, Imagined(modules=()), "no ROS 2", "pip install robolearn[ros]"),
        (software.rclpy, Imagined(environ={"ROS_DISTRO": "jazzy"}), "jazzy and the wheels", "pip uninstall"),
        (software.dds, Imagined(modules=()), "not tried", ""),
        (software.dds, Imagined(talked=Answer(1, {}, "error: did not")), "did not", "RMW_IMPLEMENTATION"),
        (
            software.dds,
            Imagined(talked=Answer(1, {}, "x"), environ={"ROS_AUTOMATIC_DISCOVERY_RANGE": "OFF"}),
            "x",
            "export ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST",
        ),
        (
            software.network,
            Imagined(environ={"ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET"}),
            "whole network",
            "ROS_DOMAIN_ID",
        ),
        (software.network, Imagined(environ={"ROS_AUTOMATIC_DISCOVERY_RANGE": "OFF"}), "nobody", "LOCALHOST"),
        (software.launch, Imagined(), "robolearn deploy", ""),
        (software.launch, Imagined(programs=("ros2",)), "does not find", "make ros-index"),
        (
            software.launch,
            Imagined(programs=("ros2",), files={f"/venv/{INDEX}": ""}, environ={"AMENT_PREFIX_PATH": "/opt/ros/x"}),
            "does not look",
            "export AMENT_PREFIX_PATH=/venv:$AMENT_PREFIX_PATH",
        ),
        (software.images, Imagined(shm=None), "no /dev/shm", "remount"),
        (software.images, Imagined(shm=(2**26, 2**26)), "64 MiB", "mount -o remount,size=1G"),
        (software.images, Imagined(shm=(2**26, 2**26), files={"/.dockerenv": ""}), "64 MiB", "--shm-size=1g"),
        (software.images, Imagined(dead=3 * 2**28), "768 MiB in /dev/shm are left", "rm /dev/shm/*fastdds_*"),
        (software.images, Imagined(shm=(2**30, 2**27), dead=2**27), "128 MiB in /dev/shm are left", "while no node"),
        (software.images, Imagined(shm=(2**26, 2**25), dead=2**25), "32 MiB free", "remount"),
        (
            software.images,
            Imagined(environ={"ROS_DISTRO": "jazzy"}),
            "raw images",
            f"PROFILES_FILE={software.PROFILE}",
        ),
        (
            software.images,
            Imagined(environ={"FASTDDS_DEFAULT_PROFILES_FILE": "/gone.xml"}),
            "not there",
            "PROFILES_FILE=",
        ),
        (software.priority, Imagined(works=False), "ordinary kernel", "limits.d"),
        (software.priority, Imagined(programs=()), "no chrt", "apt install"),
        (devices.gamepad, Imagined(), "none", ""),
        (devices.gamepad, Imagined(files={"/dev/input/js0": ""}, closed=("/dev/input/js0",)), "js0", "-aG input"),
        (
            devices.spacemouse,
            spacemouse("HID_NAME=3Dconnexion SpaceMouse", closed=("/dev/hidraw0",)),
            "/dev/hidraw0",
            "udev",
        ),
        (
            devices.spacemouse,
            spacemouse("HID_ID=0003:0000046D:0000C08B\nHID_NAME=Logitech G502"),
            "none",
            "",
        ),
        (
            devices.gamepad,
            Imagined(files={"/dev/input/js0": "", "/sys/class/input/js0/device/name": "Xbox Pad\n"}),
            "/dev/input/js0 (Xbox Pad), but without pygame",
            "pip install robolearn[teleop]",
        ),
        (
            devices.spacemouse,
            spacemouse("HID_NAME=3Dconnexion SpaceMouse Compact\nHID_PHYS=x", modules=("hidraw",)),
            "/dev/hidraw0 (3Dconnexion SpaceMouse Compact), but without pyspacemouse",
            "pip install robolearn[teleop]",
        ),
        (devices.cameras, Imagined(files={"/dev/video0": ""}, closed=("/dev/video0",)), "video0", "-aG video"),
        (devices.serial, Imagined(files={"/dev/ttyUSB0": ""}, closed=("/dev/ttyUSB0",)), "ttyUSB0", "-aG dialout"),
    ],
)
def test_a_gap_is_named_with_the_command_that_mends_it(check, machine: Imagined, found: str, fix: str) -> None:
    one = only(check(machine))
    assert not one.ok and found in one.found
    assert (fix in one.fix) if fix else not one.fix


def test_serial_ports_say_what_hangs_on_them() -> None:
    files = {
        "/dev/ttyACM0": "",
        "/sys/class/tty/ttyACM0/device/../product": "USB Single Serial\n",
        "/dev/ttyUSB0": "",
        "/sys/class/tty/ttyUSB0/device/../../product": "FT232R\n",
        "/dev/ttyUSB1": "",
    }
    found = only(devices.serial(Imagined(files=files))).found
    assert found == "/dev/ttyACM0 (USB Single Serial), /dev/ttyUSB0 (FT232R), /dev/ttyUSB1"


def test_a_device_is_listened_to(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    person, program = pty.openpty()
    monkeypatch.setattr("sys.stdin", os.fdopen(program))
    os.write(person, b"w 1")
    assert main(["doctor", "--device", "keyboard", "--seconds", "0.3", "--json"]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out.splitlines()[-1])
    assert result["device"] == "keyboard" and result["samples"] == result["engaged"] > 2
    assert result["events"] == ["success"] and max(result["high"]) > 0.3 and "[success]" in err
    os.close(person)


def test_a_device_that_is_not_there_is_bad_input(capsys: pytest.CaptureFixture) -> None:
    assert main(["doctor", "--device", "gamepd"]) == 2
    assert "--device: got gamepd; available: keyboard, gamepad, spacemouse, leader" in capsys.readouterr().err


def test_the_profile_that_is_recommended_is_there() -> None:
    assert software.PROFILE.is_file()
    assert only(software.images(Imagined())).ok, "our own nodes choose it themselves"


def test_only_what_simulation_needs_fails() -> None:
    checks = [{"name": "a", "ok": True, "needed": True}, {"name": "b", "ok": False, "needed": False}]
    assert Doctor().exit_code({"checks": checks}) == 0
    assert Doctor().exit_code({"checks": [*checks, {"name": "c", "ok": False, "needed": True}]}) == 1


def test_every_check_is_imagined_and_named_once() -> None:
    names = [only(check(Imagined())).name for checks in CHECKS.values() for check in checks]
    assert len(names) == len(set(names)) and next(iter(CHECKS)) == SIMULATION


def test_people_see_each_command_on_a_line_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    machine = Imagined(torch=Answer(1, {}, "ImportError: [lib] is gone"), works=False)
    monkeypatch.setattr("robolearn.cli.checks.Machine", lambda: machine)
    assert main(["doctor"]) == 1
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert software.ALLOW in lines and "pip install robolearn[]" in lines
    assert any("ImportError: [lib] is gone" in line for line in lines)
    assert lines[-1] == "Simulation does not work here yet: torch"


@pytest.mark.realtime
@pytest.mark.long
def test_this_machine(capsys: pytest.CaptureFixture) -> None:
    code = main(["doctor", "--json"])
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    # The tests that run beside this one need all of these.
    for name in ("Python", "torch", "MuJoCo", "rclpy", "two processes"):
        assert checks[name]["ok"], checks[name]
    assert code == 0
    assert all(check.keys() == {"name", "ok", "found", "fix", "group", "needed"} for check in checks.values())


@pytest.mark.long
@pytest.mark.parametrize("changed", [False, True])
def test_the_version_of_a_station_is_in_what_doctor_finds(
    changed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """What is heard of the station, and the judge of that, are doubles."""
    monkeypatch.setattr("hardware.ros2.station_watch.watch", lambda *_: None)
    monkeypatch.setattr("hardware.station.check_station", lambda *_: {})
    assert main(["station", str(tmp_path / "lab"), "--contract", "sim"]) == 0
    if changed:
        (tmp_path / "lab" / "station.yaml").open("a").write("# new fingers\n")
    versions = {}
    for robot in (str(tmp_path / "lab"), "sim"):
        capsys.readouterr()
        assert main(["doctor", "--robot", robot, "--json"]) == 0
        found = json.loads(capsys.readouterr().out.splitlines()[-1])
        versions[found["robot"]] = found["version"]
    assert versions == {"lab": "1, changed since: station.yaml" if changed else "1", "sim": None}


def test_plugins_are_listed_and_what_is_left_out_has_its_reason() -> None:
    assert only(software.plugins(Imagined())).found == "no package brings one"
    good, bad = Plugin("tasks", "stack", "my-lab 1.0"), Plugin("robots", "arm", "my-lab 1.0", "the name arm is taken")
    found = software.plugins(Imagined(variants=(good, bad)))
    assert [(check.name, check.ok) for check in found] == [("stack (tasks)", True), ("arm (robots)", False)]
    assert found[1].found == "of my-lab 1.0, left out: the name arm is taken"


def test_shared_memory_of_a_process_that_is_gone(tmp_path: Path) -> None:
    program = "import hardware.ros2, rclpy; rclpy.init(); node = rclpy.create_node('n'); print(1, flush=True); input()"
    node = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert node.stdout is not None and node.stdout.readline() == b"1\n"
        segments = set(re.findall(r"/dev/shm/fastdds_[0-9a-f]{16}\b", Path(f"/proc/{node.pid}/maps").read_text()))
        for path in (f"{segment}{end}" for segment in segments for end in ("", "_el")):
            (tmp_path / Path(path).name).symlink_to(path)
        assert segments and Machine().left_behind(str(tmp_path)) == 0
        node.kill()
        node.wait()
        sizes = [Path(segment).stat().st_size for segment in segments]
        assert Machine().left_behind(str(tmp_path)) == sum(sizes) > 2**19
    finally:
        node.kill()
        node.communicate()
        for link in tmp_path.iterdir():
            link.readlink().unlink(missing_ok=True)
