"""Steps back of the recorder's clock, by the order in which messages lie in the files of a bag.

A reader hands messages out in the order of their times. Where the machine's clock was set back while it recorded, that
order mixes messages of two moments, and times of the same clock in their headers do not show it.
"""

from __future__ import annotations

import itertools
import struct
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]

BACK_S = 0.1  # of several publishers on one topic a message may come this much later than a newer one
_MESSAGE_INDEX = 0x07


def recorded_twice(reader: Any) -> tuple[tuple[int, int], ...]:
    """(earliest, latest) [ns] of times that the recorder's clock went through twice, by the open reader of `rosbags`.

    Of MCAP the index beside each chunk is read, not the chunk; a file without one is passed over.
    """
    storages = getattr(reader.storage, "storages", [reader.storage])
    channels: dict[str, list[Times]] = defaultdict(list)
    for storage in storages:
        topics = {one.id: one.topic for one in storage.connections}
        for channel, times in _mcap(storage) if hasattr(storage, "chunks") else _sqlite(storage):
            channels[topics.get(channel, "")].append(times)
    return tuple(sorted({span for times in channels.values() for span in doubled(np.concatenate(times))}))


def doubled(times: Times) -> list[tuple[int, int]]:
    """The stretches of time that messages at `times` (n,) [ns], in their order, go through twice, each after a step
    back of more than `BACK_S`. Parts that only lie in another order double nothing."""
    steps = np.flatnonzero(np.diff(times) < -round(1e9 * BACK_S)) + 1
    found = []
    for begin, end in itertools.pairwise([*steps, len(times)]):
        before, after = times[:begin], times[begin:end]
        low, high = max(after.min(), before.min()), min(after.max(), before.max())
        if ((before > low) & (before < high)).any() or ((after > low) & (after < high)).any():
            found.append((int(low), int(high)))
    return found


def _mcap(storage: Any) -> Iterator[tuple[int, Times]]:
    """(channel, times of its messages as they lie in the file) of each chunk."""
    for chunk in sorted(storage.chunks, key=lambda one: one.chunk_start_offset):
        storage.bio.seek(chunk.chunk_start_offset + chunk.chunk_length)
        index, at = storage.bio.read(chunk.message_index_length), 0
        while at + 15 <= len(index):
            kind, size, channel, length = struct.unpack_from("<BQHI", index, at)
            if kind == _MESSAGE_INDEX and length % 16 == 0:
                pairs = np.frombuffer(index, "<i8", length // 8, at + 15).reshape(-1, 2)
                yield channel, pairs[np.argsort(pairs[:, 1], kind="stable"), 0]
            at += 9 + size


def _sqlite(storage: Any) -> Iterator[tuple[int, Times]]:
    """(topic, times of its messages in the order of arrival)."""
    times: dict[int, list[int]] = defaultdict(list)
    for topic, time in storage.dbconn.execute("SELECT topic_id, timestamp FROM messages ORDER BY id"):
        times[topic].append(time)
    for topic, found in times.items():
        yield topic, np.array(found, np.int64)
