"""Features of text of another maker's set: kept by imports, edits and exports. The judge reads the files by pyarrow,
h5py and numpy alone.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robolearn.cli.main import main
from robolearn.core import ArraySpec, BadInput, Episode, Interface
from robolearn.data import Dataset, EpisodeWriter
from robolearn.data.validate import validate
from robolearn.data.writing.repair import repair

LENGTHS = (14, 9, 16)
DATA, INFO = "data/chunk-000/file-000.parquet", "meta/info.json"
ODD = ("", "a\u2028b\u2029c\u0085d", 'say "hi"\\', "größe 漢字 🦾", "two\nlines\r\n", " ", "null", "\t'%s'{}")
NAMES = ("note", "observation.words")
TEXT = {"dtype": "string", "shape": [1], "names": None}


def said(name: str, frames: Iterable[int]) -> list[str]:
    """The strings of feature `name` at these frames of the whole set."""
    shift = NAMES.index(name)
    return [ODD[(frame + shift) % len(ODD)] for frame in frames]


def speak(root: Path, words: Callable[[str], list[str | None]], names: tuple[str, ...] = NAMES) -> Path:
    """Give the set `root`, in one file of frames, features of text."""
    table, info = pq.read_table(root / DATA), json.loads((root / INFO).read_text())
    for name in names:
        table = table.append_column(name, pa.array(words(name), pa.string()))
        info["features"][name] = TEXT
    pq.write_table(table, root / DATA)
    (root / INFO).write_text(json.dumps(info))
    return root


@pytest.fixture
def spoken(plain: Path, tmp_path: Path) -> Path:
    root = Path(shutil.copytree(plain, tmp_path / "spoken"))
    return speak(root, lambda name: [*said(name, range(sum(LENGTHS)))])


def stored(root: Path, name: str, *folders: str) -> list[Any]:
    """Column `name` of all frames, read by pyarrow; `folders`: where, in order."""
    files = [file for folder in folders or ("data",) for file in sorted((root / folder).rglob("*.parquet"))]
    return [value for file in files for value in pq.read_table(file)[name].to_pylist()]


def run(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    assert main(["dataset", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


FIRST, SECOND, THIRD = range(14), range(14, 23), range(23, 39)
EDITS: dict[str, tuple[list[str], list[int]]] = {
    "drop": (["drop", "--episodes", "1"], [*FIRST, *THIRD]),
    "keep": (["drop", "--keep", "2,0"], [*THIRD, *FIRST]),
    "crop": (["crop", "--start", "3", "--end", "1"], [*FIRST[3:-1], *SECOND[3:-1], *THIRD[3:-1]]),
    "subsample": (["subsample", "--every", "4"], [*FIRST[::4], *SECOND[::4], *THIRD[::4]]),
    "rename-task": (["rename-task", "--to", "wave"], [*FIRST, *SECOND, *THIRD]),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_keeps_them(spoken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], edit: str) -> None:
    words, frames = EDITS[edit]
    result = run(capsys, "edit", words[0], spoken, *words[1:], "--out", tmp_path / "out")
    assert not any("string" in line for line in result["left_out"])
    for name in NAMES:
        assert stored(tmp_path / "out", name) == said(name, frames)
    info = json.loads((tmp_path / "out" / INFO).read_text())
    assert [info["features"][name] for name in NAMES] == [TEXT] * 2
    assert not any(
        "note" in name or "words" in name for name in json.loads((tmp_path / "out/meta/stats.json").read_text())
    )
    assert [one for one in validate(tmp_path / "out") if one.check != "duplicate episode"] == []


@pytest.mark.long
def test_parts_and_what_is_merged_of_them(spoken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = [tmp_path / name for name in ("a", "b")]
    run(capsys, "edit", "split", spoken, "--fractions", "2", "1", "--out", *parts)
    assert stored(parts[0], "note") + stored(parts[1], "note") == said("note", range(39))
    result = run(capsys, "edit", "merge", parts[1], parts[0], "--out", tmp_path / "again")
    assert stored(tmp_path / "again", "observation.words") == said("observation.words", [*THIRD, *FIRST, *SECOND])
    assert not any("string" in line for line in result["left_out"])


@pytest.mark.long
def test_a_merge_has_those_of_all_sets(
    spoken: Path, plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Path(shutil.copytree(plain, tmp_path / "other"))
    speak(other, lambda _: ["there"] * 39, ("note", "mood"))
    result = run(capsys, "edit", "merge", spoken, other, "--out", tmp_path / "out")
    lost = ["observation.words (string): not every set has it", "mood (string): not every set has it"]
    assert [line for line in result["left_out"] if "string" in line] == lost
    assert stored(tmp_path / "out", "note") == said("note", range(39)) + ["there"] * 39
    assert "mood" not in pq.read_table(tmp_path / "out" / DATA).column_names


def test_an_import_takes_them_and_says_so(spoken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(capsys, "import", spoken, "--out", tmp_path / "out")
    assert {"note (text)", "observation.words (text)"} <= set(result["read"])
    assert all(stored(tmp_path / "out", name) == said(name, range(39)) for name in NAMES)
    assert run(capsys, "info", tmp_path / "out")["texts"] == list(NAMES)


@pytest.mark.long
def test_v21_has_them(spoken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "export", spoken, "--format", "lerobot-v2.1", "--out", tmp_path / "v21")["left_out"] == []
    info = json.loads((tmp_path / "v21/meta/info.json").read_text())
    lines = (tmp_path / "v21/meta/episodes_stats.jsonl").read_text().split("\n")[:3]
    for name in NAMES:
        assert stored(tmp_path / "v21", name) == said(name, range(39)) and info["features"][name] == TEXT
        assert not any(name in json.loads(line)["stats"] for line in lines)
    run(capsys, "import", tmp_path / "v21", "--out", tmp_path / "back")
    assert all(stored(tmp_path / "back", name) == said(name, range(39)) for name in NAMES)


@pytest.mark.long
def test_hdf5_has_them(spoken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    h5py = pytest.importorskip("h5py")
    file = tmp_path / "demos.hdf5"
    assert run(capsys, "export", spoken, "--format", "robomimic", "--out", file)["left_out"] == []
    with h5py.File(file) as opened:
        for e, frames in enumerate((FIRST, SECOND, THIRD)):
            for name in NAMES:
                found = [value.decode() for value in opened[f"data/demo_{e}/texts/{name}"][()]]
                assert found == said(name, frames)
    run(capsys, "import", file, "--out", tmp_path / "back")
    assert all(stored(tmp_path / "back", name) == said(name, range(39)) for name in NAMES)


@pytest.mark.long
def test_npz_has_them(spoken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "export", spoken, "--format", "npz", "--out", tmp_path / "npz")["left_out"] == []
    for e, frames in enumerate((FIRST, SECOND, THIRD)):
        arrays = np.load(tmp_path / f"npz/episode_{e:06d}.npz", allow_pickle=False)
        assert all(arrays[f"text.{name}"].tolist() == said(name, frames) for name in NAMES)
    run(capsys, "import", tmp_path / "npz", "--out", tmp_path / "back")
    assert all(stored(tmp_path / "back", name) == said(name, range(39)) for name in NAMES)


STRANGE: dict[str, str | None] = {"null": None, "NUL": "a\0"}


@pytest.mark.long
@pytest.mark.parametrize("what", STRANGE)
def test_what_a_format_cannot_hold_is_named(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    words: list[str | None] = [*said("note", range(38)), STRANGE[what]]
    root = speak(Path(shutil.copytree(plain, tmp_path / "set")), lambda _: words, ("note",))
    for number, form in enumerate(("robomimic", "npz")):
        out = tmp_path / f"{number}.hdf5"
        lost = [f"note (string): it has a {what}, for which the format has no place"]
        assert run(capsys, "export", root, "--format", form, "--out", out)["left_out"] == lost
        run(capsys, "import", out, "--out", tmp_path / f"back-{number}")
        assert "note" not in pq.read_table(tmp_path / f"back-{number}" / DATA).column_names
    assert run(capsys, "export", root, "--format", "lerobot-v2.1", "--out", tmp_path / "v21")["left_out"] == []
    run(capsys, "import", tmp_path / "v21", "--out", tmp_path / "back")
    run(capsys, "edit", "rename-task", tmp_path / "back", "--to", "wave", "--out", tmp_path / "last")
    assert stored(tmp_path / "v21", "note") == stored(tmp_path / "last", "note") == words


def test_a_bag_has_no_place_for_them(spoken: Path) -> None:
    texts, lost = Dataset.open(spoken).texts, "(string): the format has no place for it"
    assert texts.held("nothing") == ([], [f"note {lost}", f"observation.words {lost}"])


def test_they_are_no_observation_and_episodes_have_them(spoken: Path) -> None:
    dataset = Dataset.open(spoken)
    assert set(dataset.interface.observation) == set(dataset.observation) == {"proprio", "objects"}
    assert list(dataset.episode(1).texts["note"]) == said("note", SECOND)
    assert not set(NAMES) & dataset.statistics().keys()


@pytest.mark.long
def test_what_is_no_text_is_left_out_and_found(
    spoken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pq.read_table(spoken / DATA)
    at = table.column_names.index("note")
    pq.write_table(table.set_column(at, "note", pa.array(range(39))).drop_columns(["observation.words"]), spoken / DATA)
    (one, other) = [finding.what for finding in validate(spoken) if finding.check == "features"]
    assert "'note' of text" in one and "'observation.words' of text" in other
    lost = [f"{name} (string): {DATA} has no such text" for name in NAMES]
    for words in (["import"], ["edit", "drop", "--keep", "0,1"], ["edit", "crop", "--start", "1"]):
        result = run(capsys, *words, spoken, "--out", tmp_path / words[-1])
        assert [line for line in result["left_out"] if "string" in line] == lost
    assert run(capsys, "export", spoken, "--format", "npz", "--out", tmp_path / "npz")["left_out"] == lost


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_other_columns_of_strings(
    spoken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: pa.DataType
) -> None:
    table = pq.read_table(spoken / DATA)
    at = table.column_names.index("note")
    pq.write_table(table.set_column(at, "note", table["note"].cast(kind)), spoken / DATA)
    run(capsys, "edit", "drop", spoken, "--episodes", "0", "--out", tmp_path / "out")
    assert stored(tmp_path / "out", "note") == said("note", range(14, 39))
    assert pq.read_table(tmp_path / "out" / DATA)["note"].type == pa.string()


def test_bytes_that_are_no_text_are_refused(plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(shutil.copytree(plain, tmp_path / "set"))
    speak(root, lambda _: ["good"] * 39, ("note",))
    table = pq.read_table(root / DATA)
    broken = pa.array([b"\xff\xfe"] * 39, pa.binary()).view(pa.string())
    pq.write_table(table.set_column(table.column_names.index("note"), "note", broken), root / DATA)
    assert main(["dataset", "edit", "crop", str(root), "--start", "1", "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "note: got bytes that are no text" in line and not (tmp_path / "out").exists()


INTERFACE = Interface({"proprio": ArraySpec((1,))}, ArraySpec((1,)), 10.0)


def episode(*texts: Any, name: str = "note") -> Episode:
    numbers, zeros = {"proprio": np.zeros((2, 1), np.float32)}, np.zeros((2, 1), np.float32)
    given = {name: np.array(texts, object)} if texts else {}
    return Episode(numbers, zeros, zeros[:, 0], True, True, False, "wave", texts=given)


def test_a_writer_takes_whole_episodes_with_them(tmp_path: Path) -> None:
    with EpisodeWriter(tmp_path / "set", INTERFACE, texts=["note"]) as writer:
        writer.write(episode("one", None))
        with pytest.raises(BadInput, match=r"texts: missing; expected those .*; available: note"):
            writer.write(episode())
        with pytest.raises(BadInput, match=r"texts: got \['mood'\]"):
            writer.write(episode("a", "b", name="mood"))
        with pytest.raises(BadInput, match="text 'note': got 3 of them, expected 2 strings"):
            writer.write(episode("a", "b", "c"))
        with pytest.raises(BadInput, match="text 'note': got 7, expected 2 strings"):
            writer.write(episode("a", 7))
        with pytest.raises(BadInput, match=r"text 'note': got '\\ud800', expected"):
            writer.write(episode("a", "\ud800"))
        with pytest.raises(BadInput, match=r"got a step, expected whole episodes \(write\): it has texts"):
            writer.add({"proprio": [0.0]}, [0.0])
    assert stored(tmp_path / "set", "note") == ["one", None]
    for names in ((), ("note", "mood")):
        with pytest.raises(BadInput, match=r"texts: (missing|got).* expected \['note'\]"):
            EpisodeWriter(tmp_path / "set", INTERFACE, texts=names, resume=True)
    with EpisodeWriter(tmp_path / "set", INTERFACE, texts=["note"], resume=True) as writer:
        writer.write(episode("two", ""))
    assert stored(tmp_path / "set", "note") == ["one", None, "two", ""]


@pytest.mark.parametrize("name", ["action", "next.reward", "stamp.action", "task", "timestamp", "observation.state"])
def test_names_that_are_taken(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match="texts: got "):
        EpisodeWriter(tmp_path / "set", INTERFACE, texts=[name])


def test_a_repair_keeps_them(spoken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "edit", "rename-task", spoken, "--to", "wave", "--out", tmp_path / "out")
    (tmp_path / "out/meta/episodes/chunk-000/file-000.parquet").unlink()
    assert repair(tmp_path / "out").rebuilt == [0, 1, 2]
    assert all(stored(tmp_path / "out", name) == said(name, range(39)) for name in NAMES)


def test_a_camera_s_name_goes_before_that_of_a_text(filmed: Path, tmp_path: Path) -> None:
    """Another maker's camera called ``front`` is ``observation.images.front`` here."""
    info = json.loads((filmed / INFO).read_text())
    info["features"]["front"] = info["features"].pop("observation.images.front")
    info["features"]["observation.images.front"] = TEXT
    from robolearn.data.lerobot.features import observed, text_names

    assert text_names(info["features"]) == ()
    assert "observation.images.front (string)" in observed(info["features"])[1]
