"""The device `browser`: a page with the 3-D arm, a target to drag, and the buttons of the recording."""

from hardware.teleop.browser.device import Browser

__all__ = ["Browser"]
