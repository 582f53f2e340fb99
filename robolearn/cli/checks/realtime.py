"""Real-time priority, for a safety node that is on time while everything else computes."""

from __future__ import annotations

from robolearn.cli.checks.machine import Check, Machine

ALLOW = 'echo "$USER - rtprio 80" | sudo tee /etc/security/limits.d/90-robolearn.conf  # then log in again'


def priority(machine: Machine) -> list[Check]:
    """Whether this user may ask for SCHED_FIFO."""
    kernel = "a real-time kernel" if machine.text("/sys/kernel/realtime").strip() == "1" else "an ordinary kernel"
    if machine.which("chrt") is None:
        return [Check("priority", False, "no chrt to try it with", "sudo apt install util-linux")]
    if machine.succeeds(["chrt", "-f", "50", "true"]):
        return [Check("priority", True, f"SCHED_FIFO is allowed, {kernel}")]
    found = f"this user may not ask for SCHED_FIFO ({kernel}): commands may come late under load"
    return [Check("priority", False, found, ALLOW)]
