"""Images under a URL: what the proxy fetches, from where, and how much of it."""

from __future__ import annotations

import asyncio
import datetime
import re
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from calibrator import NotScorableError, QueueFullError
from policies import InvalidDocumentError
from proxy.config.sections import load_config
from proxy.config.settings.images import FetchConfig, ImagesConfig
from proxy.scoring.image_fetching import MOST_AT_ONCE, MOST_REDIRECTS, ImageFetcher
from proxy.scoring.images import MOST_HELD, Images
from tests.builders.pictures import JPEG, PNG, data_url
from tests.servers.image_server import GIGABYTE, ImageServer
from tests.sharing.captured_logs import capture_logs

MOST = 2**20


@pytest.fixture(scope="module")
def running() -> Iterator[ImageServer]:
    with ImageServer() as server:
        yield server


@pytest.fixture
def server(running: ImageServer) -> ImageServer:
    """Return the server, which remembers only the requests of this test."""
    running.forget()
    return running


def images(*hosts: str, most_held: int = MOST_HELD, **settings: Any) -> Images:
    """Return a fetcher of images from these hosts, or any, private networks included."""
    fetch = FetchConfig(hosts=hosts or ("*", "127.0.0.1:*", "images.test:*"), allow_private=True)
    config = ImagesConfig(max_bytes=MOST, fetch=fetch, **settings)
    return Images(config, most_held=most_held)


async def got(found: Images, *urls: str) -> tuple[bytes, ...]:
    async with found.of([{"type": "image_url", "image_url": {"url": url}} for url in urls]) as all:
        return all


async def refused(found: Images, *urls: str) -> str:
    with pytest.raises(NotScorableError) as raised:
        await got(found, *urls)
    return raised.value.reason


# Fetching


async def test_an_image_is_fetched(server: ImageServer) -> None:
    """An image arrives unchanged; its request has the query and nothing that identifies anybody."""
    assert await got(images(), f"{server.url}/png?a=1#b") == (PNG,)
    [request] = server.seen
    assert request.path == "/png?a=1"
    assert set(request.headers) == {"host", "user-agent", "accept", "accept-encoding", "connection"}
    assert request.headers["host"] == f"127.0.0.1:{server.port}"


async def test_several_images_keep_their_order(server: ImageServer) -> None:
    """Several images keep their order, and the same one is fetched once."""
    png, jpeg = f"{server.url}/png", f"{server.url}/jpeg"
    assert await got(images(), png, data_url(JPEG), jpeg, png) == (PNG, JPEG, JPEG, PNG)
    assert len(server.seen) == 2


async def test_bytes_decide_the_kind(server: ImageServer) -> None:
    """Its bytes decide whether something is an image, whatever content type the server states."""
    assert await got(images(), f"{server.url}/untyped") == (PNG,)
    assert await refused(images(), f"{server.url}/html") == "image_format"
    assert await refused(images(), f"{server.url}/empty") == "image_format"


@pytest.mark.parametrize("path", ["missing", "partial", "failing", "short", "closed"])
async def test_what_is_not_there_has_a_word(server: ImageServer, path: str) -> None:
    """Errors, half an answer and no answer all give the reason that the image is not available."""
    assert await refused(images(), f"{server.url}/{path}") == "image_fetch"


async def test_nobody_listens() -> None:
    """A refused connection gives the same reason; the log names the host and nothing after it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with capture_logs() as lines:
        url = f"http://127.0.0.1:{port}/private.png?key=sk-secret"
        assert await refused(images(), url) == "image_fetch"
    [line] = lines
    assert (line["event"], line["reason"]) == ("image_not_fetched", "image_fetch")
    assert "127.0.0.1" in line["error"]
    assert not {"private", "secret"} & set(re.findall(r"\w+", str(line)))


async def test_no_more_is_read_than_an_image_may_have(server: ImageServer) -> None:
    """A download ends at the limit, whether the server announced its length or not."""
    assert await refused(images(), f"{server.url}/promises") == "image_size"
    server.sent = 0
    assert await refused(images(), f"{server.url}/endless") == "image_size"
    assert server.sent < GIGABYTE / 16
    exact = {"max_bytes": len(PNG)}
    fetch = FetchConfig(hosts=("127.0.0.1:*",), allow_private=True)
    assert await got(Images(ImagesConfig(fetch=fetch, **exact)), f"{server.url}/png") == (PNG,)


@pytest.mark.parametrize("path", ["drip", "silent"])
async def test_who_gives_up_waits_no_longer(server: ImageServer, path: str) -> None:
    """A server that drips or is silent costs no more than the allowed time."""
    began = time.perf_counter()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await got(images(), f"{server.url}/{path}")
    assert time.perf_counter() - began < 5


async def test_one_that_fails_ends_the_others(server: ImageServer) -> None:
    """One image that fails ends the downloads of the question's other images."""
    before = asyncio.all_tasks()
    urls = [f"{server.url}/missing", f"{server.url}/silent"]
    assert await refused(images(), *urls) == "image_fetch"
    assert asyncio.all_tasks() == before


