"""The hub, by `huggingface_hub`: contents to push, errors in one line, and a token that is never shown.

A policy is ``config.json`` and ``model.safetensors``; a data set its ``meta/``, ``data/`` and ``videos/`` as LeRobot
has them; nothing else beside them, and nothing that is unpickled when it is read, is ever pushed or pulled.

The token is that of ``HF_TOKEN`` or of ``hf auth login``; it is no flag, which other users of the machine could read.
The address is ``HF_ENDPOINT``, by default https://huggingface.co.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from json import JSONDecodeError
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from robolearn.core import BadInput, RobolearnError
from robolearn.io.hashes import git_blob, sha256_file

CARD = "README.md"
PULLED = ("*.json", "*.jsonl", "*.safetensors", "*.parquet", "*.mp4", CARD)  # suffixes that are taken from a hub
_ROOMS, _SUFFIXES = ("meta", "data", "videos"), {".json", ".jsonl", ".parquet", ".mp4"}


@dataclass(frozen=True)
class Content:
    """Files and what they are.

    Attributes:
      kind: ``"model"`` or ``"dataset"``, as the hub has it.
      files: path there → file here.
      made: path there → content that has no file here.
    """

    kind: str
    files: dict[str, Path]
    made: dict[str, bytes] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(path.stat().st_size for path in self.files.values()) + sum(map(len, self.made.values()))


def content_of(path: Path) -> Content:
    """The content of `path`: a run folder, a checkpoint folder, or a data set. Raises `BadInput`: none of them, or a
    damaged one: a policy that does not load, a table that does not open, a video that is not as long as its episodes.
    """
    if (path / "meta" / "info.json").is_file():
        from robolearn.data.convert.source import open_numbers

        open_numbers(path)
        _check_videos(path)
        found = sorted(
            file for room in _ROOMS for file in (path / room).rglob("*")
            if file.is_file() and not file.is_symlink() and file.suffix in _SUFFIXES and not file.name.startswith(".")
        )  # fmt: skip
        return Content("dataset", {file.relative_to(path).as_posix(): file for file in found})
    from policies.storage.checkpoint import load_policy
    from policies.storage.config_file import CONFIG, WEIGHTS, policy_folder

    if not path.is_dir():
        raise BadInput(f"hub push: {path}", got="no such folder", expected="a run, a policy or a data set")
    folder = policy_folder(path)
    load_policy(folder).check_whole(f"hub push: {path}")
    return Content("model", {name: folder / name for name in (CONFIG, WEIGHTS)})


def with_checksums(path: Path, content: Content) -> Content:
    """`content` of the data set `path` with checksums of its files as they are, in place of older ones: readers over
    HTTP look for flipped bits by them. Raises `BadInput`: the set's own checksums say that a file is damaged."""
    from robolearn.data.lerobot.checksums import CHECKSUMS_PATH, FileSums, blocks_of, written_as
    from robolearn.data.lerobot.layout import json_bytes
    from robolearn.data.validate.checksums import compared
    from robolearn.data.validate.opened import Tolerances, opened

    sums: dict[Path, FileSums] = {}

    def summed(file: Path) -> tuple[str, ...]:  # each file is read once
        if file not in sums:
            facts = file.stat()
            sums[file] = FileSums(facts.st_size, facts.st_mtime_ns, tuple(blocks_of(file)))
        return sums[file].sha256

    damage, _ = compared(opened(path), Tolerances(), summed)
    if damage:
        raise BadInput(f"data set {path}, {damage[0].where}: {damage[0].what}")
    files = {name: file for name, file in content.files.items() if name != CHECKSUMS_PATH}
    for file in files.values():
        summed(file)
    found = {name: sums[file] for name, file in files.items()}
    return replace(content, files=files, made={CHECKSUMS_PATH: json_bytes(written_as(found))})


def _check_videos(root: Path) -> None:
    """Raise `BadInput` for the first fault of a video that shows without decoding it."""
    from robolearn.data.validate.opened import Tolerances, opened
    from robolearn.data.validate.videos import videos

    for defect in videos(opened(root), Tolerances(decode=False)):
        raise BadInput(f"data set {root}, {defect.where}: {defect.what}")


HOME = "https://huggingface.co"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
KINDS = ("model", "dataset")
_LIBRARIES = ("httpx", "huggingface_hub", "requests", "urllib3", "hf_xet")


def check_name(repo: str) -> None:
    """Raise `BadInput` unless `repo` is ``OWNER/NAME``."""
    if not NAME.fullmatch(repo):
        raise BadInput("hub: name", got=repo, expected="OWNER/NAME, e.g. me/lift-fr3")


def open_hub(*, write: bool) -> Any:
    """`huggingface_hub.HfApi` at the hub; to `write` needs a token. Raises `BadInput`: no token, or a hub without TLS
    elsewhere than on this machine."""
    from huggingface_hub import HfApi, get_token

    endpoint = os.environ.get("HF_ENDPOINT") or HOME
    address = urlsplit(endpoint)
    if address.scheme != "https" and address.hostname not in LOOPBACK:
        raise BadInput("HF_ENDPOINT", got=endpoint, expected="https://, or this machine: the token is sent there")
    if write and not get_token():
        raise BadInput(f"hub {endpoint}", got="no token", expected="HF_TOKEN, or `hf auth login`")
    return HfApi(endpoint=endpoint, library_name="robolearn")


