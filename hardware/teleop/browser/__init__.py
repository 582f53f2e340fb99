"""The device `browser`: a page with the 3-D arm, a target to drag, and the buttons of the recording."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hardware.teleop.config import TeleopConfig, flag
from robolearn.core.specs import Interface

if TYPE_CHECKING:
    from hardware.teleop.browser.device import Browser
    from robots import RobotSpec

__all__ = ["BrowserConfig"]


@dataclass(frozen=True)
class BrowserConfig(TeleopConfig):
    """A web page, on this machine or on a phone beside it.

    Attributes:
      host: where to listen: loopback, or an address of this machine (``0.0.0.0``: all), then with TLS and a token.
      port: 0 takes any that is free.
      heartbeat_s: a page silent for longer has let go of the dead-man [s].
      certificate, key: files to be used for TLS in place of a certificate of our own.
      folder: where our own is kept; by default ``~/.config/robolearn``.
    """

    name: ClassVar[str] = "browser"
    help: ClassVar[str] = "open the page at the address below"
    has_deadman: ClassVar[bool] = True
    shows_in_terminal: ClassVar[bool] = False

    host: str = flag("host", "127.0.0.1", "Address of its page; 0.0.0.0: phones too, with TLS and a token")
    port: int = flag("port", 8070, "Port of its page; 0 takes a free one")
    heartbeat_s: float = 0.3
    certificate: Path | None = None
    key: Path | None = None
    folder: Path | None = None

    def build(self, interface: Interface, robot: RobotSpec, **parts: Any) -> Browser:
        from hardware.teleop.browser.device import Browser

        return Browser(interface, robot, self)
