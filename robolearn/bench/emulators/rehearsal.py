"""Rehearsals: the contract of a real station, unchanged, with an emulator of each driver and simulated arms."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from robolearn.core import BadInput
from robots.stations import AnyContract, Contract, load_any_contract
from robots.stations.values import read_yaml

OBJECTS = {"topic": "/task/objects", "type": "sensor_msgs/msg/JointState"}


@contextmanager
def rehearsal(robot: str) -> Iterator[str]:
    """The contract file of a rehearsal, for as long as it lasts.

    Args:
      robot: name or file of the contract of a real station, of one arm or of two.

    Raises:
      BadInput: there is none of that name, it is of a simulated arm, or of a driver without an emulator. Servos need
        none: the simulated arm takes the vector that our own driver takes.
    """
    contract = load_any_contract(robot)
    for name, arm in contract.arms.items():
        _check(arm, f"--rehearse: contract {contract.name}" + (f": arms.{name}" if name else ""))
    with tempfile.TemporaryDirectory(prefix="robolearn-rehearsal-") as folder:
        path = Path(folder) / f"{contract.name}.yaml"
        path.write_text(_of_one(contract) if isinstance(contract, Contract) else _of_two(contract, Path(folder)))
        yield str(path)


def _check(arm: Contract, what: str) -> None:
    if arm.simulated or not (arm.driver or arm.servos):
        got = "simulated: true" if arm.simulated else "no driver"
        raise BadInput(what, got=got, expected="a real station with the key driver or servos")


def _of_one(contract: Contract) -> str:
    """The text of an arm's contract in a rehearsal."""
    text = Path(contract.path).read_text()
    objects = [] if contract.objects else [yaml.safe_dump({"objects": OBJECTS})]
    added = ["simulated: true", f"name: {contract.name}-rehearsal", *objects]
    return re.sub(r"^(simulated|name):.*\n", "", text, flags=re.MULTILINE) + "\n" + "\n".join(added) + "\n"


def _of_two(contract: AnyContract, folder: Path) -> str:
    """The same of a station with two arms, whose contracts are written into `folder`."""
    station = read_yaml(Path(contract.path))
    for name, arm in contract.arms.items():
        file = folder / f"arm-{name}.yaml"
        file.write_text(_of_one(arm))
        station["arms"][name]["contract"] = file.name
    return yaml.safe_dump({"objects": OBJECTS, **station, "name": f"{contract.name}-rehearsal"}, sort_keys=False)
