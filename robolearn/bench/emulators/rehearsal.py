"""Rehearsals: the contract of a real station, unchanged, with an emulator of its driver and a simulated arm."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from robolearn.core import BadInput
from robots.stations import load_any_contract

OBJECTS = "objects: {topic: /task/objects, type: sensor_msgs/msg/JointState}"


@contextmanager
def rehearsal(robot: str) -> Iterator[str]:
    """The contract file of a rehearsal, for as long as it lasts.

    Args:
      robot: name or file of the contract of a real station.

    Raises:
      BadInput: there is none of that name, it is of a simulated arm, or of a driver without an emulator. Servos need
        none: the simulated arm takes the vector that our own driver takes.
    """
    contract = load_any_contract(robot)
    if len(contract.arms) > 1:
        what = f"--rehearse: contract {contract.name}"
        raise BadInput(what, got="a station with two arms", expected="one with one arm")
    contract = contract.arms[""]
    if contract.simulated or not (contract.driver or contract.servos):
        got = "simulated: true" if contract.simulated else "no driver"
        raise BadInput(
            f"--rehearse: contract {contract.name}", got=got, expected="a real station with the key driver or servos"
        )
    text = Path(contract.path).read_text()
    added = ["simulated: true", f"name: {contract.name}-rehearsal", *([] if contract.objects else [OBJECTS])]
    text = re.sub(r"^(simulated|name):.*\n", "", text, flags=re.MULTILINE) + "\n" + "\n".join(added) + "\n"
    with tempfile.TemporaryDirectory(prefix="robolearn-rehearsal-") as folder:
        path = Path(folder) / f"{contract.name}.yaml"
        path.write_text(text)
        yield str(path)
