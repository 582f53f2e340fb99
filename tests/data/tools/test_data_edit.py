"""Edits write new sets; whole episodes keep their videos to the byte, cut ones keep the right frames."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from robolearn.core import ArraySpec, BadInput, Episode, Interface, RobolearnError, check_compatible
from robolearn.data import Dataset, EpisodeWriter
from robolearn.data.convert import edit
from robolearn.data.convert.source import EpisodeSource, drafts, new_folder, open_numbers, write_dataset
from robolearn.data.lerobot.features import column
from robolearn.data.mixture import check_alike
from robolearn.data.validate import validate
from robolearn.data.video.segments import array

CAMERA = "images.front"
FINAL = "meta/robolearn_final/chunk-000/file-{:03d}.parquet"


def stored(source: EpisodeSource, out: Path) -> list[Episode]:
    """The episodes of `source` after it was stored, with the images of one camera; the set is sound."""
    write_dataset(source, out)
    assert list(validate(out)) == []
    return episodes(out)


def episodes(path: Path) -> list[Episode]:
    read = []
    for draft in drafts(open_numbers(path)):
        images = {key: array(segment) for key, segment in draft.images.items() if key == CAMERA}
        read.append(Episode(**{**vars(draft.episode), "observation": {**draft.episode.observation, **images}}))
    return read


def same(a: Episode, b: Episode) -> None:
    for key in b.observation:
        np.testing.assert_array_equal(a.observation[key], b.observation[key])
    for name in ("action", "reward", "intervention"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    for name in b.stamps:
        np.testing.assert_array_equal(a.stamps[name], b.stamps[name])
    for key in b.final:
        np.testing.assert_array_equal(a.final[key], b.final[key])
    assert set(a.final) == set(b.final)
    assert (a.success, a.terminated, a.truncated, a.task) == (b.success, b.terminated, b.truncated, b.task)


def mp4s(path: Path) -> list[bytes]:
    return [file.read_bytes() for file in sorted(path.glob("videos/*/*/*.mp4"))]


@pytest.mark.parametrize("change", ["nothing", "order", "scale", "another scale", "unit", "another unit", "kind"])
def test_a_merge_and_a_mixture_are_judged_alike(tmp_path: Path, change: str) -> None:
    """Both take the second set, or both refuse it: another unit alone is another way to write the same action."""

    def written(name: str, names: tuple[str, ...], kind: str, scale: dict | None) -> Dataset:
        extra = {"action_scale": scale} if scale else {}
        action = ArraySpec((2,), names=names)
        interface = Interface({"proprio": ArraySpec((2,))}, action, 10.0, "two joints", kind, extra=extra)
        with EpisodeWriter(tmp_path / name, interface) as writer:
            for t in range(4):
                writer.add({"proprio": np.full(2, t, np.float32)}, np.array([0.1 * t, -0.1], np.float32))
            writer.end(success=True, task="push")
        return open_numbers(tmp_path / name)

    def scale(high: float, unit: str = "") -> dict:
        return {"low": [-high] * 2, "high": [high] * 2, "unit": unit, "gripper": ""}

    usual = (("a", "b"), "joint_position", scale(110.0, "degrees") if "unit" in change else None)
    other = {
        "order": (("b", "a"), *usual[1:]), "scale": (*usual[:2], scale(2.0)), "unit": (*usual[:2], None),
        "another unit": (*usual[:2], scale(1.92, "radians")), "kind": (("a", "b"), "tcp_delta", None),
    }.get(change, usual)  # fmt: skip
    if change == "another scale":
        usual, other = (*usual[:2], scale(1.0)), (*usual[:2], scale(2.0))
    sets = [written("one", *usual), written("two", *other)]
    said = []
    for judge in (check_alike, edit.merge):
        try:
            judge(sets)
            said.append("")
        except BadInput as error:
            said.append(str(error).split(": ", 1)[1])
    assert bool(said[0]) == bool(said[1]) == (change not in ("nothing", "unit", "another unit")), said
    if not said[1]:
        source = edit.merge(sets)
        assert any("units in which exports" in line for line in source.account.changed) == (change != "nothing")
        stored = write_dataset(source, tmp_path / "all")
        assert stored.episodes == 2 and open_numbers(tmp_path / "all").interface == sets[0].interface


def test_drop_keeps_everything_of_the_others_and_their_videos_to_the_byte(filmed: Path, tmp_path: Path) -> None:
    before = episodes(filmed)
    after = stored(edit.drop(open_numbers(filmed), [1]), tmp_path / "out")
    same(after[0], before[0])
    same(after[1], before[2])
    assert len(after) == 2 and after[0].intervention is not None and after[0].intervention[3]
    assert len(mp4s(tmp_path / "out")) == 4 and set(mp4s(tmp_path / "out")) < set(mp4s(filmed))
    for new, old in enumerate((0, 2)):  # the observation after the last action, its pictures among it
        stands, stood = (pq.read_table(root / FINAL.format(i)) for root, i in ((tmp_path / "out", new), (filmed, old)))
        assert stands == stood and column(CAMERA) in stands.column_names


@pytest.mark.long
def test_split_and_merge_give_back_the_same_episodes(filmed: Path, tmp_path: Path) -> None:
    dataset = open_numbers(filmed)
    parts = edit.split(dataset, (2, 1), seed=None)
    assert parts == [[0, 1], [2]]
    for i, part in enumerate(parts):
        write_dataset(edit.keep(dataset, part), tmp_path / f"part{i}")
    merged = stored(edit.merge([open_numbers(tmp_path / "part0"), open_numbers(tmp_path / "part1")]), tmp_path / "all")
    for a, b in zip(merged, episodes(filmed), strict=True):
        same(a, b)
    assert mp4s(tmp_path / "all") == mp4s(filmed)


@pytest.mark.long
def test_a_merge_names_the_statistics_that_are_not_exact(plain: Path, filmed: Path, tmp_path: Path) -> None:
    assert edit.merge([open_numbers(plain), open_numbers(plain)]).account.changed == []
    for episode in (0, 2):
        write_dataset(edit.keep(open_numbers(filmed), [episode]), tmp_path / f"{episode}")
    merged = edit.merge([open_numbers(tmp_path / "0"), open_numbers(tmp_path / "2")])
    (said,) = merged.account.changed
    assert "q01 and q10 the least, q90 and q99 the greatest, q50 the mean of theirs; all other" in said
    write_dataset(merged, tmp_path / "both")
    both, *parts = (open_numbers(tmp_path / name) for name in ("both", "0", "2"))
    for key, exact in both.statistics().items():
        stored = both.stats[key if key == "action" else column(key)]
        for name in ("mean", "std", "q01", "q50", "q99"):
            np.testing.assert_allclose(np.ravel(stored[name]), np.ravel(exact[name]), atol=1e-6)
    one, other = (part.stats[column(CAMERA)] for part in parts)
    share = float(one["count"][0] / (one["count"][0] + other["count"][0]))
    made = {
        "q01": np.minimum(one["q01"], other["q01"]),
        "q50": share * one["q50"] + (1 - share) * other["q50"],
        "q99": np.maximum(one["q99"], other["q99"]),
    }
    for name, value in made.items():
        np.testing.assert_allclose(both.stats[column(CAMERA)][name], value)


def test_split_deals_every_episode_once(plain: Path) -> None:
    dataset = open_numbers(plain)
    for fractions in ((0.9, 0.1), (1e-6, 1), (1, 1, 1), (0.01, 0.01, 1)):
        parts = edit.split(dataset, fractions, seed=3)
        assert sorted(e for part in parts for e in part) == [0, 1, 2] and all(parts)
    assert edit.split(dataset, (1, 2), 5) == edit.split(dataset, (1, 2), 5)


def test_rename_task_renames_one_or_all(plain: Path, tmp_path: Path) -> None:
    dataset = open_numbers(plain)
    one = stored(edit.rename_task(dataset, "place it", "put it down"), tmp_path / "one")
    assert [episode.task for episode in one] == ["lift the cube", "lift the cube", "put it down"]
    every = stored(edit.rename_task(dataset, None, "work"), tmp_path / "all")
    assert {episode.task for episode in every} == {"work"}


def test_crop_cuts_numbers_images_and_stamps_alike(filmed: Path, tmp_path: Path) -> None:
    before = episodes(filmed)
    after = stored(edit.crop(open_numbers(filmed), 2, 3, [0, 2]), tmp_path / "out")
    same(after[1], before[1])
    for e in (0, 2):
        cut = slice(2, len(before[e]) - 3)
        np.testing.assert_array_equal(after[e].action, before[e].action[cut])
        np.testing.assert_array_equal(after[e].stamps["proprio"], before[e].stamps["proprio"][cut])
        # Encoded once more, so not to the bit; the bar grows by 10 a frame.
        shown, meant = after[e].observation[CAMERA], before[e].observation[CAMERA][cut]
        assert np.abs(shown[:, 32, 20].astype(int) - meant[:, 32, 20]).max() <= 3
        assert after[e].success == before[e].success and after[e].terminated == before[e].terminated


def test_subsample_lowers_the_rate_and_means_the_motion(filmed: Path, tmp_path: Path) -> None:
    before = episodes(filmed)
    after = stored(edit.subsample(open_numbers(filmed), 3), tmp_path / "out")
    dataset = open_numbers(tmp_path / "out")
    assert dataset.interface.control_hz == pytest.approx(10 / 3) and dataset.interface.extra["subsampled"] == 3
    assert [len(episode) for episode in after] == [5, 3, 6]
    np.testing.assert_allclose(after[0].action[0, 0], before[0].action[:3, 0].mean(), atol=1e-6)
    np.testing.assert_allclose(after[0].action[-1, 0], before[0].action[12:, 0].mean(), atol=1e-6)
    np.testing.assert_array_equal(after[0].action[:, 1], before[0].action[[2, 5, 8, 11, 13], 1])  # the gripper's last
    np.testing.assert_array_equal(after[0].observation["proprio"], before[0].observation["proprio"][::3])
    assert after[0].reward.sum() == before[0].reward.sum() and list(np.flatnonzero(after[0].intervention)) == [1]
    shown, meant = after[2].observation[CAMERA], before[2].observation[CAMERA][::3]
    assert np.abs(shown[:, 32, 20].astype(int) - meant[:, 32, 20]).max() <= 3


def test_a_sum_that_leaves_the_range_is_refused(plain: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="sum of actions: got 3 at frame 0"):
        write_dataset(edit.subsample(open_numbers(plain), 3, "sum"), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: edit.drop(d, [0, 1, 2]), "no episode left"),
        (lambda d: edit.drop(d, [7]), "got 7, expected 0 to 2"),
        (lambda d: edit.crop(d, 5, 4), "episode 1: got 9 steps"),
        (lambda d: edit.crop(d, 0, 0), "a step at least"),
        (lambda d: edit.subsample(d, 1), "at least 2"),
        (lambda d: edit.rename_task(d, "lift the cub", "x"), "did you mean lift the cube"),
        (lambda d: edit.rename_task(d, None, " "), "in words"),
        (lambda d: edit.split(d, (1, 1, 1, 1), None), "got 3 episodes"),
        (lambda d: edit.split(d, (1, 0), None), "positive numbers"),
    ],
)
def test_what_cannot_be_done_is_one_clear_error(plain: Path, change, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        change(open_numbers(plain))


def test_merging_different_interfaces_names_the_difference(plain: Path, filmed: Path) -> None:
    with pytest.raises(BadInput, match=r"images\.front: got \(\d+, \d+, 3\) uint8, expected none$"):
        edit.merge([open_numbers(plain), open_numbers(filmed)])
    with pytest.raises(BadInput, match=r"images\.front: missing; expected \(\d+, \d+, 3\) uint8$"):
        edit.merge([open_numbers(filmed), open_numbers(plain)])


def test_what_cannot_be_merged_is_named_as_a_person_would() -> None:
    names = tuple(f"panda_joint{i}" for i in range(7))
    proprio = ArraySpec((7,), names=names)
    panda = Interface({"proprio": proprio}, ArraySpec((3,)), 20.0, "panda", "tcp_delta")
    fr3 = replace(panda, embodiment="fr3", observation={"proprio": replace(proprio, names=("fr3_joint0", *names[1:]))})
    with pytest.raises(BadInput, match=r"^set: the first set was made for panda, this is fr3"):
        edit.check_same(panda, fr3, "set")
    with pytest.raises(BadInput, match=r"^set: proprio: got \(7,\) float32 with fr3_joint0, expected .*panda_joint0$"):
        edit.check_same(panda, replace(fr3, embodiment="panda"), "set")
    with pytest.raises(BadInput, match=r"^set: action shape: got \(4,\), expected \(3,\)$"):
        edit.check_same(panda, replace(panda, action=ArraySpec((4,))), "set")


def test_actions_are_merged_where_training_would_mix_them() -> None:
    one = Interface({"proprio": ArraySpec((7,))}, ArraySpec((2,), names=("x", "y")), 20.0, "panda", "tcp_delta")
    for other in (
        replace(one, action=ArraySpec((2,), names=("y", "x"))),
        replace(one, action_kind="joint_position"),
        replace(one, control_hz=10.0),
    ):
        with pytest.raises(BadInput) as trained:
            check_compatible(one, other, what="set", subject="the first set")
        with pytest.raises(BadInput) as merged:
            edit.check_same(one, other, "set")
        assert str(merged.value) == str(trained.value)
    # Beyond that a merged set is of one interface, where training takes what it needs.
    with pytest.raises(BadInput, match=r"^set: action: got \(2,\) float32 with z, expected \(2,\) float32 with y$"):
        edit.check_same(one, replace(one, action=ArraySpec((2,), names=("x", "z"))), "set")


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_followed(plain: Path, tmp_path: Path, there: bool) -> None:
    disk = tmp_path / "disk" / "set"
    disk.parent.mkdir()
    if there:
        disk.mkdir()
    (tmp_path / "link").symlink_to(disk)
    write_dataset(edit.keep(open_numbers(plain), [0]), tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and open_numbers(disk).episodes == 1
    assert [path.name for path in disk.parent.iterdir()] == ["set"]
    with pytest.raises(BadInput, match="Nothing is overwritten"):
        new_folder(tmp_path / "link").__enter__()


def test_a_place_that_cannot_be_taken_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mounted").mkdir()
    (tmp_path / "file").write_text("x")
    with monkeypatch.context() as patch:
        patch.setattr(os.path, "ismount", lambda path: Path(path).name == "mounted")
        with pytest.raises(BadInput, match=r"got a mount point.*Name a folder in it"):
            new_folder(tmp_path / "mounted").__enter__()
    with pytest.raises(BadInput, match=r"--out .*file/set: got Not a directory"):
        new_folder(tmp_path / "file" / "set").__enter__()


def test_what_cannot_take_its_place_is_kept(plain: Path, tmp_path: Path) -> None:
    with pytest.raises(RobolearnError, match=r"All is written, and kept in .*\.new\.part/set"):  # noqa: SIM117
        with new_folder(tmp_path / "new") as part:
            (part / "work").write_text("hours")
            (tmp_path / "new").mkdir()
            (tmp_path / "new" / "other").write_text("came first")
    assert (tmp_path / ".new.part" / "set" / "work").read_text() == "hours"
    assert (tmp_path / "new" / "other").read_text() == "came first"


def test_what_is_there_is_never_overwritten_and_failures_leave_nothing(plain: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("x")
    with pytest.raises(BadInput, match="Nothing is overwritten"):
        write_dataset(edit.keep(open_numbers(plain), [0]), tmp_path / "out")
    assert (tmp_path / "out" / "precious").read_text() == "x"
    # What a killed edit left behind is in nobody's way.
    (tmp_path / ".new.part").mkdir()
    (tmp_path / ".new.part" / "half").write_text("x")
    assert write_dataset(edit.keep(open_numbers(plain), [0]), tmp_path / "new").episodes == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "out"]
