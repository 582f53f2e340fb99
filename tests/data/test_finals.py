"""The observation after the last action: stored whole, committed with its episode, and kept by edits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from robolearn.core import ArraySpec, BadInput, Episode, Interface
from robolearn.data import Dataset, EpisodeWriter
from robolearn.data.convert import edit
from robolearn.data.convert.source import write_dataset
from robolearn.data.lerobot.layout import numbered
from robolearn.data.lerobot.tables import FINAL_PATH
from robolearn.rewards.head_trainer import lengths_of
from robolearn.rewards.metrics import window_of
from robolearn.rollout.collect import collect
from sim.experts import make_expert
from sim.registry import make_env
from sim.tasks.lift import HALF, RAISED

SIZE = 32
SEEN = Interface(
    {
        "proprio": ArraySpec((2,)), "clock": ArraySpec((2, 3), "float64"),
        "images.front": ArraySpec((SIZE, SIZE, 3), "uint8"),
    },
    ArraySpec((1,)), 20.0,
)  # fmt: skip


def final(e: int) -> dict[str, np.ndarray]:
    """Numbers with all digits, and noise that no lossy codec keeps."""
    rng = np.random.default_rng(e)
    picture = rng.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)
    return {"proprio": rng.random(2).astype(np.float32), "clock": rng.random((2, 3)), "images.front": picture}


def film(e: int, length: int = 4) -> Episode:
    observation = {key: np.stack([value] * length) for key, value in final(e + 100).items()}
    return Episode(
        observation, np.full((length, 1), e / 10, np.float32), np.zeros(length, np.float32), True, True, False, "film",
        final=final(e),
    )  # fmt: skip


def same(found, wanted) -> bool:
    return set(found) == set(wanted) and all(np.array_equal(found[key], wanted[key]) for key in wanted)


def test_the_final_observation_comes_back_bit_for_bit(tmp_path: Path) -> None:
    with EpisodeWriter(tmp_path / "set", SEEN) as w:
        w.write_all([film(0), replace(film(1), final={}), film(2)])
        one = film(3)
        for t in range(len(one)):
            w.add({key: value[t] for key, value in one.observation.items()}, one.action[t])
        w.end(success=True, terminated=True, task="film", final={key: value[None] for key, value in final(3).items()})
    dataset = Dataset.open(tmp_path / "set")
    assert [dataset.has_final(e) for e in range(4)] == [True, False, True, True]
    assert dataset.lengths.tolist() == [4] * 4, "the tables have as many frames as actions"
    assert not dataset.episode(1).final
    for e in (0, 2, 3):
        read = dataset.episode(e).final
        assert same(read, final(e)) and read["clock"].dtype == np.float64 and read["images.front"].dtype == np.uint8
    assert set(dataset.seeing(["proprio"]).episode(0).final) == {"proprio"}
    words = dataset.with_words(lambda tasks: np.ones((len(tasks), 5), np.float32))
    assert set(words.episode(0).final) == {*final(0), "prompt"} and words.episode(0).final["prompt"].shape == (5,)


@pytest.mark.long
def test_edits_keep_it_with_its_episode(tmp_path: Path) -> None:
    with EpisodeWriter(tmp_path / "set", SEEN) as w:
        w.write_all([film(0), film(1, 6)])
    dataset = Dataset.open(tmp_path / "set")
    swapped = edit.keep(dataset, [1, 0])
    write_dataset(swapped, tmp_path / "swapped")
    for e in range(2):
        assert same(Dataset.open(tmp_path / "swapped").episode(e).final, final(1 - e))
    write_dataset(edit.subsample(dataset, 2), tmp_path / "half")
    assert same(Dataset.open(tmp_path / "half").episode(1).final, final(1))
    whole, cut = edit.crop(dataset, 1, 0), edit.crop(dataset, 0, 1)
    assert not whole.account.left_out and any("last actions" in one for one in cut.account.left_out)
    write_dataset(whole, tmp_path / "late")
    write_dataset(cut, tmp_path / "cut")
    assert same(Dataset.open(tmp_path / "late").episode(0).final, final(0))
    assert not Dataset.open(tmp_path / "cut").episode(0).final, "the frame after the new last action is another one"


def test_it_is_committed_with_its_episode_alone(tmp_path: Path) -> None:
    root = tmp_path / "set"
    with EpisodeWriter(root, SEEN) as w:
        w.write(film(0))
    stray = root / numbered(FINAL_PATH, 1)
    stray.write_bytes((root / numbered(FINAL_PATH, 0)).read_bytes())  # what a kill between two renames leaves
    (root / "meta/info.json.tmp").write_bytes(b"{}")
    with EpisodeWriter(root, SEEN, resume=True) as w:
        w.write(replace(film(1), final={}))
    assert not stray.exists() and not Dataset.open(root).episode(1).final


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "set"
    with EpisodeWriter(root, SEEN) as w:
        w.add(final(0), [0.0])
        with pytest.raises(BadInput, match=r"final observation 'proprio'.*shape"):
            w.end(success=True, final=final(0) | {"proprio": np.zeros(3)})
        with pytest.raises(BadInput, match="no 'clock'"):
            w.end(success=True, final={key: value for key, value in final(0).items() if key != "clock"})
        assert w.end(success=True, final=final(0)) == 0, "the steps were kept"
        w.write(film(1, 6))
    path = root / numbered(FINAL_PATH, 0)
    path.write_bytes((root / numbered(FINAL_PATH, 1)).read_bytes())
    with pytest.raises(BadInput, match=r"file-000\.parquet: got an episode of 6 steps, expected 1"):
        _ = Dataset.open(root).episode(0).final["proprio"]
    pq.write_table(pq.read_table(path).drop_columns(["observation.state"]), path)
    with pytest.raises(BadInput, match=r"no column 'observation\.state'"):
        _ = Dataset.open(root).episode(0).final["proprio"]


def test_a_collected_success_ends_with_the_cube_above_the_threshold(tmp_path: Path) -> None:
    """By the task's own rule, 6 cm above where it lay: true of the final observation, and of no stored step."""
    env = make_env("lift", 3, threads=1)
    with EpisodeWriter(tmp_path / "set", env.interface) as w:
        collect(env, make_expert("lift", env.interface, 3, "expert", 0), w, 5, 1)
    env.close()
    dataset = Dataset.open(tmp_path / "set")
    height = env.interface.observation["objects"].names.index("cube_z")
    assert dataset.success.all()
    for e in range(5):
        episode = dataset.episode(e)
        assert episode.final["objects"][height] > HALF + RAISED >= episode.observation["objects"][:, height].max()
        window = window_of(episode)
        assert len(window) == len(episode) and len(window.observation["objects"]) == len(episode) + 1
        assert np.array_equal(window.observation["objects"][-1], episode.final["objects"])
    assert lengths_of(dataset)[0].tolist() == (dataset.lengths + 1).tolist()
