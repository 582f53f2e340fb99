"""Widgets of the console in viser: scene and cameras, who is in control, buttons, when to help, curves.

STOP is no button of viser's: it lies above the page (`stop.html`) and has a websocket of its own (`serve_stop`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from html import escape

import numpy as np
import viser
from aiohttp import web
from viser import uplot

from hardware.teleop.browser.page import ArmPage, parsed, sending
from robolearn.hil.console.logic import ConsoleView, Curves, HelpSchedule
from robolearn.hil.operator_console import CURVES, HilStatus, OperatorCommand
from robots import RobotSpec

STOP_PATH = "/stop"
BLUE, GREEN, ORANGE, GREY = (23, 92, 211), (6, 118, 71), (181, 71, 8), (71, 84, 103)
COLOURS = {  # from top to bottom, below a banner whose height does not change
    OperatorCommand.TAKE_OVER: BLUE, OperatorCommand.HAND_BACK: BLUE, OperatorCommand.SUCCESS: GREEN,
    OperatorCommand.FAILURE: ORANGE, OperatorCommand.RETURN: GREY, OperatorCommand.RELEASE: GREY,
}  # fmt: skip
TITLES = {
    "success": ("Success without help", "%"), "intervention_rate": ("Steps by the person", "%"),
    "cycle_s": ("Cycle time", "s"), "q": ("Q", ""), "utd": ("UTD", ""), "latency_ms": ("Latency p99", "ms"),
}  # fmt: skip
LINES, PALE = "#98a2b3", "#98a2b340"  # on light and dark pages
AXIS = uplot.Axis(stroke=LINES, grid=uplot.Axis_Grid(stroke=PALE), ticks=uplot.Axis_Ticks(stroke=PALE))
SHARES = ("success", "intervention_rate")  # shown in per cent


class ConsolePage(ArmPage):
    """The widgets; one set for all pages that are open. `press` takes the command of a button, in threads of viser."""

    def __init__(self, robot: RobotSpec, schedule: HelpSchedule, press: Callable[[OperatorCommand], None]) -> None:
        super().__init__(robot)
        server, self._schedule, self._press = self.server, schedule, press
        self._banner = server.gui.add_html("", order=0.0)
        self._buttons: dict[OperatorCommand, viser.GuiButtonHandle] = {}
        for number, (command, colour) in enumerate(COLOURS.items()):
            self._buttons[command] = server.gui.add_button(command, color=colour, order=10.0 + number)
            self._buttons[command].on_click(lambda _, command=command: self._press(command))
        self._curves = Curves()
        self._plots: dict[str, viser.GuiUplotHandle] = {}
        with server.gui.add_folder("Curves over robot time", order=200.0):
            for name, (title, unit) in TITLES.items():
                self._plots[name] = server.gui.add_uplot(
                    (np.zeros(1), np.zeros(1)),
                    (uplot.Series(label="min"), uplot.Series(label=unit or title, stroke="#2e90fa", width=2)),
                    scales={"x": uplot.Scale(time=False)},
                    axes=(AXIS, AXIS),
                    title=title,
                    aspect=2.2,
                    visible=False,  # until there is something to see
                )

    def update(self, status: HilStatus | None, view: ConsoleView) -> None:
        """Show the newest status; called by one thread."""
        self._banner.content = self._banner_of(status, view)
        for command, handle in self._buttons.items():
            button = view.buttons[command]
            handle.label, handle.disabled, handle.visible = button.label, not button.enabled, button.visible
        if status is None:
            return
        if status.joints is not None:
            self._stage.show(status.joints, status.opening, status.scene)
        self._show_pictures(status.images, large=True)
        if status.metrics is not None and self._curves.add(status.metrics):
            self._draw_curves()

    def _banner_of(self, status: HilStatus | None, view: ConsoleView) -> str:
        red, green, grey = "#d92d20", "#067647", "#475467"
        colour = red if view.stopped else green if status is not None else grey
        clock, help_, message, in_control = "", "", "", "nobody"
        if status is not None:
            in_control = status.in_control.value
            clock = f"episode {status.episode + 1} · {status.seconds:.0f} s · robot {status.robot_minutes:.1f} min"
            help_, message = self._schedule.sentence(status), status.message
        if view.stopped:
            help_ = "The arm is stopped. See that all is safe, then release the stop."
        return (
            f'<div data-robolearn-hil data-in-control="{in_control}" data-stopped="{str(view.stopped).lower()}" '
            'style="padding:0.2em 0.8em 0.5em;font:14px/1.35 system-ui,sans-serif;height:12em;overflow:auto">'
            f'<div class="headline" style="padding:0.5em 0.7em;border-radius:0.5em;color:#fff;background:{colour};'
            f'font-weight:600">{escape(view.headline)}</div>'
            f'<div class="clock" style="opacity:0.7;margin-top:0.3em">{escape(clock)}</div>'
            f'<div class="help" style="margin-top:0.3em;font-weight:600">{escape(help_)}</div>'
            f'<div class="message" style="margin-top:0.3em">{escape(message)}</div></div>'
        )

    def _draw_curves(self) -> None:
        for name in CURVES:
            x, y = self._curves.curve(name)
            if not len(x):
                continue
            title, unit = TITLES[name]
            y = 100.0 * y if name in SHARES else y
            plot = self._plots[name]
            plot.data = (x, y)
            plot.title = f"{title}: {y[-1]:.3g}{f' {unit}' if unit else ''}"
            plot.visible = True


async def serve_stop(page: web.WebSocketResponse, stop: Callable[[], None], stopped: Callable[[], bool]) -> None:
    """Serve the websocket of one page until it is gone: `stop` at every press, `stopped` while the arm is stopped."""
    async with sending(page, lambda: {"stopped": stopped()}):
        async for message in page:
            if parsed(message).get("press") == "stop":
                stop()
                await page.send_str(json.dumps({"stopped": stopped()}))
