"""A client cannot tell the proxy from its upstream: every byte of the wire, compared.

Each case (`equality_cases.py`, `equality_streams.py`, `equality_surfaces.py`) is played twice by a
bare socket: straight to a recording upstream, and through a proxy in front of it. What must be
equal: of the request method, target, header fields and body; of the reply status, header fields in
their order, and body. Not compared, as they belong to one connection or are ours: the fields of RFC
9110, 7.6.1, `Host`, the framing of the body, `x-pinocchio-*`, and the one `pinocchio` member where
it is attached. The suite knows the proxy from the outside only.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.equality.equality_cases import (
    CHAT,
    COMPLETIONS,
    DELIVERS,
    QUESTION,
    TEXT,
    Case,
    replied,
    without_members,
)
from tests.equality.equality_streams import DONE, PLAIN, STREAMED, UNICODE, finish, streamed
from tests.equality.equality_streams import QUESTION as STREAM_QUESTION
from tests.equality.equality_surfaces import SURFACES
from tests.equality.recording import (
    PING,
    PONG,
    Connection,
    Field,
    Message,
    RecordingUpstream,
    Reply,
    Sent,
    ask,
)
from tests.running.live_proxy import LiveProxy

HOP_BY_HOP = {
    b"connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
}
OF_FRAMING = {b"content-length"}  # compared separately
OF_REQUESTS = OF_FRAMING | {b"host", b"expect"}
OURS = b"x-pinocchio-"
CASES = [*COMPLETIONS, *STREAMED, *SURFACES]

# Cases that fail so far: the name, the modes in which it fails, and why.
EVERYWHERE = "off attached buffered buffered-attached"
BROKEN: dict[str, tuple[str, str]] = {
    "empty-query": (EVERYWHERE, "ASGI does not tell a lone '?' from none"),
    "path-empty-query": (EVERYWHERE, "ASGI does not tell a lone '?' from none"),
    "status-304-with-length": (EVERYWHERE, "uvicorn would wait for the bytes: it is dropped"),
    "stream-by-length": ("off", "an error event may have to follow: a stream's length is dropped"),
    "stream-of-each-byte-by-length": ("off", "the same"),
    "stream-with-encodings-welcome": (
        "buffered buffered-attached",
        "Accept-Encoding is kept from upstream where a stream is read whole",
    ),
}


@dataclass
class Rig:
    """The upstream, a proxy of every mode in front of it, and the replies without a proxy."""

    upstream: RecordingUpstream
    proxies: dict[str, LiveProxy]
    _direct: dict[str, tuple[Message, Message]] = field(default_factory=dict)

    def direct(self, case: Case) -> tuple[Message, Message]:
        """Return upstream's reply to the client itself, and the request that then arrives."""
        if case.name not in self._direct:
            self.upstream.reply = case.reply
            self.upstream.take()
            reply = ask(self.upstream.port, case.sent)
            [request] = self.upstream.take()
            self._direct[case.name] = reply, request
        return self._direct[case.name]

    def got(self, mode: str, case: Case) -> tuple[Message, Message]:
        """Send a case through a proxy; return the reply and the request that reached upstream.

        Fails if the connection is not in order afterwards.
        """
        self.upstream.reply = case.reply
        self.upstream.take()
        with Connection(self.proxies[mode].port) as connection:
            reply = connection.ask(case.sent)
            [request] = self.upstream.take()
            is_over = b"close" in (reply.header(b"connection") or b"").lower()
            assert is_over or connection.is_in_order()
        return reply, request


UPSTREAM = {"speaks": "both"}
MODES: dict[str, dict[str, Any]] = {
    "off": {"attach": {"body": False}},
    "attached": {},
    "buffered": {"attach": {"body": False}, "policy": DELIVERS},
    "buffered-attached": {"policy": DELIVERS},
    "unseen": {"attach": {"body": False, "headers": False}},
}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    models = ({"match": "*", "upstream": "faulty"},)
    with RecordingUpstream() as upstream:
        proxies = {}
        for mode, sections in MODES.items():
            folder = tmp_path_factory.mktemp(mode)
            proxies[mode] = LiveProxy(
                upstream.base_url, folder, models=models, upstream=UPSTREAM, **sections
            )
        yield Rig(upstream, proxies)
        for proxy in proxies.values():
            proxy.ask_to_stop()
        for proxy in proxies.values():
            proxy.stop()


def each(mode: str, cases: list[Case]) -> pytest.MarkDecorator:
    """Parametrise over cases, and mark those that are known to fail in a mode.

    With the member attached, the suite tries every second case, and `-m slow` the others.
    """

    def marks(number: int, case: Case) -> list[pytest.MarkDecorator]:
        modes, reason = BROKEN.get(case.name, ("", ""))
        is_broken = mode in modes.split()
        found = [pytest.mark.xfail(strict=True, reason=reason)] if is_broken else []
        return [*found, pytest.mark.slow] if mode.endswith("attached") and number % 2 else found

    return pytest.mark.parametrize(
        "case",
        [pytest.param(c, id=c.name, marks=marks(number, c)) for number, c in enumerate(cases)],
    )


