"""RLDS as tensorflow_datasets writes it, without either (Ramos et al., *RLDS*, 2021); Open X-Embodiment is in it.

    <folder>/features.json            names, shapes and kinds of numbers
             <name>-<split>.tfrecord-<i>-of-<n>
    a record = one episode = tf.train.Example: feature → list of bytes, floats or integers, T times each, in a row
      steps/action, steps/reward, steps/is_terminal …
      steps/language_instruction      the task, of each step; text of other names comes under its own, without folders
      steps/observation/<name>        ``state`` and ``proprio`` are ``proprio``, colour pictures are cameras

    length (8 bytes) | crc of it (4) | record | crc of it (4);    crc′ = (crc32c ≫ 15 | crc32c ≪ 17) + a282ead8
    within a record: (field ≪ 3 | 2, length) | that many bytes, of which messages are nested

Names are without ``steps/`` here, as for ``--map``. `--filter` takes one split, such as train. RLDS leaves the action
of the last step undefined, most sets have one: it is kept.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput
from robolearn.core.installation import install_command
from robolearn.data.convert.formats.arrays import Head, NamedArrays, Pictures, decoded, episodes_of
from robolearn.data.convert.formats.config import ARRAYS, FormatConfig
from robolearn.data.convert.options import Account, ReadOptions
from robolearn.data.convert.source import EpisodeSource
from robolearn.data.lerobot.features import IMAGES, cast, text_names
from robolearn.io.json_files import parse_json
from robolearn.io.varint import varint

STEPS, SEEN = "steps/", "observation/"
_PROPRIO = ("observation/state", "observation/proprio")
_WORDS = ("language_instruction", "observation/natural_language_instruction")
_OWN = ("reward", "is_terminal", "discount", "is_first", "is_last")
TEXT = Head((), np.dtype(str))
_RECORD = 1 << 31  # bytes of an episode: protobuf reads no more
PIECE = 1 << 20  # bytes that are read at once
BYTES = 1  # the field of a feature that has bytes; 2 has floats, 3 integers

_Place = tuple[int, int]  # the bytes of a file at which something begins, and ends


def here(path: Path) -> bool:
    return path.is_dir() and (path / "features.json").is_file() and any(path.glob("*.tfrecord-*"))


def read(path: Path, options: ReadOptions) -> EpisodeSource:
    """The episodes of the folder `path`, in the order of its files. Raises `BadInput`: no episodes, a damaged record,
    or a feature of another length or shape; episode and feature are named."""
    account, described = Account(), _described(path)
    shards = _Shards(_records(path, options, account), described, path.resolve().parent.name.replace("_", " "))
    heads = {name.removeprefix(STEPS): head for name, head in described.items() if name.startswith(STEPS)}
    for name, head in heads.items():
        if head.is_picture and min(head.shape) < 0:  # of a size that only the pictures say
            heads[name] = Head(next(shards.pictures(0, name)).shape, head.dtype)
    facts = {name for name in (*_OWN, shards.words or "") if heads.pop(name, None) is not None}
    if shards.words:
        account.became("task", [shards.words])
    for name, feature in {"reward": "reward", "is_terminal": "terminated"}.items():
        if name in facts:
            account.became(feature, [name])
    account.left_out += [f"{name}: no part of an episode here" for name in _OWN[2:] if name in facts]
    texts: dict[str, str] = {}
    for name in sorted(shards.texts & heads.keys()):
        word = name.rsplit("/", 1)[-1]
        if text_names({word: {"dtype": "string", "shape": [1]}}):
            texts.setdefault(word, name)
    account.left_out += [name for name in described if not name.startswith(STEPS)]
    usual = {name: "proprio" for name in _PROPRIO if name in heads}
    usual |= {
        name: IMAGES + re.sub(r"_(rgb|image)$", "", name.removeprefix(SEEN).replace("/", "_"))
        for name, head in heads.items() if head.is_picture and name.startswith(SEEN)
    }  # fmt: skip
    found = NamedArrays(
        f"RLDS folder {path}", [record.name for record in shards.records], heads, shards.numbers, shards.pictures,
        usual, "action", shards.task, reward="reward" if "reward" in facts else "", texts=texts, strings=shards.strings,
        ends=shards.ends,
    )  # fmt: skip
    return episodes_of(found, options, account)


class _Shards:
    """The features of the steps of `records`, by their names without ``steps/``; pictures are read one by one.

    Attributes:
      words: the feature that is the task in words, or None.
      texts: the features that are text, one for each step.
    """

    def __init__(self, records: list[_Record], described: Mapping[str, Head], folder: str) -> None:
        self.records, self._described, self._folder = records, described, folder
        self.words = next((name for name in _WORDS if STEPS + name in described), None)
        self.texts = {name.removeprefix(STEPS) for name, head in described.items() if head == TEXT}
        self._newest: tuple[int, dict[str, _Place]] | None = None

    def _place(self, number: int, name: str) -> _Place:
        newest = self._newest  # cameras are read beside each other
        if newest is None or newest[0] != number:
            newest = self._newest = (number, self.records[number].features())
        if STEPS + name not in newest[1]:
            raise BadInput(self.records[number].name, got=f"no {name}", expected="it", available=sorted(newest[1]))
        return newest[1][STEPS + name]

    def numbers(self, number: int, name: str) -> NDArray:
        """(T, …)."""
        head, where = self._described[STEPS + name], self.records[number].name
        flat = self.records[number].numbers(self._place(number, name))
        if flat is None:
            raise BadInput(f"{where}: {name}", got="bytes", expected=f"numbers ({head})")
        array = np.asarray(flat, np.float64 if head.dtype.kind == "f" else np.int64)
        size = int(np.prod(head.shape)) if head.shape else 1
        if array.size % size:
            raise BadInput(f"{where}: {name}", got=f"{array.size} numbers", expected=f"{head} for each step")
        kept, wrong = cast(array, head.dtype)
        if wrong.any():
            raise BadInput(f"{where}: {name}", got=f"{array[wrong][0]}", expected=f"numbers that {head.dtype} holds")
        return kept.reshape(-1, *head.shape)

    def pictures(self, number: int, name: str) -> Pictures:
        """Decoded, one by one."""
        for t, content in enumerate(self.records[number].contents(self._place(number, name))):
            yield decoded(content, f"{self.records[number].name}: {name} at frame {t}")

    def strings(self, number: int, name: str) -> list[str]:
        """(T,) text."""
        place = self._place(number, name)
        if self.records[number].numbers(place):
            raise BadInput(f"{self.records[number].name}: {name}", got="numbers", expected="text for each step")
        return [one.decode("utf-8", "replace") for one in self.records[number].contents(place)]

    def task(self, number: int) -> list[str]:
        """In words, for each step; by the name of the folder above where no feature is."""
        said = [one.strip() or self._folder for one in self.strings(number, self.words)] if self.words else []
        return said or [self._folder]

    def ends(self, number: int) -> tuple[bool | None, bool | None]:
        """(None, whether it terminated)."""
        known = STEPS + "is_terminal" in self._described
        return None, bool(self.numbers(number, "is_terminal")[-1:].any()) if known else None


def _described(path: Path) -> dict[str, Head]:
    """Feature → one frame of it, of those in ``features.json``; pictures in their size when decoded."""
    file = path / "features.json"
    try:
        found = dict(_flat(parse_json(file), ""))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{file}", got=f"unreadable ({error!r})", expected="features of tensorflow_datasets") from None
    if not any(name.startswith(STEPS) for name in found):
        raise BadInput(f"{file}", got="no steps", expected="episodes of steps", available=found)
    return found


def _flat(feature: Mapping[str, Any], name: str) -> Iterator[tuple[str, Head]]:
    if "featuresDict" in feature:
        for key, inner in feature["featuresDict"]["features"].items():
            yield from _flat(inner, f"{name}/{key}" if name else key)
    elif "sequence" in feature and isinstance(feature["sequence"].get("feature"), dict) and name == STEPS[:-1]:
        yield from _flat(feature["sequence"]["feature"], name)
    elif "tensor" in feature or "image" in feature:
        kept = feature.get("tensor") or feature["image"]
        plain = kept.get("encoding", "none") == "none"
        shape = tuple(int(edge) for edge in kept["shape"].get("dimensions", ()))
        ragged = "tensor" in feature and any(edge < 1 for edge in shape)
        kind = kept["dtype"] if plain and not ragged and kept["dtype"] not in ("string", "object") else "object"
        if "tensor" in feature and kept["dtype"] == "string" and not shape:
            yield name, TEXT
        else:
            yield name, Head(shape, np.dtype({"bfloat16": "float32"}.get(kind, kind)))
    else:
        yield name, TEXT if "text" in feature else Head((), np.dtype(object))


@dataclass(frozen=True)
class _Record:
    """Where an episode lies."""

    file: Path
    offset: int
    size: int
    name: str

    def features(self) -> dict[str, _Place]:
        """Feature → its message in the file. Raises `BadInput`: the record is damaged."""
        crc, _ = _libraries()
        found: dict[str, _Place] = {}
        with self.file.open("rb") as file:
            file.seek(self.offset)
            value, left = 0, self.size
            while content := file.read(min(left, PIECE)):
                value, left = crc.extend(value, content), left - len(content)
            stored = file.read(4)
            if left or len(stored) < 4:
                raise BadInput(self.name, got="a torn record", expected=f"{self.size} bytes")
            if _masked(value) != struct.unpack("<I", stored)[0]:
                raise BadInput(self.name, got="a record whose checksum is another", expected="what was written")
            for _, features in self._fields(file, (self.offset, self.offset + self.size)):
                for _, entry in self._fields(file, features):
                    parts = dict(self._fields(file, entry))  # 1: its name, 2: its feature
                    nothing = (self.offset, self.offset)
                    found[_bytes(file, parts.get(1, nothing)).decode("utf-8", "replace")] = parts.get(2, nothing)
        return found

    def numbers(self, place: _Place) -> Any:
        """The floats or integers of the feature at `place`, none where it has nothing; None where it has bytes."""
        with self.file.open("rb") as file:
            if any(kind == BYTES for kind, _ in self._fields(file, place)):
                return None
            try:
                feature = _libraries()[1].FromString(_bytes(file, place))
            except Exception as error:
                raise BadInput(self.name, got=f"no tf.train.Example ({error})") from None
        kind = feature.WhichOneof("kind")
        return getattr(feature, kind).value if kind else ()

    def contents(self, place: _Place) -> Iterator[bytes]:
        """The bytes of the feature at `place`, read one after the other; nothing where it has numbers."""
        with self.file.open("rb") as file:
            for kind, values in self._fields(file, place):
                if kind == BYTES:
                    for _, value in self._fields(file, values):
                        yield _bytes(file, value)

    def _fields(self, file: BinaryIO, place: _Place) -> Iterator[tuple[int, _Place]]:
        """The fields of the message at `place`: number and place, of a kind that has a length, as all here have."""
        at, end = place
        while at < end:
            file.seek(at)
            head = file.read(min(20, end - at))
            try:
                key, size = varint(head)
                length, size = varint(head, size)
            except ValueError:
                key, length, size = 0, 0, 0
            at += size + length
            if key & 7 != 2 or at > end:
                raise BadInput(self.name, got="no tf.train.Example (a field of another kind, or beyond its message)")
            yield key >> 3, (at - length, at)


def _bytes(file: BinaryIO, place: _Place) -> bytes:
    file.seek(place[0])
    return file.read(place[1] - place[0])


def _records(path: Path, options: ReadOptions, account: Account) -> list[_Record]:
    """The episodes of the split that `options` name, of all without one; of each the head is read and nothing else."""
    shards: dict[str, list[Path]] = {}
    for file in sorted(path.glob("*.tfrecord-*")):
        if found := re.fullmatch(r"(?:.*-)?([^-]+)\.tfrecord-\d+-of-\d+", file.name):
            shards.setdefault(found[1], []).append(file)
    split = options.filter
    if split and split not in shards:
        raise BadInput("--filter", got=split, available=shards, expected="a split of the folder")
    for name, files in shards.items():
        if split and name != split:
            count = f"{len(files)} file{'s' * (len(files) > 1)}"
            account.left_out.append(f"split {name} ({count}), of which --filter is not")
    records: list[_Record] = []
    for file in shards[split] if split else [file for files in shards.values() for file in files]:
        try:
            for record in _heads(file, len(records)):
                records.append(record)
        except BadInput as error:
            if not options.skip_bad:
                raise
            account.left_out.append(f"{error}: the rest of {file.name}")
    if not records:
        raise BadInput(f"RLDS folder {path}", got="no episodes", expected="files .tfrecord-<i>-of-<n>")
    return records


def _heads(file: Path, first: int) -> Iterator[_Record]:
    """Where the episodes of `file` lie, the first of which has the number `first`."""
    crc, _ = _libraries()
    end, at = file.stat().st_size, 0
    with file.open("rb") as content:
        while at < end:
            content.seek(at)
            head, name = content.read(12), f"episode {first} ({file.name})"
            if len(head) < 12 or _masked(crc.value(head[:8])) != struct.unpack("<I", head[8:])[0]:
                raise BadInput(name, got=f"no record at byte {at}", expected="one")
            size, there = struct.unpack("<Q", head[:8])[0], end - at - 16
            if size > min(_RECORD, there):
                raise BadInput(name, got=f"{size} bytes, of which {there} are there", expected="all, and below 2 GiB")
            yield _Record(file, at + 12, size, name)
            at, first = at + 16 + size, first + 1


def _masked(value: int) -> int:
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


@lru_cache(maxsize=1)
def _libraries() -> tuple[Any, Any]:
    """(crc32c, the class of tf.train.Feature)."""
    try:
        import google_crc32c
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as error:
        raise BadInput("RLDS", got=f"no {error.name}", expected="it", hint=install_command("formats")) from None
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="rlds", syntax="proto3")
    once, many = kinds.LABEL_OPTIONAL, kinds.LABEL_REPEATED

    def of(name: str) -> dict[str, Any]:
        return {"type": kinds.TYPE_MESSAGE, "type_name": f".rlds.{name}"}

    lists = {"Bytes": kinds.TYPE_BYTES, "Float": kinds.TYPE_FLOAT, "Int64": kinds.TYPE_INT64}
    for name, kind in lists.items():
        file.message_type.add(name=f"{name}List").field.add(name="value", number=1, type=kind, label=many)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(lists, 1):
        one = {"name": f"{name.lower()}_list", "number": number, "label": once, "oneof_index": 0}
        feature.field.add(**one, **of(f"{name}List"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return google_crc32c, message_factory.GetMessageClass(pool.FindMessageTypeByName("rlds.Feature"))


FORMAT = FormatConfig(
    "rlds", "a folder of tensorflow_datasets with episodes (RLDS, Open X-Embodiment)", here, read,
    needs_extra="formats", options=(*ARRAYS, "filter"),
)  # fmt: skip
