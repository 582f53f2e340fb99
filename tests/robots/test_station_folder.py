"""The folder of a station: what serves as --robot and --dynamics, versions that stay, and what is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from robolearn.cli.main import main
from robolearn.core import BadInput
from robots.dynamics_file import load_dynamics
from robots.stations import CONTRACTS, load_contract


def station(*args: object) -> int:
    return main(["station", *map(str, args)])


@pytest.fixture()
def lab(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert station(tmp_path / "lab", "--contract", "sim") == 0
    capsys.readouterr()
    return tmp_path / "lab"


def test_a_folder_is_a_robot_and_its_dynamics(lab: Path) -> None:
    there, shipped = load_contract(lab), load_contract("sim")
    assert (there.name, there.version, shipped.version) == ("lab", "1", "")
    assert there.interface == shipped.interface and repr(there.limits) == repr(shipped.limits)
    assert load_contract(lab / "station.yaml").version == "1", "by its file, too"
    with pytest.raises(BadInput, match=r"identify --robot .*lab --write makes it"):
        load_dynamics(str(lab))
    (lab / "dynamics.json").write_text(
        json.dumps({"robot": "panda", "parameters": {"gain": {"mean": 0.9, "sd": 0.01}}})
    )
    assert load_dynamics(str(lab)).spreads["gain"].a == (0.9,)
    assert load_contract(lab).version == "1, changed since: dynamics.json"


def test_versions_are_copies_that_no_one_writes_again(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    contract = lab / "station.yaml"
    first = contract.read_bytes()
    assert first == (CONTRACTS / "sim.yaml").read_bytes()
    contract.write_bytes(first + b"\n# new fingers\n")
    assert station(lab, "--json") == 0
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert shown["changed"] == ["station.yaml"] and [one["note"] for one in shown["versions"]] == ["a copy of sim"]
    for note in ("new fingers", "nothing new"):  # what has not changed is no version
        assert station(lab, "--note", note, "--json") == 0
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [one["note"] for one in shown["versions"]] == ["a copy of sim", "new fingers"] and shown["version"] == "2"
    assert (lab / "versions/1/station.yaml").read_bytes() == first
    for one in shown["versions"]:
        kept = lab / "versions" / str(one["number"]) / "station.yaml"
        assert hashlib.sha256(kept.read_bytes()).hexdigest() == one["files"]["station.yaml"]
    contract.write_bytes(first)  # back to the first is a third
    assert station(lab, "--note", "old fingers") == 0 and load_contract(lab).version == "3"
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2", "3"] and lines[-1].endswith("station.yaml: old fingers")


def test_a_version_that_was_torn_is_made_again(lab: Path) -> None:
    """As a kill leaves it: the copy has no name yet."""
    (lab / "versions/.2.part").mkdir()
    (lab / "versions/.2.part/station.yaml").write_text("half")
    (lab / "dynamics.json").write_text("{}")
    assert load_contract(lab).version.startswith("1,") and station(lab, "--note", "x") == 0
    assert load_contract(lab).version == "2" and sorted(one.name for one in (lab / "versions").iterdir()) == ["1", "2"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("nowhere",), "--contract NAME makes it"),
        (("lab", "--contract", "fr3"), "got a station.yaml, expected a new folder"),
        (("other", "--contract", "fr4"), "fr4"),
        (("empty", "--note", "x"), "contract"),
    ],
)
def test_bad_input_is_one_line(
    lab: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lab.parent)
    (lab.parent / "empty").mkdir()
    assert station(*args) == 2
    assert says in capsys.readouterr().err.splitlines()[-1] and not (lab.parent / "other").exists()


def test_a_contract_that_cannot_be_read_is_no_version(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (lab / "station.yaml").open("a") as file:
        file.write("stream_hz: -1\n")
    assert station(lab, "--note", "broken") == 2 and "station.yaml" in capsys.readouterr().err
    assert [one.name for one in (lab / "versions").iterdir()] == ["1"]
    (lab / "station.yaml").write_bytes((CONTRACTS / "sim.yaml").read_bytes())
    (lab / "versions/1/version.json").write_text('{"number": 1}')
    with pytest.raises(BadInput, match="no version of a station"):
        load_contract(lab)


def test_identify_asks_for_a_station_before_it_moves(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["identify", "--write", "--out", str(tmp_path / "x")]) == 2
    assert "robolearn station" in capsys.readouterr().err and not (tmp_path / "x").exists()