# What is compared


def crossing(message: Message, dropped: set[bytes]) -> list[Field]:
    """Return the header fields in order, without ours and those of one connection."""
    lists = [value.lower().split(b",") for name, value in message.headers if name == b"connection"]
    named = {part.strip() for parts in lists for part in parts}
    return [
        (name, value)
        for name, value in message.headers
        if name not in HOP_BY_HOP | named | dropped and not name.startswith(OURS)
    ]


def same_request(got: Message, direct: Message) -> None:
    assert (got.method, got.target) == (direct.method, direct.target)
    assert crossing(got, OF_REQUESTS) == crossing(direct, OF_REQUESTS)
    assert got.body == direct.body


def same_reply(case: Case, got: Message, direct: Message) -> None:
    assert got.status == direct.status
    assert crossing(got, OF_FRAMING) == crossing(direct, OF_FRAMING)
    assert got.body == direct.body
    length = direct.header(b"content-length")
    assert length is None or got.header(b"content-length") == length
    assert got.framing != "chunked" or case.sent.version == "HTTP/1.1"


def same_but_for_members(case: Case, got: Message, direct: Message) -> None:
    body, count = without_members(got.body)
    if count == 0:
        assert case.may_lack or not case.members
        same_reply(case, got, direct)
        return
    assert count == case.members
    assert got.status == direct.status
    dropped = OF_FRAMING | ({b"content-encoding"} if case.plain is not None else set())
    assert crossing(got, dropped) == crossing(direct, dropped)
    assert got.header(b"content-encoding") in (None, b"identity")
    assert body == (case.plain or direct.body)
    assert got.framing != "chunked" or case.sent.version == "HTTP/1.1"


# The suite


@each("off", CASES)
def test_with_policies_off_every_byte_is_upstreams(rig: Rig, case: Case) -> None:
    """In shadow mode with `attach.body: false`, a proxy changes neither request nor reply."""
    direct, direct_request = rig.direct(case)
    got, arrived = rig.got("off", case)
    same_request(arrived, direct_request)
    same_reply(case, got, direct)


@each("attached", CASES)
def test_without_the_member_every_byte_is_upstreams(rig: Rig, case: Case) -> None:
    """With the member attached, a reply differs from upstream's only by the member's bytes."""
    direct, direct_request = rig.direct(case)
    got, arrived = rig.got("attached", case)
    same_request(arrived, direct_request)
    same_but_for_members(case, got, direct)


# A policy that reads a whole answer does not deliver one that upstream ends in an error.
UNLIKE_LIVE = ("stream-error-event-after-finish",)
BUFFERED = [
    case
    for case in CASES
    if (case.members and not case.may_lack and case.name not in UNLIKE_LIVE)
    or case.name.startswith("error-4")
]


@each("buffered", BUFFERED)
def test_buffered_equals_live(rig: Rig, case: Case) -> None:
    """A reply that a policy reads as a whole and delivers is the same as a live one."""
    direct, direct_request = rig.direct(case)
    got, arrived = rig.got("buffered", case)
    same_request(arrived, direct_request)
    same_reply(case, got, direct)


@each("buffered-attached", BUFFERED)
def test_buffered_equals_live_but_for_the_member(rig: Rig, case: Case) -> None:
    """A reply that is read as a whole has the member in the same places as a live one."""
    direct, direct_request = rig.direct(case)
    got, arrived = rig.got("buffered-attached", case)
    same_request(arrived, direct_request)
    same_but_for_members(case, got, direct)


# Beyond single exchanges


def test_every_case_has_a_name_of_its_own() -> None:
    """No case hides another, and each known failure belongs to a case that exists."""
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert set(BROKEN) <= set(names)


UNSEEN = {
    "embeddings",
    "error-429-json",
    "error-500-html",
    "speech",
    "stream-text",
    "stream-three-choices",
    "text",
}


@each("unseen", [case for case in CASES if case.name in UNSEEN])
def test_with_nothing_attached_no_field_is_ours(rig: Rig, case: Case) -> None:
    """With `attach: {headers: false, body: false}` no field of the reply reveals the proxy."""
    direct, _ = rig.direct(case)
    got, _ = rig.got("unseen", case)
    same_reply(case, got, direct)
    assert not [name for name, _ in got.headers if name.startswith(OURS)]


def test_the_length_keeps_its_place(rig: Rig) -> None:
    """If the body is upstream's, Content-Length keeps its place among the fields."""
    case = next(case for case in CASES if case.name == "content-length-first")
    direct, _ = rig.direct(case)
    got, _ = rig.got("off", case)
    assert crossing(got, set()) == crossing(direct, set())


