"""Transfer codings of replies: `chunked` alone, or none."""

from __future__ import annotations

import pytest

from proxy.errors import UpstreamBrokenError
from proxy.http.pool.pool import Pool
from proxy.http.wire.upstream import UpstreamRequest
from tests.servers.raw_server import Peer, RawServer

REFUSED = {
    "another": (b"gzip",),
    "nothing": (b"",),
    "identity": (b"identity",),
    "within a word": (b"xchunked",),
    "at the end of a word": (b"chunkedx",),
    "an obsolete name": (b"x-chunked",),
    "another first": (b"gzip, chunked",),
    "another last": (b"chunked, gzip",),
    "identity last": (b"chunked, identity",),
    "nothing last": (b"chunked,",),
    "nothing first": (b",chunked",),
    "twice": (b"chunked, chunked",),
    "in two fields": (b"chunked", b"chunked"),
    "another field": (b"gzip", b"chunked"),
    "an empty field": (b"", b"chunked"),
    "a parameter": (b"chunked;q=1",),
    "in quotes": (b'"chunked"',),
    "a vertical tab": (b"\x0bchunked",),
    "a letter of Latin-1": (b"chunked\xa0",),
    "a space within": (b"chunk ed",),
}
BODY = b"2\r\nok\r\n0\r\n\r\n"

no_reply = pytest.raises(UpstreamBrokenError, match=r"upstream http://127\.0\.0\.1:\d+ ")


class Answering:
    """Answers every request with the same head, as long as the client stays."""

    def __init__(
        self,
        values: tuple[bytes, ...] = (b"chunked",),
        version: bytes = b"1.1",
        status: bytes = b"200",
        body: bytes = BODY,
    ) -> None:
        codings = b"".join(b"transfer-encoding: %b\r\n" % value for value in values)
        self._reply = b"HTTP/%b %b OK\r\nconnection: keep-alive\r\n%b\r\n%b" % (
            *(version, status, codings, b"" if status == b"304" else body),
        )

    def __call__(self, peer: Peer) -> None:
        while peer.request():
            peer.send(self._reply)


async def bodies_of(url: str, times: int = 1) -> list[bytes]:
    """Return the bodies of this many replies, read one after the other."""
    relay = Pool(url, timeout_s=2)
    try:
        bodies = []
        for _ in range(times):
            reply = await relay.send(UpstreamRequest("POST", "/x"))
            bodies.append(await reply.read(100))
            await reply.aclose()
        return bodies
    finally:
        await relay.aclose()


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
@pytest.mark.parametrize("name", REFUSED)
async def test_any_other_coding_is_no_reply(name: str, version: bytes) -> None:
    """Any other coding is refused, as readers could find two different bodies."""
    with RawServer(Answering(REFUSED[name], version)) as server, no_reply:
        await bodies_of(server.base_url)


@pytest.mark.parametrize("value", [b"chunked ", b"chunked\t"])
async def test_space_behind_it_is_no_reply(value: bytes) -> None:
    """A space or tab behind the coding is refused, which llhttp would read differently."""
    with RawServer(Answering((value,))) as server, no_reply:
        await bodies_of(server.base_url)


async def test_replies_without_a_body_are_no_exception() -> None:
    with RawServer(Answering((b"gzip, chunked",), status=b"304")) as server, no_reply:
        await bodies_of(server.base_url)


@pytest.mark.parametrize("value", [b"chunked", b"Chunked", b"CHUNKED", b" \tchunked"])
async def test_chunks_are_read(value: bytes) -> None:
    with RawServer(Answering((value,))) as server:
        assert await bodies_of(server.base_url, 2) == [b"ok", b"ok"]
        assert server.connections == 1


async def test_chunks_in_an_old_version_are_the_last_of_their_connection() -> None:
    """RFC 9112, 6.1: a chunked reply in HTTP/1.0 is always the last of its connection."""
    with RawServer(Answering(version=b"1.0")) as server:
        assert await bodies_of(server.base_url, 2) == [b"ok", b"ok"]
        assert server.connections == 2


@pytest.mark.parametrize(
    "body",
    [
        b"2\nok\r\n0\r\n\r\n",
        b"3\n\nok\r\n0\r\n\r\n",
        b"2;a=b\nok\r\n0\r\n\r\n",
        b"2\r\nok\n0\r\n\r\n",
        b"2\r\nok\r\n0\n\r\n",
        b"2\r\nok\r\n0\r\n\n",
        b"2\r\nok\r\n0\r\na: b\n\r\n",
    ],
)
async def test_lines_of_chunks_end_with_both(body: bytes) -> None:
    """A line of a chunked body that ends with a bare LF is refused, as llhttp may skip a byte."""
    with RawServer(Answering(body=body)) as server, no_reply:
        await bodies_of(server.base_url)


async def test_lines_of_a_head_may_end_without_cr() -> None:
    """Lines of a head may end without CR, also behind a chunked reply on the same connection."""
    reply = b"HTTP/1.1 200 OK\ntransfer-encoding: chunked\n\n" + BODY

    def script(peer: Peer) -> None:
        while peer.request():
            peer.send(reply)

    with RawServer(script) as server:
        assert await bodies_of(server.base_url, 3) == [b"ok"] * 3
        assert server.connections == 1
