"""`robolearn benchmark hil-updates`: our side's figures, its turns with a rival's process, what it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from robolearn.bench import measuring
from robolearn.cli.main import main

SMALL = ["--rounds", "1", "--seconds", "0.1", "--width", "16", "--batch", "8", "--critics", "3"]
RIVAL = """
import json, sys, time
assert json.loads(sys.argv[1])["critics"] == 3
print("a library talks", flush=True)
print(json.dumps({"ready": "0.0", "parameters": 7}), flush=True)
for line in sys.stdin:
    print(json.dumps({"updates_per_s": 2.0 if json.loads(sys.argv[1])["compile"] else 4.0}), flush=True)
"""


def test_our_updates_alone_and_beside_a_rival(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The ratio is over the better of the rival's two."""
    (tmp_path / "lerobot_sac.py").write_text(RIVAL)
    monkeypatch.setattr(measuring, "SCRIPTS", tmp_path)
    assert main(["benchmark", "hil-updates", *SMALL, "--lerobot-python", sys.executable, "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    rates = result["updates_per_s"]
    assert (rates["lerobot"], rates["lerobot_eager"]) == (2.0, 4.0) and result["lerobot_version"] == "0.0"
    assert result["ratio"] == pytest.approx(rates["ours"] / 4.0) and rates["ours"] > 1.0
    # (24 + 28) · 16 and 16 · 16 weights, their biases and norms, and the output, three times
    assert result["critic_parameters"]["ours"] == 3 * (52 * 16 + 16 * 16 + 6 * 16 + 16 + 1)


@pytest.mark.long
def test_our_updates_by_the_size_of_the_replay(capsys: pytest.CaptureFixture[str]) -> None:
    """A step takes 32 numbers of four bytes (24 features, 7 of the action, the reward) and 47 bytes of its window; rows
    grow by doubling, and the demonstrations have 5,000 besides."""
    assert main(["benchmark", "hil-updates", *SMALL, "--replay", "1000", "15000", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["replay"]
    assert [row["steps"] for row in found] == [1000, 15000] and all(row["updates_per_s"] > 1.0 for row in found)
    for row in found:
        least = (row["steps"] + 5000) * (32 * 4 + 47)
        assert 0.95 * least < 1e6 * row["mb"] < 2 * least


@pytest.mark.parametrize(
    ("wrong", "said"),
    [("--rounds 0", "--rounds"), ("--replay 9", "--replay"), ("--seconds 0", "--seconds"), ("--batch 7", "--batch"),
     ("--lerobot-python nowhere", "--lerobot-python")],
)  # fmt: skip
def test_bad_input_is_refused(wrong: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["benchmark", "hil-updates", *wrong.split()]) == 2
    assert said in capsys.readouterr().err


def test_a_rival_that_ends_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "lerobot_sac.py").write_text("import sys\nsys.exit('no such policy')")
    monkeypatch.setattr(measuring, "SCRIPTS", tmp_path)
    assert main(["benchmark", "hil-updates", *SMALL, "--lerobot-python", sys.executable]) == 1
    assert "failed: no such policy" in capsys.readouterr().err