async def test_only_so_many_at_once(server: ImageServer) -> None:
    """However many images are requested, the number of connections is bounded."""
    found = images(max_count=100)
    urls = [f"{server.url}/silent?{number}" for number in range(MOST_AT_ONCE + 5)]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await got(found, *urls)
    assert 0 < len(server.seen) <= MOST_AT_ONCE


async def test_only_so_much_is_held() -> None:
    """Images that wait for their scores are bounded together, and free their place afterwards.

    One that is to be fetched counts as the largest allowed size.
    """
    found, part = images(most_held=MOST), {"image_url": data_url(PNG)}
    async with found.of([part]):
        with pytest.raises(QueueFullError):
            await got(found, "http://127.0.0.1:9/png")
    found = images(most_held=len(PNG))
    async with found.of([part]):
        with pytest.raises(QueueFullError):
            async with found.of([part]):
                pass
    async with found.of([part]) as all:
        assert all == (PNG,)


# Allowed addresses


async def test_nothing_is_fetched_by_default(server: ImageServer) -> None:
    """Without configuration a URL is not fetched."""
    assert await refused(Images(), f"{server.url}/png") == "image_url"
    assert server.seen == []


@pytest.mark.parametrize(
    "url",
    [
        "http://user:secret@127.0.0.1/a.png",
        "http://",
        "http:///a.png",
        "http://[::1/a.png",
        "http://127.0.0.1:99999/a.png",
        "http://exa mple.org/a.png",
        "http://127.0.0.1:0/a.png",
    ],
)
async def test_what_is_no_plain_url_is_refused(url: str) -> None:
    """URLs with a user, without a host or with an invalid port are refused before any look-up."""
    assert await refused(images(), url) == "image_url"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:%d/png",
        "http://localhost:%d/png",
        "http://[::ffff:127.0.0.1]:%d/png",
        "http://2130706433:%d/png",
        "http://0x7f.1:%d/png",
        "http://0:%d/png",
        "http://127.1:%d/png",
    ],
)
async def test_this_network_is_out_of_reach(server: ImageServer, url: str) -> None:
    """However loopback is written, no address that is not public is connected to."""
    fetcher = ImageFetcher(AnyHost(hosts=("*",)), MOST)
    with pytest.raises(NotScorableError, match=r"not public|has no address") as raised:
        await fetcher.fetch(url % server.port)
    fetcher.close()
    assert raised.value.reason == "image_url"
    assert server.seen == []


class AnyHost(FetchConfig):
    """Allows every host, so that only the address can be refused."""

    def allows(self, host: str, port: int | None) -> bool:
        return True


@pytest.mark.parametrize(
    "target", ["http://10.0.0.1/", "http://169.254.169.254/latest/meta-data/", "file:///etc/passwd"]
)
async def test_a_redirect_goes_the_same_way(server: ImageServer, target: str) -> None:
    """A redirect's host, scheme and address are checked like the URL's own."""
    found = images(f"127.0.0.1:{server.port}")
    assert await refused(found, f"{server.url}/to/{target}") == "image_url"
    assert len(server.seen) == 1


async def test_redirects_are_followed(server: ImageServer) -> None:
    """An allowed redirect leads to the image, relative or not; a circle ends."""
    found = images(f"127.0.0.1:{server.port}")
    assert await got(found, f"{server.url}/to/{server.url}/png") == (PNG,)
    assert await got(found, f"{server.url}/to/%2Fjpeg") == (JPEG,)
    server.forget()
    assert await refused(found, f"{server.url}/circle") == "image_fetch"
    assert len(server.seen) == MOST_REDIRECTS + 1


