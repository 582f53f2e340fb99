"""``robolearn benchmark data``: its figures on a set so small that they mean nothing, and what it refuses."""

from __future__ import annotations

import json
import sys

import pytest

from robolearn.cli import benchmark_data
from robolearn.cli.benchmark_data import BenchmarkData
from robolearn.core import BadInput, RobolearnError


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for name, value in {"EPISODES": 2, "STEPS": 6, "SIZE": 64, "BATCH": 4}.items():
        monkeypatch.setattr(benchmark_data, name, value)


def test_figures(tmp_path):
    result = BenchmarkData(scales=(1, 2), seconds=0.05, lerobot=False, folder=tmp_path / "work").run()
    json.dumps(result)
    assert result["lerobot"] is None and result["read_ratio"] is None and result["size_ratio"] is None
    assert [own["frames"] for own in result["ours"].values()] == [12, 24]
    for own in result["ours"].values():
        assert all(own[key] > 0 for key in ("write_frames_per_s", "read_samples_per_s", "read_uint8_samples_per_s"))
        assert 0 < own["cache_bytes"] < 2 * own["frames"] * 64 * 64 * 3 and own["bytes"] > 0
    assert 0 < result["episode_end_s"] < 60 and not list((tmp_path / "work").iterdir())


def test_ratios():
    ours = {
        "1": {"read_samples_per_s": 800.0, "write_frames_per_s": 300.0, "bytes_per_frame": 90, "episode_end_s": 0.1}
    }
    theirs = {"read_samples_per_s": 100.0, "write_frames_per_s": 60.0, "bytes_per_frame": 100}
    result = benchmark_data._result(ours, theirs)
    assert (result["read_ratio"], result["write_ratio"], result["size_ratio"]) == (8.0, 5.0, 0.9)
    assert result["write_ratio_streaming"] is None and result["read_cost_growth"] == 1.0


def test_an_interpreter_without_lerobot_is_said(tmp_path):
    with pytest.raises(BadInput, match="--lerobot-python"):
        BenchmarkData(scales=(1,), seconds=0.05, lerobot_python=tmp_path / "python").run()
    if benchmark_data._lerobot_python(None) is None:
        with pytest.raises(RobolearnError, match=r"failed: .*lerobot"):
            benchmark_data._measure_lerobot(sys.executable, tmp_path, (1,), 0.1)
    with pytest.raises(BadInput, match="positive"):
        BenchmarkData(scales=(0,)).run()
