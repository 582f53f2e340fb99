"""Control arbitration between web pages: which has control, whether its dead-man is on, and what it asks for.

Pages connect and leave in threads of their own; the recording takes one request per control step. One client has
control, others watch and may take it over while the dead-man is off.

The dead-man is a switch that must be kept: every heartbeat of the page names the press of it that is still on (0:
none). A page that is silent for `heartbeat_s`, that closes or loses its websocket has let go, and a press that was lost
this way never counts again: the page must be alive and the operator must press anew.

Beats that come steadily may all be late, on a radio link that queues them. So each carries the time of the
last message that the page received, by the clock here: where the round trip takes longer than `heartbeat_s` and
`DELAY_S`, it has let go too.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.teleop.device import Clock, EpisodeEvent, Sample
from robolearn.core.se3 import matrix_to_quat

Array = NDArray[np.float64]

DELAY_S = 0.2  # a page is sent a message ten times a second, and may answer a beat later


@dataclass(frozen=True)
class ControlRequest(Sample):
    """The operator's request at one control step, from which the action is to be made; stamped by its heartbeat.

    Attributes:
      target: (3,) position [m] and (3, 3) orientation of the tcp in the base frame, or None before there is any.
      opening: of the gripper, 0 closed … 1 open, or None before there is any.
    """

    target: tuple[Array, Array] | None = None
    opening: float | None = None


@dataclass
class _ClientFacts:
    key: str  # sent to its own page alone
    beat_at: float = -np.inf
    press: int = 0  # the newest press of the switch that it reported
    void: int = 0  # presses up to this one do not count any more
    large: bool = False  # it shows the cameras' pictures large

    @property
    def presses(self) -> bool:
        return self.press > self.void

    def forget(self) -> None:
        """Count nothing that is pressed now."""
        self.void = max(self.void, self.press)


class ControlArbiter:
    """Shared by the threads of the pages and of the recording.

    Args:
      heartbeat_s: a page silent for longer has let go [s].

    Attributes:
      controller: the client that has control, or None.
    """

    def __init__(self, heartbeat_s: float = 0.3, clock: Clock = time.monotonic) -> None:
        self.heartbeat_s, self.clock = heartbeat_s, clock
        self._lock = threading.RLock()
        self._clients: dict[int, _ClientFacts] = {}
        self.controller: int | None = None
        self._note = "no page has control"
        self._events: list[EpisodeEvent] = []
        self._target: tuple[Array, Array] | None = None
        self._opening: float | None = None
        self._stamp, self._moved, self._released = clock(), 0, False

    # --- pages -----------------------------------------------------------------------------------------------

    def join(self, client: int) -> str:
        """A page has opened; it has control if no other has. Returns the key that its heartbeats must carry."""
        with self._lock:
            self._clients[client] = _ClientFacts(secrets.token_urlsafe(16))
            if self.controller is None:
                self._hand_to(client)
            return self._clients[client].key

    def leave(self, client: int) -> None:
        """A page has closed or lost its websocket."""
        with self._lock:
            self._clients.pop(client, None)
            if client == self.controller:
                self.controller, self._note, self._released = None, "the page at the controls is gone", False

    def owner(self, key: str) -> int | None:
        """Client of this key, or None."""
        with self._lock:
            found = (
                c for c, facts in self._clients.items() if secrets.compare_digest(facts.key.encode(), key.encode())
            )
            return next(found, None)

    def beat(self, client: int, press: int, received: float | None = None) -> None:
        """A heartbeat of `client`.

        Args:
          press: counts how often the switch was pressed, or is 0 while it is off.
          received: ``"t"`` of the newest `standing` that the page has received [s]; None: not in the message.
        """
        with self._lock:
            facts = self._clients.get(client)
            if facts is None:
                return
            self._expire()
            if client == self.controller:
                self._stamp = self.clock()
                if press == 0 and facts.presses:
                    # Else it was lost: the reason stays until the next press.
                    self._note, self._released = "the dead-man is off", True
                elif press > facts.void:
                    self._released = False
            facts.beat_at, facts.press = self.clock(), press
            if received is not None and not 0 <= (late := facts.beat_at - received) <= self.heartbeat_s + DELAY_S:
                self._let_go(client, facts, f"the network is slow: word and answer took {late:.1f} s")
            if client != self.controller:
                facts.forget()  # whatever it pressed as a spectator

    def silence(self, client: int, why: str) -> None:
        """The heartbeats of a page have ended."""
        with self._lock:
            if facts := self._clients.get(client):
                self._let_go(client, facts, why)

    def claim(self, client: int) -> bool:
        """A page requests control; true if it has it now. Control stays where the dead-man is on."""
        with self._lock:
            if client in self._clients and client != self.controller and not self.engaged:
                self._hand_to(client)
            return client == self.controller

    @property
    def engaged(self) -> bool:
        """True while the dead-man is on."""
        with self._lock:
            self._expire()
            return self._at_controls is not None and self._at_controls.presses

    def standing(self, client: int) -> dict[str, Any]:
        """Status of one page, for its display: its role, the state of its newest press, the target."""
        with self._lock:
            engaged, facts = self.engaged, self._clients.get(client)
            mine = client == self.controller
            return {
                "t": self.clock(),
                "role": "control" if mine else "watch",
                "free": not engaged,
                "engaged": engaged and mine,
                "press": facts.press if facts else 0,
                "note": "" if engaged else self._note,
                "opening": self._opening,
                "large": facts is not None and facts.large,
                "target": [] if self._target is None else [*self._target[0], *matrix_to_quat(self._target[1])],
            }

    def enlarge(self, client: int, large: bool) -> None:
        """A page, in control or not, shows the cameras' pictures large, or small again."""
        with self._lock:
            if facts := self._clients.get(client):
                facts.large = large

    @property
    def enlarged(self) -> bool:
        """True if any page shows the pictures large."""
        with self._lock:
            return any(facts.large for facts in self._clients.values())

    # --- what the controlling page asks for; from others it is not heard -------------------------------------

    def ask(self, client: int, event: EpisodeEvent) -> None:
        """A button was pressed."""
        with self._lock:
            if client == self.controller:
                self._events.append(event)

    def drag(self, client: int, position: Array, rotation: Array) -> bool:
        """The target was dragged to (3,) [m] and (3, 3); true if that counts: only while the dead-man is on."""
        with self._lock:
            finite = np.isfinite(position).all() and np.isfinite(rotation).all()
            if client != self.controller or not self.engaged or not finite:
                return False
            self._target = np.array(position, dtype=np.float64), np.array(rotation, dtype=np.float64)
            return True

    def grip(self, client: int, opening: float) -> None:
        """The gripper shall open so far, 0 … 1."""
        with self._lock:
            if client == self.controller and np.isfinite(opening):
                self._opening = min(max(float(opening), 0.0), 1.0)

    # --- the recording ---------------------------------------------------------------------------------------

    def place(self, position: Array, rotation: Array, opening: float, *, always: bool = False) -> None:
        """Set the arm's pose: with the dead-man off the target rests there, so that switching on moves nothing.

        Args:
          position, rotation: (3,) [m] and (3, 3) of the tcp.
          opening: of the gripper, 0 … 1; asked for until the operator asks for another.
          always: bring the target there in any case: the arm was moved by something else.
        """
        with self._lock:
            if self._target is None or always or not self.engaged:
                self._target = position.copy(), rotation.copy()
                self._moved += 1
            if self._opening is None:
                self._opening = min(max(opening, 0.0), 1.0)

    def keep_grip(self, resting: Callable[[float], float]) -> None:
        """The gripper was moved by something else; `resting`: what was asked for → what keeps it as it is, 0 … 1."""
        with self._lock:
            self._opening = resting(1.0 if self._opening is None else self._opening)

    def release(self, why: str) -> None:
        """Switch the dead-man off: the operator must press anew."""
        with self._lock:
            if facts := self._at_controls:
                self._let_go(self.controller, facts, why)

    def request(self) -> ControlRequest:
        """The request of now; its events are handed over once."""
        with self._lock:
            engaged = self.engaged
            events, self._events = tuple(self._events), []
            asked = ControlRequest(None, engaged, events, self._stamp, target=self._target, opening=self._opening)
            return replace(asked, note="" if engaged else self._note, released=self._released and not engaged)

    def peek(self) -> tuple[tuple[Array, Array] | None, float | None, int]:
        """Target, opening, and how often the target was put back to the arm."""
        with self._lock:
            return self._target, self._opening, self._moved

    def _hand_to(self, client: int) -> None:
        self.controller, self._note = client, "the dead-man is off"
        self._clients[client].forget()

    @property
    def _at_controls(self) -> _ClientFacts | None:
        return None if self.controller is None else self._clients.get(self.controller)

    def _expire(self) -> None:
        facts = self._at_controls
        if facts is not None and facts.presses and self.clock() - facts.beat_at > self.heartbeat_s:
            self._let_go(self.controller, facts, f"the page was silent for more than {self.heartbeat_s:g} s")

    def _let_go(self, client: int | None, facts: _ClientFacts, why: str) -> None:
        if facts.presses and client == self.controller:
            self._note, self._released = why, False
        facts.forget()