@contextmanager
def spoken(hub: Any, repo: str) -> Iterator[None]:
    """Errors of the hub and of the way to it as `RobolearnError`, without the token."""
    from huggingface_hub import get_token
    from huggingface_hub.utils import HfHubHTTPError

    try:
        yield
    except RobolearnError:
        raise
    except Exception as error:
        if not type(error).__module__.startswith(_LIBRARIES) and not isinstance(error, OSError | JSONDecodeError):
            raise
        status = getattr(getattr(error, "response", None), "status_code", None)
        why = {
            401: "the token is not accepted, or there is none",
            403: "the token may not do that",
            404: "there is nothing of that name, or it is private and the token may not see it",
        }.get(status or 0)
        why = "its answer is no hub's" if isinstance(error, JSONDecodeError) else why
        text = why or " ".join(re.sub(r"\[Errno -?\d+\]", "", str(error)).split()) or type(error).__name__
        if status is None and not isinstance(error, JSONDecodeError):
            text = f"it cannot be reached: {text}"
        text = text.replace(get_token() or "\0", "…")[:300]
        kind = BadInput if isinstance(error, HfHubHTTPError) and status in (401, 403, 404) else RobolearnError
        raise kind(f"hub {hub.endpoint}, {repo}: {text}") from None


def push(hub: Any, repo: str, content: Content, card: str, *, private: bool, message: str) -> str:
    """Let `repo` hold `content` and `card` and nothing else, in one commit; the address of its page."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    kind = content.kind
    with spoken(hub, repo):
        hub.create_repo(repo, repo_type=kind, private=private, exist_ok=True)
        held = {name: str(path) for name, path in content.files.items()}
        files: dict[str, Any] = {"README.md": card.encode(), **held, **content.made}
        there = set(hub.list_repo_files(repo, repo_type=kind)) - {".gitattributes"}
        # A set that has become shorter must not keep old files: readers take all that are in data/.
        changes: list[Any] = [CommitOperationDelete(path_in_repo=name) for name in sorted(there - files.keys())]
        changes += [CommitOperationAdd(path_in_repo=name, path_or_fileobj=data) for name, data in files.items()]
        hub.create_commit(repo, operations=changes, commit_message=message, repo_type=kind)
        if kind == "dataset":
            _tag(hub, repo)
    return f"{hub.endpoint}/{'datasets/' if kind == 'dataset' else ''}{repo}"


def _tag(hub: Any, repo: str) -> None:
    """Mark the newest state with the version of the format, by which LeRobot asks for a set."""
    from huggingface_hub.utils import HfHubHTTPError

    from robolearn.data.lerobot.layout import VERSION

    try:
        hub.delete_tag(repo, tag=VERSION, repo_type="dataset")
    except HfHubHTTPError as error:
        if getattr(error.response, "status_code", None) != 404:
            raise
    hub.create_tag(repo, tag=VERSION, repo_type="dataset")


def kind_of(hub: Any, repo: str) -> str:
    """``"model"`` or ``"dataset"``, the kind of `repo`; raises `BadInput` where it is neither, or both."""
    with spoken(hub, repo):
        found = [kind for kind in KINDS if hub.repo_exists(repo, repo_type=kind)]
    if len(found) != 1:
        got = "both a policy and a data set of that name" if found else "nothing of that name, or it is private"
        expected = "--kind model or --kind dataset" if found else "a name that is there, and a token that may see it"
        raise BadInput(f"hub {hub.endpoint}, {repo}", got=got, expected=expected)
    return found[0]


def pull(
    hub: Any, repo: str, kind: str, patterns: tuple[str, ...], revision: str, folder: Path, most_gb: float
) -> None:
    """Bring those files of `repo` that match `patterns` to `folder`, each as it was announced.

    Raises:
      BadInput: a file that would lie outside `folder`, or more than `most_gb` in all.
      RobolearnError: no room for them, or one that is not what was announced.
    """
    with spoken(hub, repo):
        there = hub.repo_info(repo, repo_type=kind, revision=revision or None, files_metadata=True)
        files = [file for file in there.siblings or () if any(fnmatch(file.rfilename, one) for one in patterns)]
        for file in files:
            _check_place(file.rfilename, repo)
        size, free = sum(file.size or 0 for file in files), shutil.disk_usage(folder.parent).free
        if size > free:
            raise RobolearnError(f"{repo} has {size / 1e6:.0f} MB, {folder.parent} has room for {free / 1e6:.0f} MB")
        if size > most_gb * 1e9:
            raise BadInput(f"hub: {repo}", got=f"{size / 1e9:.3g} GB", expected=f"at most {most_gb:g} (--max-gb)")

        def bring(file: Any) -> None:
            place = Path(hub.hf_hub_download(
                repo, file.rfilename, repo_type=kind, revision=there.sha, local_dir=folder
            ))  # fmt: skip
            got, wanted = place.stat().st_size, file.size
            if wanted is not None and got != wanted:
                raise RobolearnError(f"{repo}: {file.rfilename}: got {got} bytes, expected {wanted}")
            if file.lfs is not None:
                differs = "sha256" if sha256_file(place) != file.lfs.sha256 else ""
            else:
                differs = "git hash" if file.blob_id and git_blob(place.read_bytes()) != file.blob_id else ""
            if differs:
                raise RobolearnError(f"{repo}: {file.rfilename} is not what the hub announced (its {differs} differs)")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(bring, files))


def _check_place(name: str, repo: str) -> None:
    """Raise `BadInput` unless the path `name` is of a file below any folder on any system."""
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in name or ":" in name or "\0" in name:
        raise BadInput(f"hub: {repo}", got=f"a file called {name!r}", expected="names within its folder")
