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
from typing import Any

import grpc
import numpy as np
import pytest
from safetensors.numpy import save

from robolearn.core import BadInput
from robolearn.hil.settings import LearnerConfig
from robolearn.hil.wire import messages as m
from robolearn.io.certificates import make_certificates
from robolearn.io.wire.client import Client, LinkDown
from robolearn.io.wire.protocol import Method, parse
from robolearn.io.wire.security import Address, Certificates, find_token
from robolearn.io.wire.server import GrpcServer, Handler, Refusals, handshake_refusals

sys.path.insert(0, str(Path(__file__).parent))
from classroom import TOKEN, make_lesson

CONNECT_FIELDS = {"protocol": 2, "actor": "left", "interface": "a" * 64, "policy": "b" * 64, "stored": 7}
PROGRESS = m.LearnerProgress(env_steps=5, updates=9, success=0.5, q=0.1)


# --- messages -----------------------------------------------------------------------------------------------------


def good() -> list[Any]:
    return [
        m.CONNECT.request(**CONNECT_FIELDS),
        m.CONNECT.reply(session=5, run="r", expects=0, config="{}"),
        m.APPEND.request(session=5, first=3, records=[b"abc", b"d"]),
        m.HEARTBEAT.reply(version=3, processed=2, finished=True, **PROGRESS.fields()),
    ]


def test_messages_come_back_as_they_were() -> None:
    for message in good():
        assert parse(type(message), message.SerializeToString()) == message
    assert list(good()[2].records) == [b"abc", b"d"]
    again = m.LearnerProgress.of(good()[3])
    assert again.intervention_rate != again.intervention_rate, "unknown"
    assert {**vars(again), "intervention_rate": 0} == {**vars(PROGRESS), "intervention_rate": 0}


def test_random_bytes_truncations_and_flipped_bits_are_refused_or_good() -> None:
    rng, refused, passed = np.random.default_rng(0), 0, 0
    for message in good():
        content = message.SerializeToString()
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
                found = parse(type(message), bytes(broken))
                assert parse(type(message), found.SerializeToString()) == found
                passed += 1
            except BadInput:
                refused += 1
    assert refused > 1000 and passed > 0


def test_messages_of_another_form_are_refused_by_name() -> None:
    beat = {"version": 3, "processed": 2, "finished": True, "env_steps": 5, "updates": 9}
    for wrong in ({"q": np.nan}, {"success": np.inf}):
        with pytest.raises(BadInput, match=next(iter(wrong))):
            parse(m.HEARTBEAT.reply, m.HEARTBEAT.reply(**beat, **wrong).SerializeToString())
    for name in CONNECT_FIELDS:
        rest = {key: value for key, value in CONNECT_FIELDS.items() if key != name}
        with pytest.raises(BadInput, match=f"no {name}"):
            parse(m.CONNECT.request, m.CONNECT.request(**rest).SerializeToString())
    with pytest.raises(BadInput, match="UTF-8"):
        parse(m.CONNECT.request, good()[0].SerializeToString().replace(b"left", b"\xff\xfe\xff\xfe"))
    for content in (b"", b"pickle", save({"protocol": np.array(1)})):
        with pytest.raises(BadInput):
            parse(m.CONNECT.request, content)


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
    for content in (b"x" * 1000, b"", save({key: value for key, value in given.items()})[:-1]):
        with pytest.raises(BadInput):
            m.unpack_weights(m.WEIGHTS.reply(version=7, tensors=content), like)


def test_settings_come_back_as_they_were_or_are_refused() -> None:
    config = make_lesson()
    assert LearnerConfig.from_text(config.to_text()) == config
    text = config.to_text()
    changed = [("proposals", "os.system"), ("0.99", '"x"'), ("lockstep", "now"), ('"gamma"', '"gama"'), ("0.99", "7")]
    for wrong in ("", "[]", "{}", "[" * 10**4, *(text.replace(*pair, 1) for pair in changed)):
        assert wrong != text
        with pytest.raises(BadInput):
            LearnerConfig.from_text(wrong)


# --- the door -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("certs") / "ours"
    make_certificates(out, ["192.0.2.7"])
    return out


ECHO = Method("robolearn.Hil", "Echo", m.CONNECT.reply, m.CONNECT.reply)
LARGE, SYSTEM = (Method("robolearn.Hil", name, m.CONNECT.reply, m.CONNECT.reply) for name in ("Large", "System"))


def message(text: str = "abc") -> Any:
    return m.CONNECT.reply(session=1, run="", expects=0, config=text)


def reverse(request: Any) -> Any:
    return message(request.config[::-1])


def echo(certificates: Certificates | None = None) -> GrpcServer:
    handlers = [Handler(ECHO, reverse, 1000), Handler(LARGE, reverse, 5000)]
    return GrpcServer(Address("127.0.0.1", 0), handlers, TOKEN, certificates, Refusals(every_s=1e9))


def answer(door: GrpcServer, token: str = TOKEN, certificates: Certificates | None = None, content: str = "abc",
           method: Method = ECHO) -> str:  # fmt: skip
    client = Client(door.address, token, certificates, 10_000)
    try:
        return client.call(method, message(content), 5.0).config
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
                for content, method in (("x" * 1001, ECHO), ("x" * 100_000, ECHO), ("", SYSTEM)):
                    with pytest.raises(BadInput, match="refuses"):
                        answer(door, content=content, method=method)
        lines = [r.getMessage() for r in caplog.records if r.name.startswith("robolearn.io.wire")]
        assert len(lines) == 1 and "refused" in lines[0] and TOKEN not in lines[0]
        assert door.refusals.count == 3 * 7
        assert answer(door) == "cba"
    finally:
        door.close()


def test_no_token_at_all_is_refused() -> None:
    door = echo()
    try:
        with grpc.insecure_channel(str(door.address)) as channel:
            with pytest.raises(grpc.RpcError) as refused:
                channel.stream_unary("/robolearn.Hil/Echo")(iter((b"x",)), timeout=5)
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
        assert answer(door, certificates=certificates) == "cba"
    finally:
        door.close()


def test_tls_wants_a_certificate_of_the_same_authority_on_both_sides(folder: Path, tmp_path: Path) -> None:
    ours = Certificates(folder)
    make_certificates(tmp_path / "theirs", [])
    theirs = Certificates(tmp_path / "theirs")
    door = echo(ours)
    try:
        assert answer(door, certificates=ours) == "cba"
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
        assert answer(door, certificates=ours) == "cba"
    finally:
        door.close()


def test_failed_handshakes_are_said_once_and_other_lines_pass(
    folder: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    refusals, ours = Refusals(every_s=1e9), Certificates(folder)
    door = echo(ours)
    try:
        with handshake_refusals(refusals):
            os.write(2, b"a word of native code\n")
            for _ in range(3):
                with socket.create_connection((door.address.host, door.address.port), 5) as plain:
                    plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
                    plain.recv(10)
            until = time.monotonic() + 10
            while refusals.count < 3 and time.monotonic() < until:
                time.sleep(0.01)
            assert answer(door, certificates=ours) == "cba"
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
            GrpcServer(Address(host, 0), [Handler(ECHO, reverse)], TOKEN)
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
    monkeypatch.setattr("robolearn.io.wire.server.time.monotonic", lambda: next(clock))
    refusals = Refusals(every_s=10.0)
    for i in range(7):
        refusals("somebody", f"reason {i}\n\x1b[31m" + "x" * 1000)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3 and all(line.isprintable() and len(line) < 500 for line in lines)
    assert "2 more" in lines[1] and refusals.count == 7
