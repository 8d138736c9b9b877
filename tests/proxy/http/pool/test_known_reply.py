"""A reply behind a known head is the one that the parser would have read."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.http.pool.connection import Connection, HttpReply
from proxy.http.wire.headers import HEADS_LEARNT
from proxy.http.wire.outlet import Bursts

HEAD = b"HTTP/1.1 200 OK\r\nDate: Mon\r\nContent-Length: %b\r\nX-Note: Content-Length: 7\r\n\r\n"
Reads = tuple[str, list[bytes]]
"""The method of a request, and what is read of its reply at once."""


def reply(body: bytes, head: bytes = HEAD, length: bytes = b"") -> bytes:
    return head % (length or b"%d" % len(body)) + body


class Transport(asyncio.Transport):
    """A transport that only records that it was closed."""

    def __init__(self) -> None:
        super().__init__({"socket": socket.socket()})
        self.is_aborted = False

    def write(self, data: object) -> None: ...

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_aborted


@pytest.fixture
def known_replies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets a 1 for every reply whose head was known."""
    known, found = Connection._read_again, list[int]()

    def read_again(*arguments: Any) -> bool:
        is_known = known(*arguments)
        found.extend([1] if is_known else [])
        return is_known

    monkeypatch.setattr(Connection, "_read_again", read_again)
    return found


def all_of(replies: list[Reads], learns: int) -> list[object]:
    """Return what a connection reads from these replies in turn, if it learns this many heads."""
    loop = asyncio.new_event_loop()
    free: list[Connection] = []
    connection = Connection(loop, "http://x", 1, free.append, lambda _: None, Bursts())
    connection._heads_to_learn = learns
    transport = Transport()
    connection.connection_made(transport)
    found: list[object] = []
    for method, reads in replies:
        if transport.is_aborted:
            break
        free.clear()
        got = HttpReply(loop, method)
        connection.start(got, b"", b"")
        for data in reads:
            if not transport.is_aborted:
                connection.data_received(data)
        is_kept = bool(free) and not transport.is_aborted
        state = got.status, got.headers, got.values, b"".join(got.parts), got.size
        found.append((*state, got.is_complete, got.has_begun, str(got.error), is_kept))
        if not is_kept:
            break
    connection.connection_lost(None)
    transport.get_extra_info("socket").close()
    loop.close()
    return found


HEAD_OF_A = reply(b"a")[:-1]
OTHER = b"HTTP/1.1 500 No\r\ncontent-length: %b\r\nset-cookie: a\r\nset-cookie: b\r\n\r\n"
CASES: dict[str, tuple[list[Reads], int]] = {
    "the same again": ([("POST", [reply(b"a")]), ("POST", [reply(b"a")])], 1),
    "another length": ([("POST", [reply(b"a")]), ("POST", [reply(b"b" * 4_000)])], 1),
    "no body": ([("POST", [reply(b"a")]), ("POST", [reply(b"")]), ("POST", [reply(b"c")])], 2),
    "a fault's fields": ([("POST", [reply(b"a", OTHER)]), ("POST", [reply(b"bc", OTHER)])], 1),
    "zeros in front": ([("POST", [reply(b"a")]), ("POST", [reply(b"b", length=b"001")])], 1),
    "a body in two reads": ([("POST", [reply(b"a")]), ("POST", [HEAD % b"2" + b"b", b"c"])], 0),
    "a body that stays short": ([("POST", [reply(b"a")]), ("POST", [HEAD % b"2" + b"b"])], 0),
    "more than the body": ([("POST", [reply(b"a")]), ("POST", [reply(b"bc", length=b"1")])], 0),
    "two replies": ([("POST", [reply(b"a")]), ("POST", [reply(b"b") * 2])], 0),
    "no reply to HEAD": ([("POST", [reply(b"a")]), ("HEAD", [HEAD_OF_A])], 0),
    "HEAD with a body": ([("POST", [reply(b"a")]), ("HEAD", [reply(b"a")])], 0),
    "behind an interim one": (
        [
            ("POST", [b"HTTP/1.1 100 Continue\r\n\r\n" + reply(b"a")]),
            ("POST", [b"HTTP/1.1 100 Continue\r\n\r\n" + reply(b"b")]),
        ],
        0,
    ),
    "an end of another kind": (
        [
            ("POST", [b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\n\r\n\r\nbody"]),
            ("POST", [b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\n\r\n\r\n"]),
        ],
        0,
    ),
    "a status without a body": (
        [
            ("POST", [reply(b"", b"HTTP/1.1 204 No\r\ncontent-length: %b\r\n\r\n")]),
            ("POST", [reply(b"b", b"HTTP/1.1 204 No\r\ncontent-length: %b\r\n\r\n")]),
        ],
        0,
    ),
    "a length with a sign": ([("POST", [reply(b"a")]), ("POST", [reply(b"b", length=b"+1")])], 0),
    "two lengths": (
        [("POST", [reply(b"a", HEAD.replace(b"X-Note", b"Content-Length: 1\r\nX-Note"))])] * 2,
        0,
    ),
    "the last one": (
        [("POST", [reply(b"a", HEAD.replace(b"X-Note", b"connection: close\r\nX-Note"))])] * 2,
        0,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_known_head_changes_no_reply(case: str, known_replies: list[int]) -> None:
    """A known head changes neither status, fields, body and errors, nor the connection's end."""
    replies, known = CASES[case]
    assert all_of(replies, learns=3) == all_of(replies, learns=0)
    assert len(known_replies) == known


LENGTHS = st.binary(max_size=3) | st.sampled_from([b"1", b"2", b"02", b" 2", b"2 ", b"1\r\nx: 2"])
ANY = st.builds(
    lambda head, length, body: head % length + body,
    st.sampled_from([HEAD, OTHER]),
    LENGTHS,
    st.sampled_from([b"a", b"ab", b"", b"\r\n", b"abc"]),
)


@given(tails=st.lists(ANY, min_size=1, max_size=4), cut=st.integers(0, 120))
def test_whatever_follows_a_known_head_is_read_as_by_the_parser(
    tails: list[bytes], cut: int
) -> None:
    """Other lengths, more or fewer bytes, or another cut give the same replies and errors."""
    replies: list[Reads] = [("POST", [reply(b"ab")])]
    replies += [("POST", [part for part in (each[:cut], each[cut:]) if part]) for each in tails]
    assert all_of(replies, learns=3) == all_of(replies, learns=0)
    replies = [("POST", [each]) for each in (reply(b"ab"), *tails)]
    assert all_of(replies, learns=3) == all_of(replies, learns=0)


def test_a_connection_whose_heads_are_never_the_same_stops_looking(
    known_replies: list[int],
) -> None:
    """A connection whose heads differ each time stops learning them, which costs time."""
    heads = [HEAD.replace(b"Mon", b"%%d%d" % n % n) for n in range(HEADS_LEARNT)]
    replies: list[Reads] = [("POST", [reply(b"a", head)]) for head in heads]
    assert len(all_of([*replies, ("POST", [reply(b"b")]), ("POST", [reply(b"c")])], learns=3)) == 5
    assert not known_replies