async def test_the_address_that_was_checked_is_used(
    server: ImageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name is looked up once: what it leads to later (DNS rebinding) changes nothing."""
    lookups: list[Any] = []

    def look_up(host: str, port: int, **_: Any) -> Any:
        lookups.append(host)
        address = "127.0.0.1" if len(lookups) == 1 else "127.0.0.99"
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert await got(images(), f"http://images.test:{server.port}/png") == (PNG,)
    assert lookups.count("images.test") == 1
    assert server.seen[0].headers["host"] == f"images.test:{server.port}"


async def test_one_private_address_spoils_a_name(
    server: ImageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If any address of a name is not public, none of them is connected to."""
    both = [("203.0.113.7", 80), ("127.0.0.1", server.port)]
    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", each) for each in both]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    public = Images(ImagesConfig(fetch=FetchConfig(hosts=("*",))))
    assert await refused(public, "http://a.test/") == "image_url"
    assert server.seen == []


@pytest.mark.parametrize(
    ("host", "url", "is_allowed"),
    [
        ("*", "https://example.org/a", True),
        ("*", "https://example.org:22/a", False),
        ("*", "http://example.org:80/a", True),
        ("*:*", "http://example.org:8080/a", True),
        ("example.org", "https://EXAMPLE.org/a", True),
        ("example.org", "https://www.example.org/a", False),
        ("*.example.org", "https://www.example.org/a", True),
        ("*.example.org", "https://example.org/a", False),
        ("*.example.org", "https://www.example.org.evil.net/a", False),
        ("example.org:8080", "http://example.org:8080/a", True),
        ("example.org:8080", "http://example.org/a", False),
        ("example.org", "http://example.org.evil.net/a", False),
        ("exampleXorg", "http://example.org/a", False),
        ("[::1]:8080", "http://[::1]:8080/a", True),
    ],
)
def test_hosts_that_are_named(host: str, url: str, is_allowed: bool) -> None:
    """A host stands for itself, a star for anything except a port."""
    found = httpx.URL(url)
    config = FetchConfig(hosts=(host,))
    assert config.allows(found.raw_host.decode(), found.port) is is_allowed


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a key and a certificate for images.test into one file; return its path."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "images.test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("images.test")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "images.pem"
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(secret + made.public_bytes(pem))
    return path


async def test_a_certificate_is_of_the_name_not_of_the_address(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the address is fixed, TLS checks the certificate for the URL's host."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    where = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0))]
    with ImageServer(context) as server:
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: where)
        fetch = FetchConfig(hosts=("*:*",), allow_private=True)
        fetcher = ImageFetcher(fetch, MOST)
        with pytest.raises(NotScorableError, match="ConnectError"):
            await fetcher.fetch(f"https://images.test:{server.port}/png")  # not yet trusted
        fetcher._trust.load_verify_locations(certificate)
        assert await fetcher.fetch(f"https://images.test:{server.port}/png") == PNG
        with pytest.raises(NotScorableError, match="ConnectError"):
            await fetcher.fetch(f"https://other.test:{server.port}/png")
        fetcher.close()


# Configuration


def load(tmp_path: Path, images: str) -> ImagesConfig:
    path = tmp_path / "proxy.yaml"
    path.write_text(f"calibrator:\n  checkpoint: fake:0.5\n  images:\n{images}")
    return load_config(path).calibrator.images


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("    fetch: false\n", ImagesConfig()),
        ("    fetch: true\n", ImagesConfig(fetch=FetchConfig(hosts=("*",)))),
        (
            "    fetch: {hosts: [a.example, '*.b.example:8080'], allow_private: true}\n",
            ImagesConfig(
                fetch=FetchConfig(hosts=("a.example", "*.b.example:8080"), allow_private=True)
            ),
        ),
        (
            "    max_bytes: 1MB\n    max_count: 2\n    ignore: true\n",
            ImagesConfig(max_bytes=2**20, max_count=2, ignore=True),
        ),
    ],
)
def test_images_are_configured(tmp_path: Path, text: str, expected: ImagesConfig) -> None:
    """The settings of images are read from proxy.yaml, with their defaults."""
    assert load(tmp_path, text) == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("    fetsh: true\n", "unknown key 'fetsh'; did you mean 'fetch'?"),
        ("    fetch: {host: [a]}\n", "unknown key 'host'; did you mean 'hosts'?"),
        ("    fetch: {hosts: []}\n", "at least 1 item"),
        ("    fetch: {allow_private: true}\n", "is missing"),
        ("    fetch: {hosts: ['https://a.example/']}\n", "a host is a name such as"),
        ("    fetch: 5\n", "calibrator.images.fetch"),
        ("    max_bytes: 10 potatoes\n", "a size is a whole number"),
        ("    max_count: 0\n", "more than 0"),
    ],
)
def test_mistakes_name_their_line(tmp_path: Path, text: str, sentence: str) -> None:
    """Mistakes are refused with file, line, key and, where there is one, the intended key."""
    with pytest.raises(InvalidDocumentError) as raised:
        load(tmp_path, text)
    messages = [str(problem) for problem in raised.value.problems]
    assert any(sentence in each and "calibrator.images" in each for each in messages), messages
    assert "proxy.yaml:4: " in messages[0]
