"""The console of the human-in-the-loop loop: a page that shows it, and hands on what the person asks."""

from robolearn.hil.console.schedule import HelpSchedule
from robolearn.hil.console.web_console import WebConsole

__all__ = ["HelpSchedule", "WebConsole"]
