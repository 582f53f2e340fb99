"""Every value of the shipped contracts, and of one that uses every part, against values written down before."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robots.stations import contract_names, load_contract

HERE = Path(__file__).parent
WRITTEN = json.loads((HERE / "contract_values.json").read_text())


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


@pytest.mark.parametrize("name", [*contract_names(), "everything"])
def test_a_contract_has_the_values_of_its_file(name: str) -> None:
    if name == "everything":
        contract = load_contract(HERE / "everything.yaml")
    else:
        contract = load_contract(name, "/left")
    written = dict(WRITTEN[name])
    robot, tool, contact = written.pop("robot"), written.pop("tool"), written.pop("contact")
    assert contract.robot.name == robot and plain(contract.robot.tool) == tool
    sensing = contract.contact
    fields = ("topic", "type", "max_age_s", "most", "gravity")
    assert contact == (None if sensing is None else [plain(getattr(sensing, field)) for field in fields])
    command = plain(contract.command)
    assert (command["horizon_s"], command["posture"]) == (written.pop("horizon_s"), written.pop("posture"))
    assert written.pop("command").items() <= command.items()
    assert contract.limits.arms == ()
    written["limits"] |= {"arms": []}
    for field, value in written.items():
        assert plain(getattr(contract, field)) == value, field
