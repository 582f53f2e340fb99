"""The operator's console as a web page: the state of the loop, and buttons for the operator's commands."""

from robolearn.hil.console.logic import HelpSchedule
from robolearn.hil.console.web_console import WebConsole

__all__ = ["HelpSchedule", "WebConsole"]