def any_split(whole: bytes) -> st.SearchStrategy[tuple[bytes, ...]]:
    """Return a strategy that cuts the bytes anywhere."""
    places = st.lists(st.integers(1, len(whole) - 1), max_size=12, unique=True).map(sorted)
    return places.map(
        lambda cuts: tuple(
            whole[start:end] for start, end in itertools.pairwise([0, *cuts, len(whole)])
        )
    )


STREAM = b"".join([*UNICODE, finish(), DONE]).replace(b"\n\n", b"\r\n\r\n", 2)
ANY = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("mode", ["off", "attached", "buffered-attached"])
@given(writes=any_split(STREAM))
@ANY
def test_any_split_of_a_stream_gives_its_bytes(
    rig: Rig, mode: str, writes: tuple[bytes, ...]
) -> None:
    """However upstream's writes cut a stream, even within characters, it arrives whole."""
    case = Case("split", STREAM_QUESTION, replace(streamed(list(writes)), pause_s=1e-4), 1)
    got, _ = rig.got(mode, case)
    assert without_members(got.body)[0] == STREAM


@pytest.mark.parametrize("mode", ["off", "attached"])
@given(writes=any_split(TEXT))
@ANY
def test_any_split_of_a_body_gives_its_bytes(
    rig: Rig, mode: str, writes: tuple[bytes, ...]
) -> None:
    """A body in chunks arrives whole, however upstream's writes cut it."""
    reply = replace(replied(b""), writes=writes, framing="chunked", pause_s=1e-4)
    got, _ = rig.got(mode, Case("split", QUESTION, reply, 1))
    assert without_members(got.body)[0] == TEXT


def test_a_request_in_single_bytes_arrives_whole(rig: Rig) -> None:
    """However a client cuts its request, upstream gets the same bytes."""
    rig.upstream.reply, proxy = replied(TEXT), rig.proxies["off"]
    rig.upstream.take()
    with Connection(proxy.port) as connection:
        for byte in QUESTION.head(proxy.port) + QUESTION.body:
            connection.send(bytes([byte]))
        assert connection.read("POST").body == TEXT
    [request] = rig.upstream.take()
    assert (request.target, request.body) == (CHAT.encode(), QUESTION.body)


def test_pipelined_requests_are_answered_in_order(rig: Rig) -> None:
    """Requests that a client sends without waiting get their own replies, one after the other."""
    rig.upstream.reply, proxy = replied(TEXT), rig.proxies["off"]
    ping = Sent("GET", PING).head(proxy.port)
    chat = QUESTION.head(proxy.port) + QUESTION.body
    with Connection(proxy.port) as connection:
        connection.send(chat + ping + chat)
        assert [connection.read().body for _ in range(3)] == [TEXT, PONG, TEXT]


ANOTHER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\njunk"
PAUSE_S = 0.02
NO_BODY = Reply((), 204, (), "none")
STRAY = {
    "json-and-reply": (QUESTION, replied(TEXT), ANOTHER),
    "stream-and-reply": (QUESTION, streamed(PLAIN), ANOTHER),
    "204-and-reply": (QUESTION, NO_BODY, ANOTHER),
    "204-and-body": (QUESTION, NO_BODY, b'{"deleted":true}'),
    "304-and-body": (QUESTION, replace(NO_BODY, status=304), b"{}"),
    "head-and-body": (Sent("HEAD", "/v1/files"), replied(b""), b"{}"),
    "json-and-line-end": (QUESTION, replied(TEXT), b"\r\n"),
}


@pytest.mark.parametrize(
    ("name", "pause_s"),
    [
        ("json-and-reply", PAUSE_S),
        ("stream-and-reply", PAUSE_S),
        ("204-and-reply", PAUSE_S),
        ("json-and-line-end", PAUSE_S),
        ("json-and-reply", 0),
        ("204-and-reply", 0),
        ("json-and-line-end", 0),
        ("204-and-body", 0),
        ("304-and-body", 0),
        ("head-and-body", 0),
    ],
)
def test_bytes_behind_a_reply_are_nobodys_reply(
    rig: Rig, name: str, pause_s: float, tmp_path: Path
) -> None:
    """Bytes that upstream sends behind a reply neither answer nor break another request."""
    sent, reply, stray = STRAY[name]
    expected = reply.status, b"" if reply.status != 200 or sent.method == "HEAD" else reply.body
    rig.upstream.reply = replace(reply, after=stray, pause_s=pause_s)
    proxy = LiveProxy(rig.upstream.base_url, tmp_path, attach={"body": False})
    try:
        for _ in range(4):
            with Connection(proxy.port) as connection:
                played = rig.upstream.played
                got = connection.ask(sent)
                rig.upstream.wait_until_played(played + 1)
                time.sleep(0.03)  # until the stray bytes are read
                assert (got.status, got.body) == expected
                assert connection.is_in_order()
    finally:
        proxy.stop()
