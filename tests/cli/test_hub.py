"""`robolearn hub push` and `pull` against a hub on this machine that speaks Hugging Face's protocol."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from huggingface_hub import constants

from robolearn.cli.hub.remote import content_of, with_checksums
from robolearn.cli.main import main
from robolearn.core import ArraySpec, Interface
from robolearn.data import Dataset, EpisodeWriter

pytestmark = pytest.mark.long

TOKEN = "hf_mySecretTokenOfTests"


@dataclass
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


@dataclass
class Hub:
    """The double, and the commands that speak to it."""

    folder: Path
    address: str
    patch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *args: Any, token: str = TOKEN, **env: str) -> Done:
        for name, value in ({"HF_ENDPOINT": self.address, "HF_TOKEN": token} | env).items():
            self.patch.setenv(name, value)
        self.capsys.readouterr()
        code = main(["hub", *map(str, args), "--json"])
        said = self.capsys.readouterr()
        assert not any(one and one in said.out + said.err for one in (TOKEN, token))
        return Done(code, said.out, said.err)

    def result(self, *args: Any) -> dict[str, Any]:
        done = self(*args)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def there(self, kind: str, repo: str, ref: str = "main") -> Path:
        place = self.folder / kind / repo
        return place / json.loads((place / "refs.json").read_text())[ref]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Hub]:
    folder = tmp_path / "hub"
    folder.mkdir()
    # Large files by the older of the hub's two protocols: the double speaks no other. And no token of this machine's.
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(folder / "token"))
    words = [sys.executable, Path(__file__).with_name("hub_double.py"), folder, TOKEN]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield Hub(folder, f"http://127.0.0.1:{server.stdout.readline().strip()}", monkeypatch, capsys)
        server.terminate()


def card_of(folder: Path) -> tuple[dict[str, Any], str]:
    """What stands between the ``---`` of a page, and the text below."""
    _, head, text = (folder / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(head), text


def test_a_policy_goes_there_and_back_with_what_was_measured(hub: Hub, bc: Path, tmp_path: Path) -> None:
    pushed = hub.result("push", bc, "me/lift", "--task", "lift", "--episodes", 8, "--seed", 7)
    there = hub.there("model", "me/lift")
    names = {file.relative_to(there).as_posix() for file in there.rglob("*") if file.is_file()}
    assert names == {".gitattributes", "README.md", "config.json", "model.safetensors"} and pushed["files"] == 3
    head, text = card_of(there)
    success = pushed["measured"]["success"]
    assert success["episodes"] == 8 and head["library_name"] == "robolearn" and "panda" in head["tags"]
    result = head["model-index"][0]["results"][0]
    assert result["metrics"][0]["value"] == round(100 * success["rate"], 2) and result["task"]["name"] == "lift"
    out = tmp_path / "policies" / "lift"
    assert "robolearn evaluate --policy policies/lift --task lift --episodes 8 --seed 7" in text
    assert f"{100 * success['rate']:.1f}% (" in text and "only a simulated world has" in text
    pulled = hub.result("pull", "me/lift", "--out", out)
    assert (
        pulled["kind"] == "model"
        and (out / "model.safetensors").read_bytes() == (bc / "policy" / "model.safetensors").read_bytes()
    )
    # The command of the page, and its figure.
    command = text.split("```sh\n")[1].splitlines()[0].split()[1:]
    hub.patch.chdir(tmp_path)
    hub.capsys.readouterr()
    assert main([*command, "--json"]) == 0
    assert json.loads(hub.capsys.readouterr().out.splitlines()[-1])["success"] == success


def test_a_set_goes_there_and_back_and_leaves_nothing_of_an_older_one(hub: Hub, demos: Path, tmp_path: Path) -> None:
    hub.result("push", demos, "me/demos")
    first = hub.there("dataset", "me/demos")
    head, text = card_of(first)
    assert "LeRobot" in head["tags"] and head["configs"][0]["data_files"] == "data/*/*.parquet"
    solved = int(Dataset.open(demos).success.sum())
    assert f"8 episodes, {solved} of them successful" in text and "`panda`" in text
    assert hub.there("dataset", "me/demos", "v3.0") == first, "LeRobot asks for the version of the format"
    (first / "data" / "chunk-000" / "file-009.parquet").write_bytes(b"of an older, longer set")
    hub.result("push", demos, "me/demos")
    second = hub.there("dataset", "me/demos")
    assert second != first and not (second / "data" / "chunk-000" / "file-009.parquet").exists()
    assert hub.there("dataset", "me/demos", "v3.0") == second
    assert hub.result("pull", "me/demos", "--out", tmp_path / "back")["kind"] == "dataset"
    ours, theirs = Dataset.open(demos), Dataset.open(tmp_path / "back")
    np.testing.assert_array_equal(ours.action, theirs.action)
    assert ours.interface == theirs.interface
    assert not list(tmp_path.glob("back/**/.cache")) and not list(tmp_path.glob(".back*"))


@pytest.mark.parametrize(
    ("lies", "says"),
    [
        (
            {"../../outside.json": {"size": 2}},
            "got a file called '../../outside.json', expected names within",
        ),
        ({"/tmp/outside.json": {}}, "got a file called '/tmp/outside.json'"),
        ({"..\\outside.json": {}}, "expected names within its folder"),
        ({"config.json": {"size": 3}}, "config.json: got"),
        ({"config.json": {"size": 10**18}}, "has room for"),
        ({"config.json": {"blobId": "0" * 40}}, "config.json is not what the hub announced (its git hash differs)"),
        ({"model.safetensors": {"lfs": {"sha256": "0" * 64, "size": 3, "pointerSize": 130}}}, "its sha256 differs"),
    ],
)
def test_a_hub_that_announces_otherwise_is_not_believed(
    hub: Hub, bc: Path, tmp_path: Path, lies: dict[str, Any], says: str
) -> None:
    hub.result("push", bc, "me/lift", "--episodes", 0)
    (hub.folder / "model" / "me" / "lift" / "lies.json").write_text(json.dumps(lies))
    before = set(tmp_path.rglob("*"))
    done = hub("pull", "me/lift", "--out", tmp_path / "there" / "lift")
    assert done.returncode in (1, 2) and says in done.stderr, done.stderr
    assert set(tmp_path.rglob("*")) - before <= {tmp_path / "there", hub.folder / "log"}


def test_a_set_gets_checksums_there_and_is_not_pushed_where_its_own_find_damage(
    hub: Hub, demos: Path, tmp_path: Path
) -> None:
    own, file = tmp_path / "own", "meta/robolearn_checksums.json"
    shutil.copytree(demos, own)
    later = own / "meta" / "later.json"
    hub.result("push", own, "me/summed")
    there = hub.there("dataset", "me/summed")
    sums = json.loads((there / file).read_text())["files"]
    pushed = {str(path.relative_to(there)) for room in ("meta", "data", "videos") for path in there.glob(f"{room}/**/*")
              if path.is_file()}  # fmt: skip
    assert sums.keys() == pushed - {file} and not (own / file).exists()
    for name, of in sums.items():
        content = (there / name).read_bytes()
        digests = [hashlib.sha256(content[at : at + (1 << 20)]).hexdigest() for at in range(0, len(content), 1 << 20)]
        assert of["sha256"] == digests and of["size"] == len(content), name
    hub.result("pull", "me/summed", "--out", tmp_path / "back")
    assert main(["dataset", "validate", str(tmp_path / "back")]) == 0
    assert main(["dataset", "checksums", str(own)]) == 0
    later.write_text('{"a": 1}')  # makes the set's own stale: those that are pushed are not
    hub.result("push", own, "me/summed")
    assert "meta/later.json" in json.loads((hub.there("dataset", "me/summed") / file).read_text())["files"]
    assert main(["dataset", "checksums", str(own)]) == 0
    times = later.stat()
    later.write_text('{"a": 0}')
    os.utime(later, ns=(times.st_atime_ns, times.st_mtime_ns))
    refused = hub("push", own, "me/summed")
    assert refused.returncode == 2 and "other bytes than by" in refused.stderr.replace("\n", " "), refused.stderr


def test_checksums_of_a_set_that_has_some_read_each_file_once(
    demos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(demos, tmp_path / "own")
    assert main(["dataset", "checksums", str(tmp_path / "own")]) == 0
    content, opened, usual = content_of(tmp_path / "own"), Counter[str](), Path.open

    def counted(path: Path, *args: Any, **kwargs: Any) -> Any:
        opened.update([str(path)] if path.suffix == ".parquet" else [])
        return usual(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", counted)
    given = with_checksums(tmp_path / "own", content)
    assert opened and set(opened.values()) == {1}, opened
    sums = json.loads(given.made["meta/robolearn_checksums.json"])["files"]
    assert sums.keys() == content.files.keys() - {"meta/robolearn_checksums.json"}


def test_a_set_with_a_damaged_video_gets_no_name(hub: Hub, tmp_path: Path) -> None:
    interface = Interface({"images.front": ArraySpec((64, 64, 3), "uint8")}, ArraySpec((1,)), 10.0)
    for name, length in (("set", 5), ("short", 3)):
        with EpisodeWriter(tmp_path / name, interface) as writer:
            for t in range(length):
                writer.add({"images.front": np.full((64, 64, 3), 40 * t, np.uint8)}, [0.0])
            writer.end(success=True, task="look")
    video = "videos/observation.images.front/chunk-000/file-000.mp4"
    hub.result("push", tmp_path / "set", "me/look")
    hub.result("pull", "me/look", "--out", tmp_path / "whole")
    short = (tmp_path / "short" / video).read_bytes()
    for content, says in ((short, "3 frames, shorter than its table of 5"), (b"no mp4", "it does not open")):
        (hub.there("dataset", "me/look") / video).write_bytes(content)
        refused = hub("pull", "me/look", "--out", tmp_path / "back")
        assert refused.returncode == 2 and says in refused.stderr.replace("\n", " "), refused.stderr
        assert not (tmp_path / "back").exists() and not list(tmp_path.glob(".back*"))


def test_more_than_is_wanted_is_not_brought(hub: Hub, bc: Path, tmp_path: Path) -> None:
    hub.result("push", bc, "me/lift", "--episodes", 0)
    (hub.folder / "model/me/lift/lies.json").write_text(json.dumps({"config.json": {"size": 3 * 10**7}}))
    for flag, says in (
        ("0.02", "GB, expected at most 0.02 (--max-gb)"),
        ("0", "--max-gb: got 0"),
    ):
        done = hub("pull", "me/lift", "--out", tmp_path / "lift", "--max-gb", flag)
        assert done.returncode == 2 and says in done.stderr.replace("\n", " "), done.stderr
    assert "/resolve/" not in (hub.folder / "log").read_text()


def test_nothing_that_is_unpickled_is_brought(hub: Hub, bc: Path, tmp_path: Path) -> None:
    hub.result("push", bc, "me/lift", "--episodes", 0)
    there = hub.there("model", "me/lift")
    assert "Not measured." in card_of(there)[1]
    for name in ("pytorch_model.bin", "policy.pkl", "optimizer.pt"):
        (there / name).write_bytes(pickle.dumps({"a": 1}))
    hub.result("pull", "me/lift", "--out", tmp_path / "lift")
    assert {file.name for file in (tmp_path / "lift").iterdir()} == {"README.md", "config.json", "model.safetensors"}
    # What is none of ours, or is damaged, gets no name.
    (there / "config.json").write_text('{"format": "somebody\'s"}')
    refused = hub("pull", "me/lift", "--out", tmp_path / "other")
    assert refused.returncode == 2 and "no policy or data set of robolearn" in refused.stderr
    assert not (tmp_path / "other").exists() and not list(tmp_path.glob(".other*"))


def test_what_goes_wrong_is_said_in_a_line_and_never_with_the_token(hub: Hub, bc: Path, tmp_path: Path) -> None:
    def refused(*args: Any, says: str, code: int = 2, **given: str) -> None:
        done = hub(*args, **given)
        assert done.returncode == code and says in done.stderr.replace("\n", " "), done.stderr
        assert done.stderr.strip().count("robolearn: error") == 1 and "Traceback" not in done.stderr

    refused("push", bc, "lift", says="hub: name: got lift, expected OWNER/NAME")
    refused(
        "push", bc, "me/lift", "--episodes", 0, token="", says="got no token, expected HF_TOKEN, or `hf auth login`"
    )
    refused("push", bc, "me/lift", "--episodes", 0, token="hf_another", says="the token is not accepted")
    refused("push", tmp_path / "no", "me/lift", says="got no such folder, expected a run, a policy or a data set")
    refused("push", bc, "me/lift", says="a policy whose task is not stored, expected --task, or --episodes 0")
    far = "http://hub.example.org"
    refused("pull", "me/x", "--out", tmp_path / "x", HF_ENDPOINT=far, says=f"HF_ENDPOINT: got {far}, expected https://")
    refused("pull", "me/x", "--out", tmp_path / "x", says="me/x: got nothing of that name, or it is private")
    refused("pull", "me/x", "--out", tmp_path, says="got something that is there already, expected a new folder")
    refused(
        "pull",
        "me/x",
        "--out",
        tmp_path / "x",
        HF_ENDPOINT="http://127.0.0.1:9",
        code=1,
        says="hub http://127.0.0.1:9, me/x: it cannot be reached: Connection refused",
    )
    refused("pull", "me/broken", "--kind", "model", "--out", tmp_path / "x", code=1, says="me/broken: ")
    log = (hub.folder / "log").read_text()
    assert "/commit/" not in log, "nothing was pushed"


def test_a_policy_and_a_set_of_one_name_are_told_apart(hub: Hub, bc: Path, demos: Path, tmp_path: Path) -> None:
    hub.result("push", bc, "me/lift", "--episodes", 0, "--private")
    assert (hub.folder / "model" / "me" / "lift" / "private").read_text() == "True"
    hub.result("push", demos, "me/lift")
    done = hub("pull", "me/lift", "--out", tmp_path / "x")
    assert done.returncode == 2 and "--kind model or --kind dataset" in done.stderr.replace("\n", " ")
    assert hub.result("pull", "me/lift", "--kind", "dataset", "--out", tmp_path / "x")["kind"] == "dataset"
    shutil.rmtree(tmp_path / "x")
