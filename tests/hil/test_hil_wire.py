"""The wire: whatever comes in, `BadInput` or a good message comes out; strangers are turned away with one line."""

from __future__ import annotations

import itertools
import logging
import os
import socket
import ssl
import sys
import time
from pathlib import Path

import grpc
import numpy as np
import pytest
from safetensors.numpy import load, save

from robolearn.core import BadInput
from robolearn.hil.settings import Lesson
from robolearn.hil.wire import messages as m
from robolearn.hil.wire.certificates import make_certificates
from robolearn.hil.wire.client import Client, LinkDown
from robolearn.hil.wire.handshakes import heard
from robolearn.hil.wire.refusals import Refusals
from robolearn.hil.wire.schema import Schema
from robolearn.hil.wire.security import Address, Certificates, find_token
from robolearn.hil.wire.server import Door, Handler

sys.path.insert(0, str(Path(__file__).parent))
from classroom import SCHEMA, TOKEN, make_lesson

HELLO = {"protocol": 1, "actor": "left", "interface": "a" * 64, "policy": "b" * 64, "spooled": 7}
APPEND = m.append_schema(SCHEMA.limit)


# --- messages -----------------------------------------------------------------------------------------------------


def good() -> list[tuple[Schema, bytes]]:
    answered = {"version": 3, "processed": 2, "finished": True, "env_steps": 5, "updates": 9, "success": 0.5}
    return [
        (m.HELLO, m.HELLO.pack(**HELLO)),
        (m.WELCOME, m.WELCOME.pack(session=5, run="r", expects=0, task="{}")),
        (APPEND, m.pack_records(APPEND, 5, 3, [b"abc", b"d"])),
        (m.BEAT_ANSWERED, m.BEAT_ANSWERED.pack(**answered, intervention_rate=m.UNKNOWN, q=0.1)),
    ]


def test_messages_come_back_as_they_were() -> None:
    for schema, content in good():
        again = schema.unpack(content)
        assert schema.pack(**again) == content
    assert m.HELLO.unpack(good()[0][1]) == HELLO
    message = APPEND.unpack(good()[2][1])
    assert m.unpack_records(message) == [b"abc", b"d"] and message["first"] == 3


def test_random_bytes_truncations_and_flipped_bits_are_refused_or_good() -> None:
    rng, refused, passed = np.random.default_rng(0), 0, 0
    for schema, content in good():
        for round_ in range(600):
            broken = bytearray(content)
            if round_ % 3 == 0:
                broken = bytearray(rng.bytes(int(rng.integers(0, 200))))
            elif round_ % 3 == 1:
                del broken[int(rng.integers(len(broken))) :]
            for _ in range(round_ % 5):
                if broken:
                    broken[int(rng.integers(len(broken)))] = int(rng.integers(256))
            try:
                found = schema.unpack(bytes(broken))
                if schema is APPEND:
                    assert b"".join(m.unpack_records(found)) == found["records"].tobytes()
                passed += 1
            except BadInput:
                refused += 1
    assert refused > 1500 and passed > 0


def test_wrong_schemas_are_refused_by_name() -> None:
    tensors = load(good()[3][1])
    wrong = {
        "dtype": tensors | {"version": np.array(3, np.int32)},
        "shape": tensors | {"version": np.array([3], np.int64)},
        "missing": {key: value for key, value in tensors.items() if key != "q"},
        "surplus": tensors | {"pickle": np.zeros(3, np.uint8)},
        "NaN": tensors | {"q": np.array(np.nan)},
        "infinity": tensors | {"q": np.array(np.inf)},
    }
    for name, content in wrong.items():
        with pytest.raises(BadInput):
            m.BEAT_ANSWERED.unpack(save(content))
            pytest.fail(name)
    with pytest.raises(BadInput, match="at most"):
        m.HELLO.unpack(b"x" * (m.HELLO.limit + 1))
    with pytest.raises(BadInput, match="UTF-8"):
        m.HELLO.unpack(save(load(good()[0][1]) | {"actor": np.array([255, 254], np.uint8)}))
    with pytest.raises(BadInput, match="actor"):
        m.HELLO.pack(**HELLO | {"actor": "x" * 65})
    for lengths in ([5], [4, 1], [-1, 5], [2**62, 2**62, 2**62, 2**62, 4], []):
        with pytest.raises(BadInput, match="lengths"):
            m.unpack_records({"lengths": np.array(lengths, np.int64), "records": np.zeros(4, np.uint8)})


