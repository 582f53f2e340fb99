"""The operator's device and console, opened, with their addresses in files beside the outbox."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robolearn.core import BadInput, Interface
from robolearn.hil.processes import CONSOLE, TELEOP
from robolearn.io.atomic import write_private

if TYPE_CHECKING:
    from hardware.teleop import Device
    from robolearn.core.scene import Scene
    from robots import RobotSpec

log = logging.getLogger(__name__)


@contextlib.contextmanager
def opened_device(
    name: str, options: Mapping[str, Any], interface: Interface, robot: RobotSpec, folder: Path, *, terminal: bool
) -> Iterator[Device]:
    """The device called `name`, open, with a clutch where it has no dead-man, and opened anew where it was unplugged.

    Args:
      folder: for the address of its page, which only its owner can read.
      terminal: the device shows the state in the terminal.

    Raises:
      BadInput: it is not there, or cannot command this arm.
    """
    from hardware.teleop import make_device
    from hardware.teleop.wrapped import clutched, reconnecting
    from robolearn.core.machine import searched_before

    own = dict(options)
    with contextlib.ExitStack() as stack:
        if terminal:
            own["out"] = stack.enter_context(_screen())
        stack.enter_context(searched_before())
        device = make_device(name, interface, robot, **own)
        device.open()
        stack.callback(device.close)
        url, notice = getattr(device, "url", ""), getattr(device, "notice", "")
        if url:
            stack.enter_context(_noted(folder / TELEOP, url, "your page"))
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
    """The console's page at `port`, or None without one; see `PageConsole`."""
    if port is None:
        yield None
        return
    from hardware.teleop.browser import Place
    from robolearn.hil.console.web_console import WebConsole
    from robolearn.hil.operator_console import PageConsole
    from robots import ROBOTS

    robot = ROBOTS.get(interface.embodiment)
    if robot is None:
        raise BadInput("--console", got=f"a world with {interface.embodiment}", available=ROBOTS)
    with WebConsole(robot, place=Place(port=port)) as console, _noted(folder / CONSOLE, console.url, "the console"):
        yield PageConsole(console, interface, robot.joints, scene, ending, holds)


@contextlib.contextmanager
def _noted(path: Path, url: str, what: str) -> Iterator[None]:
    """A file with the address of a page, that only its owner can read, while the page is open."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_private(path, url + "\n")
    log.info("%s is at the address in %s", what, path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _screen() -> Iterator[Any]:
    """Standard error where that is a terminal, else the terminal that is read."""
    if sys.stderr.isatty() or not sys.stdin.isatty():
        yield sys.stderr
        return
    # `hil run` sends the output of its processes to files; the operator looks at the terminal.
    with open(os.open(os.ttyname(sys.stdin.fileno()), os.O_WRONLY | os.O_NOCTTY), "w") as terminal:
        yield terminal
