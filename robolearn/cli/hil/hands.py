"""The person's device of an actor, and the console: opened, their addresses where the person finds them."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robolearn.core import BadInput, Interface

if TYPE_CHECKING:
    from hardware.teleop import Device
    from robolearn.core.scene import Scene
    from robots import RobotSpec

log = logging.getLogger(__name__)

TELEOP, CONSOLE = "teleop", "console"  # the files with the addresses of a device's page, and of the console


@contextlib.contextmanager
def opened_device(
    name: str, options: dict[str, Any], interface: Interface, robot: RobotSpec, folder: Path
) -> Iterator[Device]:
    """The device called `name`, open, with a clutch where it has no dead-man, and opened anew where it was unplugged.

    Args:
      options: flag → value; those of other devices are left out.
      folder: where the address of its page is written, for its owner's eyes alone.

    Raises:
      BadInput: it is not there, or cannot command this arm.
    """
    from hardware.teleop import make_device
    from hardware.teleop.wrapped import clutched, reconnecting
    from robolearn.cli.hil.learner import write_own
    from robolearn.cli.teleop_flags import device_options, shows_in_terminal
    from robolearn.core.machine import searched_before

    own = device_options(name, options)
    with contextlib.ExitStack() as stack:
        if shows_in_terminal(name):
            own["out"] = stack.enter_context(_screen())
        stack.enter_context(searched_before())
        device = make_device(name, interface, robot, **own)
        device.open()
        stack.callback(device.close)
        url, notice = getattr(device, "url", ""), getattr(device, "notice", "")
        if url:
            folder.mkdir(parents=True, exist_ok=True)
            write_own(folder / TELEOP, url + "\n")
            stack.callback((folder / TELEOP).unlink, missing_ok=True)
            log.info("your page is at the address in %s", folder / TELEOP)
            if sys.stderr.isatty():  # not for logs: it has the token
                print(notice, file=sys.stderr, flush=True)
        yield reconnecting(clutched(device), device)


@contextlib.contextmanager
def opened_page(
    port: int | None,
    folder: Path,
    interface: Interface,
    scene: Callable[[], Scene] | None,
    ending: Callable[[], bool],
    *,
    holds: bool = True,
) -> Iterator[Any]:
    """The person at the console's page, or None where no `port` is given; see `PageConsole`."""
    if port is None:
        yield None
        return
    from robolearn.cli.hil.learner import write_own
    from robolearn.hil.console.web_console import WebConsole
    from robolearn.hil.operator_console import PageConsole
    from robots import ROBOTS

    robot = ROBOTS.get(interface.embodiment)
    if robot is None:
        raise BadInput("--console", got=f"a world with {interface.embodiment}", available=ROBOTS)
    with WebConsole(robot, port=port) as console:
        folder.mkdir(parents=True, exist_ok=True)
        write_own(folder / CONSOLE, console.url + "\n")
        log.info("the console is at the address in %s", folder / CONSOLE)
        try:
            yield PageConsole(console, interface, robot.joints, scene, ending, holds)
        finally:
            (folder / CONSOLE).unlink(missing_ok=True)


@contextlib.contextmanager
def _screen() -> Iterator[Any]:
    """Standard error where that is a terminal, else the terminal that is read."""
    if sys.stderr.isatty() or not sys.stdin.isatty():
        yield sys.stderr
        return
    # `hil run` keeps what its halves say in files; the person looks at the terminal.
    with open(os.open(os.ttyname(sys.stdin.fileno()), os.O_WRONLY | os.O_NOCTTY), "w") as terminal:
        yield terminal
