"""One wrong frame: named where it is, and no scale goes by it where the user says so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.core import ArraySpec, Episode, Interface
from robolearn.data import Dataset, EpisodeWriter
from robolearn.data.convert import seen
from robolearn.data.lerobot.columns import extremes, outliers, still
from robolearn.data.validate import validate


def places(*episodes: np.ndarray) -> list[tuple[int, int, int, int]]:
    """(episode, frame, component, count) of every outlier."""
    return [(one.episode, one.frame, one.component, one.count) for one in outliers(episodes)]


def with_(values: np.ndarray, frames: list[int] | slice, wild: float) -> np.ndarray:
    """(T,) `values` as (T, 1), wild in these frames."""
    values = np.array(values, np.float32)
    values[frames] = wild
    return values[:, None]


T = np.arange(300)
NOISE = np.random.default_rng(1).normal(size=300)


def test_what_is_an_outlier() -> None:
    rng = np.random.default_rng(0)
    frames = rng.normal(size=(60, 3))
    assert places(frames) == []
    frames[17, 1] = -9999.0
    assert places(frames) == [(0, 17, 1, 1)]
    assert places(rng.normal(size=(60, 3)), frames, frames) == [(1, 17, 1, 1), (2, 17, 1, 1)]
    gripper = np.where(np.arange(60) == 30, 1.0, 0.0)[:, None]
    assert places(gripper) == [], "what rarely moves has no range to be beyond"
    spikes = np.append(rng.normal(size=200), [30.0, -30.0])[:, None]
    assert places(spikes) == [], "a tail is no fault"


@pytest.mark.parametrize(
    ("frames", "found"),
    [
        (with_(np.full(300, 0.5), [40], -9999), (0, 40, 0, 1)),  # constant
        (with_(np.full(300, 0.5), slice(295, 300), -9999), (0, 295, 0, 5)),
        (with_(np.full(300, 2048.0), [40], -9999), (0, 40, 0, 1)),
        (with_(np.sin(T / 20), [3, 70, 71, 200, 299], -9999), (0, 3, 0, 5)),
        (with_(150 * np.sin(T / 20), [40], -9999), (0, 40, 0, 1)),  # degrees
        (with_(0.04 + 0.04 * np.sin(T / 20), [40], 12), (0, 40, 0, 1)),  # metres: a frame, and back
        (with_(0.04 + 0.04 * np.sin(T / 20), [0, 40, 41, 90, 200], 12), (0, 0, 0, 5)),
        (with_(np.where(T % 100 < 50, -1, 1), [60], 1e6), (0, 60, 0, 1)),
    ],
)
def test_a_few_wild_frames_are_named(frames: np.ndarray, found: tuple[int, int, int, int]) -> None:
    assert places(frames) == [found]


def test_what_is_seen_by_few_components_at_a_time_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Episodes of several lengths, wild in several components; also where a block holds only one."""
    rng = np.random.default_rng(0)
    episodes = [rng.normal(size=(length, 7)).astype(np.float32) for length in (60, 1, 80, 40)]
    episodes[0][17, 1] = episodes[2][79, 6] = episodes[3][0, 6] = -9999
    for one in episodes:
        one[:, 4] = 2.5
    said = {}
    for size in (1, 8 * 181 * 3, 1 << 26):
        monkeypatch.setattr(seen, "BYTES", size)
        vectors = seen.SeenVectors()
        for number, values in enumerate(episodes):
            vectors.add(f"episode {number}", values)
        vectors.add("empty", np.zeros((0, 7), np.float32))
        vectors.add("broken", np.full((3, 7), np.nan, np.float32))
        said[size] = vectors.remarks("proprio", list("abcdefg"))
    assert said[1] == said[1 << 26] == said[8 * 181 * 3]
    assert said[1][0] == "these components of proprio never change: e"
    found = [line.partition(", far")[0] for line in said[1][1:]]
    assert found == [
        f"episode {e}: proprio at frame {t}, component {c} is -9999" for e, t, c in ((0, 17, 1), (2, 79, 6), (3, 0, 6))
    ]


@pytest.mark.parametrize("opened", [0.08, 1.0, 100.0, 255.0, 850.0])
@pytest.mark.parametrize("noise", [0.0, 1e-5, 1e-3])
def test_a_gripper_that_is_moved_rarely_is_no_outlier(opened: float, noise: float) -> None:
    still_ = noise * opened * NOISE
    rare = [
        np.where(T >= 292, opened, 0.0),  # opens at the end
        np.where(T >= 299, opened, 0.0),
        np.where(abs(T - 150) < 5, opened, 0.0),
        np.where(abs(T - 150) < 5, 0.0, opened),
        np.where(T % 100 < 50, 0.0, opened),
        opened * (1 - 2.0 * (T >= 298)),  # commands 1 and -1
    ]
    for values in rare:
        assert places((values + still_)[:, None].astype(np.float32)) == []
        assert places(*[(values + still_)[:, None]] * 3) == []


@pytest.mark.parametrize("unit", [1.0, 180 / np.pi, 1000.0])
@pytest.mark.parametrize("noise", [0.0, 1e-5, 1e-3])
def test_a_joint_that_rests_and_then_moves_is_no_outlier(unit: float, noise: float) -> None:
    for moving in (3, 8, 12, 150):
        q = unit * (0.5 + np.clip((T - 300 + moving) / moving, 0, 1) + noise * NOISE)
        assert places(q[:, None]) == [], moving
        assert places(*[np.full((300, 1), q[0])] * 9, q[:, None], q[::-1, None]) == [], moving