def test_weights_fit_or_are_refused() -> None:
    like = {"actor/w": np.zeros((2, 3), np.float32), "actor/b": np.zeros(3, np.float32)}
    given = {key: value + 1 for key, value in like.items()}
    version, found = m.unpack_weights(m.pack_weights(7, given), like)
    assert version == 7 and all(np.array_equal(found[key], given[key]) for key in like)
    for wrong in (
        {"actor/w": given["actor/w"]},
        given | {"more": np.zeros(1)},
        given | {"actor/b": np.full(3, np.nan, np.float32)},
        given | {"actor/b": np.zeros(3)},
        given | {"actor/w": np.zeros((3, 2), np.float32)},
    ):
        with pytest.raises(BadInput):
            m.unpack_weights(m.pack_weights(7, wrong), like)
    with pytest.raises(BadInput):
        m.unpack_weights(b"x" * 10**6, like)
    with pytest.raises(BadInput):
        m.unpack_weights(save({key: value for key, value in given.items()}), like)


def test_settings_come_back_as_they_were_or_are_refused() -> None:
    lesson = make_lesson()
    assert Lesson.from_text(lesson.to_text()) == lesson
    text = lesson.to_text()
    changed = [("proposals", "os.system"), ("0.99", '"x"'), ("lockstep", "now"), ('"gamma"', '"gama"'), ("0.99", "7")]
    for wrong in ("", "[]", "{}", "[" * 10**4, *(text.replace(*pair, 1) for pair in changed)):
        assert wrong != text
        with pytest.raises(BadInput):
            Lesson.from_text(wrong)


# --- the door -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("certs") / "ours"
    make_certificates(out, ["192.0.2.7"])
    return out


def echo(certificates: Certificates | None = None) -> Door:
    calls = {"Echo": Handler(lambda content: content[::-1], 1000), "Large": Handler(lambda content: content, 5000)}
    return Door(Address("127.0.0.1", 0), calls, TOKEN, certificates, Refusals(every_s=1e9))


def answer(door: Door, token: str = TOKEN, certificates: Certificates | None = None, content: bytes = b"abc",
           method: str = "Echo") -> bytes:  # fmt: skip
    client = Client(door.address, token, certificates, 10_000)
    try:
        return client.call(method, content, 5.0)
    finally:
        client.close()


def test_strangers_are_refused_with_one_line_and_the_door_stays_open(caplog: pytest.LogCaptureFixture) -> None:
    door = echo()
    try:
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                for token in ("another token than that", "", TOKEN[:-1], TOKEN + "x"):
                    with pytest.raises(BadInput, match="refuses"):
                        answer(door, token)
                for content, method in ((b"x" * 1001, "Echo"), (b"x" * 100_000, "Echo"), (b"", "System")):
                    with pytest.raises(BadInput, match="refuses"):
                        answer(door, content=content, method=method)
        lines = [r.getMessage() for r in caplog.records if r.name.startswith("robolearn.hil")]
        assert len(lines) == 1 and "refused" in lines[0] and TOKEN not in lines[0]
        assert door.refusals.count == 3 * 7
        assert answer(door) == b"cba"
    finally:
        door.close()


def test_no_token_at_all_is_refused() -> None:
    door = echo()
    try:
        with grpc.insecure_channel(str(door.address)) as channel:
            with pytest.raises(grpc.RpcError) as refused:
                channel.stream_unary(f"/{m.SERVICE}/Echo")(iter((b"x",)), timeout=5)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED  # type: ignore[attr-defined]
    finally:
        door.close()


@pytest.mark.parametrize("secure", [False, True])
def test_what_is_no_grpc_at_all_does_no_harm(folder: Path, secure: bool) -> None:
    certificates = Certificates(folder) if secure else None
    door, rng = echo(certificates), np.random.default_rng(0)
    try:
        for content in (b"GET / HTTP/1.1\r\n\r\n", b"\x80\x04\x95cos\nsystem\n", rng.bytes(5000), b""):
            with socket.create_connection((door.address.host, door.address.port), 5) as plain:
                plain.sendall(content)
        assert answer(door, certificates=certificates) == b"cba"
    finally:
        door.close()


