"""The console as a web page: on loopback with a token by default, elsewhere with TLS too."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from hardware.teleop.browser import Place, ServedPage
from robolearn.hil.console.logic import HelpSchedule, Latches
from robolearn.hil.operator_console import HilStatus, OperatorCommand, StatusPage
from robots import RobotSpec

if TYPE_CHECKING:
    from robolearn.hil.console.page import ConsolePage

PLACE = Place(port=8071)


class WebConsole(ServedPage["ConsolePage"], StatusPage):
    """A `StatusPage`; within ``with`` it is served."""

    what, update_hz = "console", 10.0  # a press is shown at once

    def __init__(self, robot: RobotSpec, schedule: HelpSchedule | None = None, place: Place = PLACE) -> None:
        place.check(self.what)
        super().__init__()
        self._robot, self._place, self._schedule = robot, place, schedule or HelpSchedule()
        self._latches = Latches()
        self._status: HilStatus | None = None

    def __enter__(self) -> WebConsole:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """See `ServedPage._open`."""
        self._open(self._place)

    def show(self, status: HilStatus) -> None:
        self._latches.update(status)
        self._status = status

    def poll(self) -> tuple[OperatorCommand, ...]:
        return self._latches.poll()

    def _make(self) -> tuple[ConsolePage, Callable[[Place], None]]:
        from hardware.teleop.browser.auth_proxy import overlay
        from robolearn.hil.console.page import STOP_PATH, ConsolePage, serve_stop

        page = ConsolePage(self._robot, self._schedule, self._pressed)
        stop, own = partial(self._pressed, OperatorCommand.STOP), overlay("robolearn.hil.console", "stop.html")
        sockets = {STOP_PATH: lambda socket: serve_stop(socket, stop, lambda: self._latches.view().stopped)}
        risk = "Whoever has this address can stop the arm and hand it to the person at the device."
        return page, partial(page.guarded.serve, own=own, sockets=sockets, risk=risk, over="The session is over.")

    def _update(self, page: ConsolePage) -> None:
        page.update(self._status, self._latches.view())

    def _pressed(self, command: OperatorCommand) -> None:
        self._latches.press(command)
        self._wake.set()
