"""``robolearn benchmark data``: its figures on a set so small that they mean nothing, and what it refuses."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from robolearn.bench import data as benchmark_data
from robolearn.bench import memory as benchmark_memory
from robolearn.bench.data import BenchmarkData
from robolearn.bench.measuring import LeRobot
from robolearn.core import ArraySpec, BadInput, Interface, RobolearnError
from robolearn.data import Dataset, EpisodeWriter

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for name, value in {"EPISODES": 2, "STEPS": 6, "SIZE": 64, "BATCH": 4}.items():
        monkeypatch.setattr(benchmark_data, name, value)


def test_figures(tmp_path):
    result = BenchmarkData(scales=(1, 2), seconds=0.05, lerobot=False, folder=tmp_path / "work").run()
    json.dumps(result)
    assert result["beyond_memory"] is None  # so small a set fits into any memory
    assert result["lerobot"] is None and result["read_ratio"] is None and result["size_ratio"] is None
    assert [own["frames"] for own in result["ours"].values()] == [12, 24]
    for own in result["ours"].values():
        assert all(own[key] > 0 for key in ("write_frames_per_s", "read_samples_per_s", "read_uint8_samples_per_s"))
        assert 0 < own["cache_bytes"] < 2 * own["frames"] * 64 * 64 * 3 and own["bytes"] > 0
    assert 0 < result["episode_end_s"] < 60 and not list((tmp_path / "work").iterdir())


def test_training_beyond_memory(tmp_path, monkeypatch):
    """Pictures of 0.3 GB in a process that may take 0.75 GB, torch included: they are read from the disk."""
    for name, value in {"TIMES": 0.4, "LEAST": 0, "BATCH": 1, "ROUNDS": 1}.items():
        monkeypatch.setattr(benchmark_memory, name, value)
    interface = Interface({"images.front": ArraySpec((480, 640, 3), "uint8")}, ArraySpec((2,)), 20.0)
    picture = np.zeros((480, 640, 3), np.uint8)
    with EpisodeWriter(tmp_path / "set", interface) as writer:
        for _ in range(325):
            writer.add({"images.front": picture}, np.zeros(2))
        writer.end(success=True, terminated=True, task="none")
    Dataset.open(tmp_path / "set", cache="beside").build_cache()
    found = benchmark_memory.beyond_memory(tmp_path / "set", 0.05)
    assert found is not None and found["pictures_bytes"] == 325 * 480 * 640 * 3
    assert found["limit_bytes"] == int(325 * 480 * 640 * 3 / 0.4) and found["cached_windows_per_s"] > 0
    assert found["ratio"] == found["limited_windows_per_s"] / found["cached_windows_per_s"] > 0
    monkeypatch.setattr(benchmark_memory, "available_memory", lambda: found["pictures_bytes"])
    assert benchmark_memory.beyond_memory(tmp_path / "set", 0.05) is None  # no memory for the one beside it
    with pytest.raises(RobolearnError, match=r"failed: cameras in memory: got \[True\], expected none"):
        benchmark_memory.training_process(tmp_path / "set", 20_000_000_000).answer()


def test_ratios():
    ours = {
        "1": {"read_samples_per_s": 800.0, "write_frames_per_s": 300.0, "bytes_per_frame": 90, "episode_end_s": 0.1}
    }
    theirs = {"read_samples_per_s": 100.0, "write_frames_per_s": 60.0, "bytes_per_frame": 100}
    result = benchmark_data.result_of(ours, theirs)
    assert (result["read_ratio"], result["write_ratio"], result["size_ratio"]) == (8.0, 5.0, 0.9)
    assert result["write_ratio_streaming"] is None and result["read_cost_growth"] == 1.0


def test_an_interpreter_without_lerobot_is_said(tmp_path):
    with pytest.raises(BadInput, match="--lerobot-python"):
        BenchmarkData(scales=(1,), seconds=0.05, lerobot_python=tmp_path / "python").run()
    if LeRobot.found(None) is None:
        with pytest.raises(RobolearnError, match=r"failed: .*lerobot"):
            benchmark_data.measure_lerobot(LeRobot(sys.executable), tmp_path, (1,), 0.1)
    with pytest.raises(BadInput, match="positive"):
        BenchmarkData(scales=(0,)).run()