def test_tls_wants_a_certificate_of_the_same_authority_on_both_sides(folder: Path, tmp_path: Path) -> None:
    ours = Certificates(folder)
    make_certificates(tmp_path / "theirs", [])
    theirs = Certificates(tmp_path / "theirs")
    door = echo(ours)
    try:
        assert answer(door, certificates=ours) == b"cba"
        with pytest.raises(BadInput, match="token"):
            answer(door, token="another token than that", certificates=ours)
        for stranger in (None, theirs):
            with pytest.raises(LinkDown):
                answer(door, certificates=stranger)
        # A client that would trust anybody, without a certificate of its own.
        context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        context.set_alpn_protocols(["h2"])
        raw = socket.create_connection(("127.0.0.1", door.address.port))
        with context.wrap_socket(raw, server_hostname="localhost") as plain:
            plain.settimeout(5)
            try:
                plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
                said = plain.recv(100)
            except (ssl.SSLError, ConnectionError):
                said = b""
        assert not said, "served without a certificate"
        # Nor does an actor talk to a learner of another authority.
        assert answer(door, certificates=ours) == b"cba"
    finally:
        door.close()


def test_failed_handshakes_are_said_once_and_other_lines_pass(
    folder: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    refusals, ours = Refusals(every_s=1e9), Certificates(folder)
    door = echo(ours)
    try:
        with heard(refusals):
            os.write(2, b"a word of native code\n")
            for _ in range(3):
                with socket.create_connection((door.address.host, door.address.port), 5) as plain:
                    plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
                    plain.recv(10)
            until = time.monotonic() + 10
            while refusals.count < 3 and time.monotonic() < until:
                time.sleep(0.01)
            assert answer(door, certificates=ours) == b"cba"
        os.write(2, b"and one after\n")
    finally:
        door.close()
    assert refusals.count == 3
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["refused a caller: TLS: http request"]
    said = capfd.readouterr().err
    assert "a word of native code" in said and "and one after" in said and "Handshake" not in said


def test_the_actor_s_certificate_opens_no_door_of_its_own(folder: Path, tmp_path: Path) -> None:
    """Whoever has an actor's certificate cannot pose as the learner."""
    for name in ("ca.pem", "actor.pem", "actor.key"):
        (tmp_path / name.replace("actor", "learner")).write_bytes((folder / name).read_bytes())
    (tmp_path / "learner.key").chmod(0o600)
    door = echo(Certificates(tmp_path))
    try:
        with pytest.raises(LinkDown):
            answer(door, certificates=Certificates(folder))
    finally:
        door.close()


def test_nothing_listens_or_calls_beyond_loopback_without_certificates() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.7", "robot.example"):
        with pytest.raises(BadInput, match="--certs"):
            Door(Address(host, 0), {"Echo": Handler(bytes, 10)}, TOKEN)
        with pytest.raises(BadInput, match="--certs"):
            Client(Address(host, 1), TOKEN, None, 10)
    for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        assert Address(host, 1).is_loopback


def test_keys_that_others_can_read_are_not_used(tmp_path: Path) -> None:
    make_certificates(tmp_path / "certs", [])
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "certs").iterdir()}
    assert all(mode == (0o644 if name.endswith(".pem") else 0o600) for name, mode in modes.items())
    (tmp_path / "certs" / "learner.key").chmod(0o640)
    with pytest.raises(BadInput, match="0600"):
        Certificates(tmp_path / "certs").server()
    with pytest.raises(BadInput, match="content"):
        make_certificates(tmp_path / "certs", [])
    with pytest.raises(BadInput, match="robolearn hil certs"):
        Certificates(tmp_path).client()


def test_tokens_that_can_be_guessed_are_refused(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.delenv("ROBOLEARN_HIL_TOKEN", raising=False)
    for wrong in ("short", "x" * 15, "ümlaut" * 5, "with\nline" * 5):
        with pytest.raises(BadInput, match="--token"):
            find_token(wrong, None)
    assert find_token("", None) is None
    assert find_token("", Certificates(folder)) == (folder / "token").read_text().strip()
    monkeypatch.setenv("ROBOLEARN_HIL_TOKEN", "from the environment")
    assert find_token("", None) == "from the environment" and find_token("x" * 16, None) == "x" * 16


def test_addresses_are_read_or_refused() -> None:
    assert Address.parse("robot:7350", "-") == Address("robot", 7350)
    assert str(Address.parse("[::1]:1", "-")) == "[::1]:1"
    for wrong in ("robot", ":1", "robot:", "robot:x", "robot:70000"):
        with pytest.raises(BadInput):
            Address.parse(wrong, "--listen")


def test_refusals_are_said_now_and_then(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0.0, 4.0)
    monkeypatch.setattr("robolearn.hil.wire.refusals.time.monotonic", lambda: next(clock))
    refusals = Refusals(every_s=10.0)
    for i in range(7):
        refusals("somebody", f"reason {i}\n\x1b[31m" + "x" * 1000)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3 and all(line.isprintable() and len(line) < 500 for line in lines)
    assert "2 more" in lines[1] and refusals.count == 7
