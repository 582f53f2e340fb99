"""A page to look at, with nothing to press: the arm, what stands around it, the cameras, and one line of state."""

from __future__ import annotations

from html import escape

from hardware.teleop.browser.guarded_viser import GuardedViser
from hardware.teleop.browser.pictures import Pictures
from hardware.teleop.browser.stage import Stage
from hardware.teleop.device import RECORDING, Status
from robots import RobotSpec

RED, GREY = "#d92d20", "#8a93a3"


class ViewPage:
    """What viser shows of a `Status`; `guarded` serves it.

    Args:
      robot: the arm to draw.
    """

    def __init__(self, robot: RobotSpec) -> None:
        self.guarded = GuardedViser()
        server = self.guarded.server
        self._server = server
        self._stage = Stage(server, robot)
        server.gui.configure_theme(show_logo=False, show_share_button=False, control_width="medium")
        self._line = server.gui.add_html("", order=0.0)
        self._shown = ""
        self._pictures = Pictures(server)

    @property
    def watched(self) -> bool:
        """Whether anybody has the page open."""
        return bool(self._server.get_clients())

    def update(self, status: Status, *, pictures: bool = True) -> None:
        """Show how things are; called by one thread.

        Args:
          pictures: those of the cameras too.
        """
        if status.joints is not None:
            self._stage.show(status.joints, status.opening, status.scene)
        html = line(status)
        if html != self._shown:
            self._shown = self._line.content = html
        if pictures:
            self._pictures.show(status.images, large=True)

    def close(self) -> None:
        """Disconnect everybody; their pages say that it is over."""
        self.guarded.close()


def line(status: Status) -> str:
    """State, episode i of n, seconds and message, as HTML."""
    many = f" of {status.episodes}" if status.episodes else ""
    colour = RED if status.state == RECORDING else GREY
    return (
        f'<div data-robolearn-view data-state="{escape(status.state)}" style="padding:0.4em 0.8em 0.6em;'
        'font:15px/1.4 system-ui,sans-serif">'
        '<div style="display:flex;align-items:center;gap:0.5em;font-weight:600">'
        f'<span style="width:0.75em;height:0.75em;border-radius:50%;background:{colour}"></span>'
        f"<span>{escape(status.state)} · episode {status.episode + 1}{many}</span>"
        '<span style="margin-left:auto;font-weight:400;font-variant-numeric:tabular-nums">'
        f"{status.seconds:.1f} s</span></div>"
        f'<div style="min-height:2.8em;overflow-wrap:anywhere">{escape(status.message)}</div></div>'
    )
