"""The link: each record arrives once and in order, however often the line or the learner breaks."""

from __future__ import annotations

import random
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from robolearn.core import BadInput
from robolearn.data.replay import End, Record, ReplayStep
from robolearn.hil.agent import DoubleBufferedPolicy
from robolearn.hil.link import Link
from robolearn.hil.wire import messages as m

sys.path.insert(0, str(Path(__file__).parent))
from classroom import SCHEMA, Classroom, client_of, desk, make_base, make_lesson, play


def records(count: int, length: int = 7) -> list[Record]:
    """Steps and ends of episodes of `length` steps."""
    rng, out, episode = np.random.default_rng(0), [], 0
    while len(out) < count:
        for index in range(length):
            seen = {"proprio": rng.normal(size=2).astype(np.float32)}
            out.append(ReplayStep(episode, index, seen, rng.uniform(-1, 1, 1).astype(np.float32), 0.0, False))
        out.append(End(episode, length, {"proprio": np.zeros(2, np.float32)}, False, True, False))
        episode += 1
    return out[:count]


class Cutter:
    """A TCP proxy that cuts connections after a random number of bytes, in the middle of whatever is said."""

    def __init__(self, port: int, seed: int) -> None:
        self._to, self._rng = port, random.Random(seed)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port, self.cuts, self.gentle = self._server.getsockname()[1], 0, False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                return
            left = [self._rng.randint(300, 6000)]
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(a, b, left), daemon=True).start()

    def _pump(self, a: socket.socket, b: socket.socket, left: list[int]) -> None:
        try:
            while part := a.recv(200):
                left[0] -= len(part)
                if left[0] < 0 and not self.gentle:
                    b.sendall(part[: len(part) // 2])
                    self.cuts += 1
                    break
                b.sendall(part)
        except OSError:
            pass
        for end in (a, b):
            end.close()

    def close(self) -> None:
        self._server.close()


def until(ready: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)


def start(link: Link) -> None:
    config = link.open(lambda: False)
    assert config is not None
    link.start(DoubleBufferedPolicy(lambda: config.settings.build(make_base(), seed=config.seed)))


@pytest.mark.long
def test_records_arrive_once_over_a_line_that_breaks(tmp_path: Path) -> None:
    room = Classroom(tmp_path, make_lesson("realtime", utd=0.01), env_steps=10**6)
    cutter, sent = Cutter(room.port, seed=1), records(300)
    try:
        with desk(tmp_path / "outbox", cutter.port) as ours:
            start(ours.link)
            for record in sent:
                ours.outbox.append(record)
                ours.link.notify()
                time.sleep(0.002)
                if cutter.cuts > 15:
                    cutter.gentle = True
            cutter.gentle = cutter.cuts > 3
            until(lambda: cutter.cuts > 3)
            cutter.gentle = True
            until(lambda: ours.link.acknowledged == len(sent))
            assert cutter.cuts > 3
            log = room.receiver.actors["actor"].log
            assert log.path.read_bytes() == ours.outbox.log.path.read_bytes()
            until(lambda: room.learner.experience.taken["actor"] == len(sent))
    finally:
        cutter.close()
        room.stop()


@pytest.mark.long
def test_a_learner_that_comes_back_says_what_it_expects_next(tmp_path: Path) -> None:
    sent = records(60)
    room = Classroom(tmp_path, make_lesson("realtime", utd=0.01), env_steps=10**6)
    port = room.port
    with desk(tmp_path / "outbox", port) as ours:
        start(ours.link)
        for part in range(2):
            for record in sent[30 * part : 30 * part + 20]:
                ours.outbox.append(record)
            ours.link.notify()
            until(lambda part=part: ours.link.acknowledged == 30 * part + 20)
            room.stop()
            for record in sent[30 * part + 20 : 30 * part + 30]:  # nobody listens: they wait on the disk
                ours.outbox.append(record)
                ours.link.notify()
            until(lambda: not ours.link.alive)
            room = Classroom(tmp_path, make_lesson("realtime", utd=0.01), env_steps=10**6, port=port)
            until(lambda part=part: ours.link.acknowledged == 30 * part + 30)
        until(lambda: ours.link.alive)
        assert ours.link.connections == 3
        assert [SCHEMA.encode(r) for r in room.receiver.actors["actor"].log.read()] == [SCHEMA.encode(r) for r in sent]
    room.stop()


@pytest.mark.long
def test_the_actor_holds_while_the_learner_is_dead_and_goes_on_after(tmp_path: Path) -> None:
    room, played = Classroom(tmp_path, make_lesson("realtime"), env_steps=60), []
    port = room.port
    thread = threading.Thread(target=lambda: played.append(play(tmp_path / "outbox", port, helper=None)))
    thread.start()
    until(lambda: room.learner.experience.taken.get("actor", 0) > 15)
    room.stop()
    outbox, sizes = tmp_path / "outbox" / "actor.transitions", [-1]

    def rests() -> bool:
        time.sleep(1.0)  # twenty control steps
        sizes.append(outbox.stat().st_size)
        return sizes[-1] == sizes[-2]

    until(rests)
    assert isinstance(list(_read(outbox))[-1], End)  # the episode has ended, and the next does not begin
    room = Classroom(tmp_path, make_lesson("realtime"), env_steps=60, port=port)
    thread.join(30)
    room.close()
    assert played and played[0].link.connections == 2 and room.learner.experience.env_steps >= 60


def _read(path: Path) -> list[Record]:
    from robolearn.io.append_only import records as read

    return [SCHEMA.decode(content) for content in read(path)]


def test_a_second_process_by_one_name_ends_the_first(tmp_path: Path) -> None:
    room = Classroom(tmp_path, make_lesson("realtime"), env_steps=10**6)
    with desk(tmp_path / "one", room.port) as first, desk(tmp_path / "two", room.port) as second:
        start(first.link)
        start(second.link)
        with pytest.raises(BadInput, match="another process"):
            first.link.synchronize(lambda: False)
        assert second.link.hold(lambda: False)
    room.stop()


def test_who_does_not_belong_is_told_why(tmp_path: Path) -> None:
    room = Classroom(tmp_path, make_lesson("realtime"), env_steps=10**6)

    def opened(folder: str, **other: str) -> None:
        with desk(tmp_path / folder, room.port, **other) as ours:
            start(ours.link)

    opened("one")
    with pytest.raises(BadInput, match="policy folder"):
        opened("two", policy="another")
    with pytest.raises(BadInput, match="actor's name"):
        opened("two", name="../x")
    (tmp_path / "one" / "actor.run").write_text("an older run\n")
    with pytest.raises(BadInput, match="another --name"):
        opened("one")
    with desk(tmp_path / "four", room.port) as ours:
        ours.link._interface = "another"
        with pytest.raises(BadInput, match="interface of the world"):
            start(ours.link)
    # An outbox that was lost: numbers that the learner knows would come again.
    with desk(tmp_path / "three", room.port, name="third") as ours:
        start(ours.link)
        ours.outbox.append(records(1)[0])
        ours.link.notify()
        until(lambda: ours.link.acknowledged == 1)
    (tmp_path / "three" / "third.transitions").unlink()
    with pytest.raises(BadInput, match="its outbox has 0"):
        opened("three", name="third")
    room.stop()


def test_who_is_refused_for_its_name_ends_nobody_elses_session(tmp_path: Path) -> None:
    """A second actor with a folder of its own and the name of one that is at work: the first goes on."""
    room = Classroom(tmp_path, make_lesson("realtime"), env_steps=10**6)
    first, second = records(3)[:2]
    with desk(tmp_path / "one", room.port, name="a") as ours:
        start(ours.link)
        ours.outbox.append(first)
        ours.link.notify()
        until(lambda: ours.link.acknowledged == 1)
        with desk(tmp_path / "two", room.port, name="a") as theirs, pytest.raises(BadInput, match="another name"):
            start(theirs.link)
        ours.outbox.append(second)
        ours.link.notify()
        until(lambda: ours.link.acknowledged == 2)
    room.stop()


def test_records_that_are_none_are_refused_and_nothing_is_stored(tmp_path: Path) -> None:
    room = Classroom(tmp_path, make_lesson("realtime"), env_steps=10**6)
    client = client_of(room.port)(10**6)
    hello = {"actor": "odd", "interface": _hash(), "policy": "a policy"}
    session = client.call(m.CONNECT, m.CONNECT.request(protocol=m.PROTOCOL, stored=0, **hello), 5.0).session
    good = [SCHEMA.encode(r) for r in records(9)]

    def send(first: int, *contents: bytes, session: int = session) -> int:
        return client.call(m.APPEND, m.APPEND.request(session=session, first=first, records=contents), 5.0).records

    assert send(0, *good[:2]) == 2
    assert send(0, *good[:3]) == 3  # again, with one more
    for wrong in (b"pickle", b"", good[0], good[1], good[5], good[7]):
        with pytest.raises(BadInput, match="refuses"):
            send(3, wrong)
    with pytest.raises(Exception, match="3 is next"):
        send(4, good[4])
    with pytest.raises(Exception, match="unknown session"):
        send(3, good[3], session=session + 1)
    assert send(3, *good[3:]) == 9
    assert [SCHEMA.encode(r) for r in room.receiver.actors["odd"].log.read()] == good
    other = m.CONNECT.request(protocol=m.PROTOCOL + 1, stored=9, **hello)
    with pytest.raises(BadInput, match="version of the wire"):
        client.call(m.CONNECT, other, 5.0)
    client.close()
    room.stop()


def _hash() -> str:
    from classroom import INTERFACE

    return m.interface_hash(INTERFACE)


def test_a_full_disk_stops_the_learner_and_leaves_a_whole_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = Classroom(tmp_path, make_lesson("realtime"), env_steps=10**6)
    with desk(tmp_path / "outbox", room.port) as ours:
        start(ours.link)
        for record in records(20):
            ours.outbox.append(record)
        ours.link.notify()
        until(lambda: ours.link.acknowledged == 20)
        log = room.receiver.actors["actor"].log

        def full(content: bytes) -> None:
            with log.path.open("ab") as file:
                file.write(content[:11])
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(log, "append", full)
        ours.outbox.append(records(21)[20])
        ours.link.notify()
        with pytest.raises(Exception, match="No space left"):
            room._thread.join(20)
            room.close()
        assert ours.link.acknowledged == 20
    again = Classroom(tmp_path, make_lesson("realtime"), env_steps=10**6)
    assert again.receiver.actors["actor"].count == 20
    again.stop()


def test_weights_are_loaded_beside_those_in_use() -> None:
    buffered = DoubleBufferedPolicy(lambda: make_lesson().settings.build(make_base(), seed=3))
    seen = {"proprio": np.zeros((1, 2), np.float32)}
    buffered.seed(1)
    before = buffered.act(seen)
    changed = {key: value + 0.5 for key, value in buffered.like.items()}
    buffered.load(7, changed)
    buffered.seed(1)
    np.testing.assert_array_equal(buffered.act(seen), before)
    assert (buffered.version, buffered.newest) == (-1, 7)
    with buffered._lock:  # somebody is loading: the control loop does not wait for it
        began = time.monotonic()
        assert not buffered.swap() and time.monotonic() - began < 30.0
    assert buffered.swap() and not buffered.swap() and buffered.version == 7
    buffered.seed(1)
    assert not np.array_equal(buffered.act(seen), before)
    for key, value in changed.items():
        np.testing.assert_array_equal(buffered.like[key], value)