def test_what_hardly_changes() -> None:
    rest = np.stack([np.full(300, 0.25), 0.25 + 1e-7 * NOISE, 2.0 + 0.003 * (T > 150), 1e-7 * NOISE], 1)
    assert still(*extremes([rest[:99], rest[99:]]), "abcd") == [
        "never change: a",
        "hardly change: b, d (by 5.8e-07 at most)",
    ]
    assert still(*extremes([1000 * rest[:, :3]])) == ["never change: 0", "hardly change: 1 (by 0.00058 at most)"]
    assert still(*extremes([rest[:, 2:3]])) == []


def test_validate_names_the_episode(tmp_path: Path) -> None:
    interface = Interface({"proprio": ArraySpec((2,))}, ArraySpec((1,)), 10.0)
    with EpisodeWriter(tmp_path / "set", interface) as writer:
        for e in range(3):
            proprio = np.stack([np.sin(np.arange(30) + e), np.cos(np.arange(30) + e)], 1)
            proprio[12, 1] = 9999.0 if e == 1 else proprio[12, 1]
            writer.write(Episode({"proprio": proprio}, np.zeros((30, 1)), np.zeros(30), True, True, False, "reach"))
    (finding,) = validate(tmp_path / "set")
    assert (finding.check, finding.episode, finding.frame) == ("outlier", 1, 12)
    assert finding.what == "observation.state: component 1 is 9999, far beyond all others"


def test_import_names_it_and_scales_by_quantiles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder := tmp_path / "push").mkdir()
    rng, actions = np.random.default_rng(0), []
    for e in range(4):
        actions.append(np.stack([rng.uniform(-40, 40, 50), np.full(50, 3.0)], 1))
        actions[e][7, 0] = -9999.0 if e == 2 else actions[e][7, 0]
        np.savez(folder / f"{e}.npz", action=actions[e], proprio=rng.normal(size=(50, 2)))
    words = ["dataset", "import", str(folder), "--hz", "10", "--json", "--out"]
    assert main([*words, str(tmp_path / "plain")]) == 0
    changed = json.loads(capsys.readouterr().out.splitlines()[-1])["changed"]
    assert any("2.npz: action at frame 7, component 0 is -9999, far beyond" in line for line in changed)
    assert "these components of the action never change: 1" in changed
    assert np.ptp(np.delete(Dataset.open(tmp_path / "plain").action[:, 0], 107)) < 0.02, "all motion is squeezed"

    assert main([*words, str(tmp_path / "robust"), "--scale", "quantiles"]) == 0
    changed = json.loads(capsys.readouterr().out.splitlines()[-1])["changed"]
    assert any("by its quantiles q01 and q99; 4 of 200 reach further and are cut" in line for line in changed)
    dataset = Dataset.open(tmp_path / "robust")
    every = np.concatenate(actions)[:, 0]
    low, high = np.quantile(every, (0.01, 0.99))
    expected = np.clip(2 * (every - low) / (high - low) - 1, -1, 1)
    np.testing.assert_allclose(dataset.action[:, 0], expected, atol=1e-5)
    scale = dataset.interface.extra["action_scale"]
    np.testing.assert_allclose([scale["low"], scale["high"]], [[low, 3.0], [high, 3.0]], rtol=1e-6)


def test_import_and_validate_name_the_same_in_what_is_observed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder := tmp_path / "push").mkdir()
    rng = np.random.default_rng(0)
    for e in range(3):
        rest = [np.full(50, 0.5), 0.5 + 1e-7 * rng.normal(size=50), np.cos(np.arange(50) + e)]
        seen = np.stack([np.sin(np.arange(50) + e), *rest], 1)
        if e == 1:
            seen[[20, 30], 0], seen[20, 1] = -9999.0, 9999.0
        action = np.stack([rng.uniform(-1, 1, 50), 0.25 + 1e-7 * rng.normal(size=50)], 1)
        np.savez(folder / f"{e}.npz", action=action, proprio=seen, depth=np.ones((50, 20, 20)))
    words = ["dataset", "import", str(folder), "--hz", "10", "--json", "--out", str(tmp_path / "set")]
    assert main(words) == 0
    changed = json.loads(capsys.readouterr().out.splitlines()[-1])["changed"]
    assert changed[0].startswith("these components of the action hardly change: 1 (by ")
    assert changed[1].startswith("these components of proprio hardly change: 2 (by ") and len(changed) == 4
    told = [
        "component 0 is -9999, far beyond all others (as are 1 more frames)",
        "component 1 is 9999, far beyond all others",
    ]
    assert changed[2:] == [f"1.npz: proprio at frame 20, {line}" for line in told]

    assert main(["dataset", "validate", str(tmp_path / "set"), "--json"]) == 1
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    found = [(one["check"], one["episode"], one["frame"], one["what"]) for one in said["findings"]]
    assert found == [("outlier", 1, 20, f"observation.state: {line}") for line in told]
    assert [line.split(" (by ")[0] for line in said["notes"]] == [
        "these components of observation.state hardly change: 2",
        "these components of action hardly change: 1",
    ]


def test_what_never_changes_is_no_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder := tmp_path / "push").mkdir()
    seen = np.stack([np.full(50, 0.5), np.sin(np.arange(50))], 1)
    np.savez(folder / "0.npz", action=np.sin(np.arange(50.0))[:, None], proprio=seen)
    assert main(["dataset", "import", str(folder), "--hz", "10", "--out", str(tmp_path / "set")]) == 0
    assert "these components of proprio never change: 0" in " ".join(capsys.readouterr().out.split())
    assert main(["dataset", "validate", str(tmp_path / "set")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "note these components of observation.state never change: 0" in out and "nothing wrong" in out
