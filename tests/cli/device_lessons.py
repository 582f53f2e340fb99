"""A lesson by an emulated device: `robolearn hil run`, a test's hands, and what lies in the spool afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from emulated_devices import Hands
from teaching import SMALL, Terminal, records, until

from robolearn.data.replay import End, ReplayStep


def taught(
    device: str, policy: Path, out: Path, terminal: Terminal, teach: Callable[[Hands], None], *words: object
) -> list[Any]:
    """The records of a run that `teach` ends by QUIT."""
    hands = Hands(device)
    process = hands.run(
        "hil", "run", "--policy", policy, "--task", "lift", "--teleop", device, "--out", out, *words, *SMALL, "--json",
        log=terminal.program, stdin=terminal.program,
    )  # fmt: skip
    try:
        until(lambda: hands.there or process.poll() is not None, "an actor with the device")
        teach(hands)
        result = json.loads(process.communicate(timeout=60)[0].splitlines()[-1])
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(30)
        hands.close()
        print(terminal.seen[-3000:], *(p.read_text()[-2000:] for p in sorted((out / "logs").glob("*.log"))))
    assert process.returncode == 0 and result["finished"] is False, result
    return records(out, policy)


DROPPED = (False, False, False)  # an episode without an end


def goal_states(found: list[Any]) -> list[tuple[bool, bool, bool]]:
    """(terminated, truncated, success) of each episode that has a step."""
    ends = {r.episode: (r.terminated, r.truncated, r.success) for r in found if isinstance(r, End)}
    return [ends.get(number, DROPPED) for number in sorted({r.episode for r in found})]


def steps_of(found: list[Any], episode: int) -> list[ReplayStep]:
    return [r for r in found if isinstance(r, ReplayStep) and r.episode == episode]
