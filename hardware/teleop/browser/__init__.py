"""The device `browser`: a page with the 3-D arm, a target to drag, and the buttons of the recording."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hardware.teleop.config import TeleopConfig, flag
from robolearn.core.errors import BadInput
from robolearn.core.specs import Interface

if TYPE_CHECKING:
    from hardware.teleop.browser.device import Browser
    from robots import RobotSpec

__all__ = ["BrowserConfig", "Place"]


@dataclass(frozen=True)
class Place:
    """Address and certificate of a served page.

    Attributes:
      host: loopback, or an address of this machine (``0.0.0.0``: all), then with TLS and a token.
      port: 0 takes any that is free.
      certificate, key: files to be used for TLS in place of a certificate of our own.
      folder: where our own is kept; by default ``~/.config/robolearn``.
    """

    host: str = "127.0.0.1"
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None
    folder: Path | None = None

    def check(self, what: str) -> None:
        """Raise `BadInput` about `what` unless this can be a place."""
        if not 0 <= self.port < 1 << 16:
            raise BadInput(f"{what}: port", got=self.port, expected="0 to 65535")
        if self.key is not None and self.certificate is None:
            raise BadInput(f"{what}: certificate", got="a key alone", expected="its certificate too")


@dataclass(frozen=True)
class BrowserConfig(TeleopConfig, Place):
    """A web page, on this machine or on a phone beside it.

    Attributes:
      heartbeat_s: a page silent for longer has let go of the dead-man [s].
    """

    name: ClassVar[str] = "browser"
    help: ClassVar[str] = "open the page at the address below"
    has_deadman: ClassVar[bool] = True
    shows_in_terminal: ClassVar[bool] = False

    host: str = flag("host", "127.0.0.1", "Address of its page; 0.0.0.0: phones too, with TLS and a token")
    port: int = flag("port", 8070, "Port of its page; 0 takes a free one")
    heartbeat_s: float = 0.3

    def build(self, interface: Interface, robot: RobotSpec, **parts: Any) -> Browser:
        from hardware.teleop.browser.device import Browser

        return Browser(interface, robot, self)
