"""Contract files for tests: the shipped ones as data, one changed, one refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from robolearn.core import BadInput
from robots.stations import CONTRACTS, Contract, load_contract


def shipped(name: str) -> dict[str, Any]:
    return yaml.safe_load((CONTRACTS / f"{name}.yaml").read_text())


def load(tmp_path: Path, data: object) -> Contract:
    path = tmp_path / "station.yaml"
    path.write_text(data if isinstance(data, str) else yaml.safe_dump(data))
    return load_contract(path)


def refuse(tmp_path: Path, data: object) -> str:
    """The one line that a contract is refused with."""
    with pytest.raises(BadInput) as refused:
        load(tmp_path, data)
    message = str(refused.value)
    assert "\n" not in message and "station.yaml" in message
    return message


def put(data: dict[str, Any], where: str, value: object) -> dict[str, Any]:
    *path, last = where.split(".")
    inner = data
    for key in path:
        inner[key] = inner.get(key) or {}
        inner = inner[key]
    inner[last] = value
    return data
