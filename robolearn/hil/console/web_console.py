"""The console as a web page: on loopback with a token by default, elsewhere with TLS too."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from hardware.teleop.browser.served_page import ServedPage, viser_needed
from robolearn.core.errors import BadInput
from robolearn.hil.console.logic import HelpSchedule, Latches
from robolearn.hil.operator_console import HilStatus, OperatorCommand
from robots import RobotSpec

if TYPE_CHECKING:
    from hardware.teleop.browser.guarded_viser import GuardedViser
    from robolearn.hil.console.page import ConsolePage

log = logging.getLogger(__name__)

UPDATE_HZ = 10.0  # of what the page shows; a press is shown at once


class WebConsole(ServedPage["ConsolePage"]):
    """A `robolearn.hil.operator_console.StatusPage`.

    Args:
      robot: the arm.
      schedule: when to help.
      host: where to listen: loopback, or an address of this machine (``0.0.0.0``: all), then with TLS and a token.
      port: 0 takes any that is free.
      certificate, key: files to be used for TLS in place of a certificate of our own.
      folder: where our own is kept; by default ``~/.config/robolearn``.
    """

    def __init__(
        self,
        robot: RobotSpec,
        schedule: HelpSchedule | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 8071,
        certificate: Path | None = None,
        key: Path | None = None,
        folder: Path | None = None,
    ) -> None:
        if not 0 <= port < 1 << 16:
            raise BadInput("console: port", got=port, expected="0 to 65535")
        super().__init__()
        self._robot, self._schedule = robot, schedule or HelpSchedule()
        self._where = (host, port, certificate, key, folder)
        self._latches = Latches()
        self._status: HilStatus | None = None
        self._wake = threading.Event()

    def __enter__(self) -> WebConsole:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Serve the page.

        Raises:
          BadInput: viser is not installed, or the address cannot be listened on.
        """
        if self._page is not None:
            return
        with viser_needed("console"):
            from hardware.teleop.browser.guarded_viser import Place
            from robolearn.hil.console.page import STOP_PATH, ConsolePage, overlays, serve_stop

        def serve(guarded: GuardedViser) -> None:
            sockets = {STOP_PATH: lambda socket: serve_stop(socket, self._stop, lambda: self._latches.view().stopped)}
            risk = "Whoever has this address can stop the arm and hand it to the person at the device."
            guarded.serve(Place(*self._where), overlays(), sockets, risk, "The session is over.")

        self._serve(ConsolePage(self._robot, self._schedule, self._pressed), serve, self._refresh, "hil-console")

    def close(self) -> None:
        """Take the page away; more than once is no fault."""
        self._end.set()
        self._wake.set()
        super().close()

    def show(self, status: HilStatus) -> None:
        """See `StatusPage.show`."""
        self._latches.update(status)
        self._status = status

    def poll(self) -> tuple[OperatorCommand, ...]:
        """See `StatusPage.poll`."""
        return self._latches.poll()

    # ---------------------------------------------------------------------------------------------------------

    def _pressed(self, command: OperatorCommand) -> None:
        self._latches.press(command)
        self._wake.set()

    def _stop(self) -> None:
        self._pressed(OperatorCommand.STOP)

    def _refresh(self, page: ConsolePage) -> None:
        while not self._end.is_set():
            self._wake.clear()
            try:
                page.update(self._status, self._latches.view())
            except Exception:  # a picture that cannot be drawn must not leave the page standing still
                log.exception("the console could not be updated")
                self._end.wait(1.0)
            self._wake.wait(1.0 / UPDATE_HZ)
