"""A running proxy for end-to-end tests: real uvicorn, a real store, an injected scorer.

`LiveProxy` runs on a thread of the test's process, `ProxyProcess` is `pinocchio serve` itself.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from openai import OpenAI

from calibrator import FieldDoubt, Item, NotScorableError, Score, Scorer, UnsupportedSentence
from policies import Policy, load_policy, parse_policy
from proxy.app import App, create_app_of
from proxy.config.policy_book import PolicyBook
from proxy.config.sections import Config
from proxy.config.settings.admin import AdminConfig
from proxy.config.setup import Setup
from proxy.desk.listening import AdminSocket, bind_admin
from proxy.http.listener.sockets import server_settings
from proxy.optional.guardrails.listening import bind_guardrails
from proxy.scoring.loader import load_fact_file, load_recalibrations, recalibrations_of_stand_in
from tests.running.warm_cli import WarmProcess, run_warm

ROOT = Path(__file__).parents[2]
Json = dict[str, Any]
PATIENCE_S = 120  # for waits that only keep a test from hanging: other work may share the machine
SCORE_TIMEOUT_S = 10  # of a proxy for which a test sets no other; a busy machine needs more
MEMBER = re.compile(rb',"pinocchio":\{.*\}(?=\}\s)|,"pinocchio":\{.*\}(?=\}$)')

OBSERVE = """
version: 1
name: watch
mode: shadow
rules:
  - {name: unsure, when: {confidence: {below: 0.3}}, then: hold}
default: deliver
"""


# Scorers


def found_in(answer: str) -> dict[str, Any]:
    """Read the fields of a score besides its confidence from an answer, for tests that need them.

    It has words such as `support=0.4`, `basis=context,computed`, `act=refusal`, `facts=needed`,
    `task=unfamiliar`, `unread=context_not_read`, `missing=noon` and `contradicted=42`; the whole
    answer is the sentence that is not supported.
    """
    words = dict(re.findall(r"\b([a-z]+)=([\w.,]+)", answer))
    kinds = [kind for kind in ("missing", "contradicted") if kind in words]
    found: dict[str, Any] = {
        "unsupported": tuple(
            UnsupportedSentence(answer, tuple(words[kind].split(",")), kind) for kind in kinds
        ),
        "needs_facts": "facts" in words,
        "is_unfamiliar": "task" in words,
        "act": words.get("act", "answer"),
        "unread": words.get("unread", ""),
    }
    if "support" in words:
        found["support"] = float(words["support"])
    if "basis" in words:
        found["basis"] = tuple(words["basis"].split(","))
    return found


@dataclass
class WordScorer:
    """Reads the confidence from the answer, as in `Paris p=0.92`; without one it is 0.5.

    An answer with the word "doubted" gets a reason for doubt and a doubted argument.
    """

    name: str = "words@1"
    seen: list[Item] = field(default_factory=list)

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        self.seen += items
        return [self._score(item.answer) for item in items]

    def _score(self, answer: str) -> Score:
        match = re.search(r"p=([0-9.]+)", answer)
        value = float(match[1]) if match else 0.5
        because = ("it is doubted",) if "doubted" in answer else ()
        fields = (FieldDoubt("city", "not in the conversation", 0, 0.12344),) if because else ()
        found = found_in(answer) if "=" in answer else {}
        return Score(value, value, "truncated" in answer, because, fields=fields, **found)


@dataclass
class SlowScorer(WordScorer):
    """Scores nothing but the warm-up before `proceed` is set."""

    proceed: threading.Event = field(default_factory=threading.Event)
    has_begun: threading.Event = field(default_factory=threading.Event)

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        if items[0].answer != "warm-up":
            self.has_begun.set()
            self.proceed.wait(10)
        return super().score_batch(items)


@dataclass
class FailingScorer(WordScorer):
    """Raises, with the answer in its message, for every answer except the warm-up."""

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        if items[0].answer != "warm-up":
            raise RuntimeError(f"cannot score {items[0].answer!r}")
        return super().score_batch(items)


@dataclass
class HearingScorer(WordScorer):
    """Compares an answer with the other models': each that begins with the same word adds 0.2, each
    that begins with another word subtracts 0.1. An answer that begins with no word is not compared.
    """

    opinion: str = "words@1+opinion@1"

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        return [
            self._with_opinions(item, score)
            for item, score in zip(items, super().score_batch(items), strict=True)
        ]

    def _with_opinions(self, item: Item, score: Score) -> Score:
        if not item.others:
            return score
        alone = score.confidence if item.alone is None else item.alone
        compared = tuple(self._compared(item.answer, other.answer) for other in item.others)
        moved = alone + 0.2 * compared.count("agree") - 0.1 * compared.count("differ")
        value = round(min(1.0, max(0.0, moved)), 6)
        return replace(score, score=value, confidence=value, alone=alone, compared=compared)

    @staticmethod
    def _compared(one: str, other: str) -> str:
        first, second = (re.match(r"[A-Za-z]+\b(?!=)", each) for each in (one, other))
        if first is None or second is None:
            return "untold"
        return "agree" if first[0] == second[0] else "differ"


@dataclass
class SightedScorer(WordScorer):
    """Reads images; reports one that begins with `BM` as damaged."""

    reads_images: bool = True
    name: str = "sighted@1"

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        if any(image.startswith(b"BM") for item in items for image in item.images):
            raise NotScorableError("image_format", "an image is damaged")
        return super().score_batch(items)


@dataclass
class ShortScorer(WordScorer):
    """Returns one score too few, except for the warm-up."""

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        scores = super().score_batch(items)
        return scores if items[0].answer == "warm-up" else scores[1:]


# Proxies


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()


def create_app(
    config: Config,
    policy: Policy | None = None,
    *,
    load: Callable[[], Scorer] | None = None,
    is_open: bool = True,
    admin: AdminSocket | None = None,
    guardrails: socket.socket | None = None,
) -> App:
    """Create a proxy whose configuration does not change; nothing is opened before it starts up.

    `load` replaces the configured calibrator, `policy` the configured policies. The other arguments
    are those of `create_app_of`.
    """
    book = PolicyBook(policy or load_policy(config.policies))
    curves = load_recalibrations(config.calibrator), recalibrations_of_stand_in(config.calibrator)
    setup = Setup(None, config, book, *curves, load_fact_file(config.calibrator))
    return create_app_of(setup, load=load, is_open=is_open, admin=admin, guardrails=guardrails)


class LiveProxy:
    """One proxy in front of one upstream; it runs until `stop`."""

    def __init__(
        self,
        upstream_url: str,
        folder: Path,
        *,
        policy: str | Path = OBSERVE,
        scorer: Scorer | None = None,
        load: Callable[[], Scorer] | None = None,
        is_open: bool = True,
        has_desk: bool = False,
        waits: bool = True,  # until there is a calibrator
        upstream: Mapping[str, Any] | None = None,
        **sections: Any,
    ) -> None:
        self.store_path = folder / "held.db"
        self.scorer = scorer or WordScorer()
        self.config = config = Config.model_validate(
            {
                "upstreams": {
                    "faulty": {"base_url": upstream_url, **(upstream or {})},
                    "demo": {"demo": True},
                },
                "models": (
                    {"match": "demo", "upstream": "demo"},
                    {"match": "*", "upstream": "faulty"},
                ),
                "store": f"sqlite:///{self.store_path}",
                "calibrator": {"timeout_s": SCORE_TIMEOUT_S},
                **sections,
                "limits": {"stream_wait_ms": 1_000 * SCORE_TIMEOUT_S, **sections.get("limits", {})},
            }
        )
        is_configured = {"checkpoint", "engine"} & sections.get("calibrator", {}).keys()
        self.admin = bind_admin(AdminConfig(port=0, token=config.admin.token)) if has_desk else None
        self.guardrails = bind_guardrails(config.guardrails)
        app = create_app(
            config,
            load_policy(policy) if isinstance(policy, Path) else parse_policy(policy, "test.yaml"),
            load=load or (None if is_configured else lambda: self.scorer),
            is_open=is_open,
            admin=self.admin,
            guardrails=self.guardrails,
        )
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._server = _Server(server_settings(app, config.limits, grace_s=1))
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._listening]}, daemon=True
        )
        self._thread.start()
        assert self._server.is_up.wait(PATIENCE_S)
        if load is None and waits:
            self.wait_until_ready()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def guardrails_url(self) -> str:
        """Return the URL that other gateways ask, with the section `guardrails`."""
        assert self.guardrails is not None
        return f"http://127.0.0.1:{self.guardrails.getsockname()[1]}"

    @cached_property
    def http(self) -> httpx.Client:
        """Return a client that asks for no encoding, so that bodies arrive as they were sent."""
        headers = {"accept-encoding": "identity", "authorization": "Bearer sk-client"}
        return httpx.Client(base_url=self.url, headers=headers, trust_env=False, timeout=PATIENCE_S)

    @cached_property
    def openai(self) -> OpenAI:
        return OpenAI(
            base_url=self.base_url, api_key="sk-client", max_retries=0, timeout=PATIENCE_S
        )

    @cached_property
    def desk(self) -> httpx.Client:
        """Return a client of the review desk, with the configured token."""
        assert self.admin is not None
        token = self.config.admin.token.get_secret_value()
        headers = {"authorization": f"Bearer {token}"}
        return httpx.Client(
            base_url=self.admin.url, headers=headers, trust_env=False, timeout=PATIENCE_S
        )

    def ask(
        self, text: str = "p=0.9", model: str = "ok", headers: Any = None, **fields: Any
    ) -> httpx.Response:
        """Post one question; the upstream's `ok` answers with its text."""
        return self.http.post(
            "/v1/chat/completions", json=question(text, model, **fields), headers=headers
        )

    def post_raw(self, body: bytes | Json, **headers: str) -> RawReply:
        return post_raw(f"{self.base_url}/chat/completions", body, **headers)

    def recorded(self, request_id: str, *columns: str) -> list[Any]:
        """Return these JSON columns of an exchange's record, once it is written."""
        query = f"SELECT {', '.join(columns)} FROM exchanges WHERE request_id = ?"

        def rows() -> list[Any]:
            with closing(sqlite3.connect(self.store_path)) as connection:
                return connection.execute(query, (request_id,)).fetchall()

        until(rows)
        return [None if value is None else json.loads(value) for value in rows()[0]]

    def wait_until_ready(self) -> None:
        until(lambda: self.http.get("/readyz").status_code == 200)

    def ask_to_stop(self) -> None:
        self._server.should_exit = True
        for client in ("http", "openai", "desk"):
            if client in self.__dict__:
                getattr(self, client).close()

    def stop(self) -> None:
        self.ask_to_stop()
        self._thread.join(10)
        self._listening.close()


@contextmanager
def proxies(make: Callable[..., LiveProxy]) -> Iterator[Callable[..., LiveProxy]]:
    """Yield a function that starts a proxy by `make(**options)`, or returns a running one.

    A running proxy is returned if it has the same options. All of them stop in the end.
    """
    started: dict[str, LiveProxy] = {}

    def start(**options: Any) -> LiveProxy:
        key = repr(sorted(options.items()))
        if key not in started:
            started[key] = make(**options)
        return started[key]

    yield start
    for proxy in started.values():
        proxy.ask_to_stop()
    for proxy in started.values():
        proxy.stop()


class ProxyProcess:
    """`pinocchio serve` as a person starts it, in a context that ends it."""

    def __init__(
        self, folder: Path, config: str, *options: str, env: Mapping[str, str] | None = None
    ) -> None:
        path = folder / "proxy.yaml"
        path.write_text(config)
        self._folder = folder
        command = ["serve", "--config", str(path), "--port", "0", *options]
        with (folder / "stdout").open("w") as stdout, (folder / "stderr").open("w") as stderr:
            self._process = WarmProcess(
                command,
                stdout=stdout,
                stderr=stderr,
                cwd=ROOT,
                env=environment() | {"PYTHONUNBUFFERED": "1"} | dict(env or {}),
            )
        until(lambda: "\n" in self.stdout() or self._process.poll() is not None, PATIENCE_S)
        assert "listens on" in self.stdout(), self.stderr()
        self.base_url = self.stdout().splitlines()[0].split()[-1]
        self.port = httpx.URL(self.base_url).port
        ready = self.base_url.removesuffix("/v1") + "/readyz"
        until(lambda: httpx.get(ready).status_code == 200, PATIENCE_S)

    @property
    def pid(self) -> int:
        return self._process.pid

    def stdout(self) -> str:
        """Return all that it has written to stdout so far."""
        return (self._folder / "stdout").read_text()

    def stderr(self) -> str:
        """Return all that it has written to stderr so far."""
        return (self._folder / "stderr").read_text()

    def lines(self, event: str = "request") -> list[dict[str, Any]]:
        """Return the log lines of one kind."""
        lines = (line for line in self.stderr().splitlines() if line.startswith("{"))
        return [line for line in map(json.loads, lines) if line["event"] == event]

    def __enter__(self) -> ProxyProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self.wait(within_s=20)

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self, within_s: float) -> int:
        """Return the exit status; raise TimeoutExpired."""
        return self._process.wait(within_s)


def run_cli(*arguments: str, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `pinocchio ARGUMENTS` to its end."""
    return run_warm(arguments, cwd=cwd, env=environment() | env, timeout_s=PATIENCE_S)


def free_port() -> int:
    """Return a port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


def environment() -> dict[str, str]:
    """Return the environment without keys, limited to one core."""
    ours = {k for k in os.environ if k.startswith(("OPENAI_", "PINOCCHIO_"))} - {"PINOCCHIO_CACHE"}
    kept = {k: v for k, v in os.environ.items() if k not in ours}
    return kept | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


# Requests and replies


@contextmanager
def streaming(
    proxy: LiveProxy, text: str, model: str, **fields: Any
) -> Iterator[tuple[httpx.Response, Iterator[bytes]]]:
    """Yield the response of a stream, and its bytes part by part as they arrive."""
    body = question(text, model, stream=True, **fields)
    with proxy.http.stream("POST", "/v1/chat/completions", json=body) as response:
        yield response, response.iter_raw()


def question(text: str, model: str = "ok", **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **fields}


@dataclass(frozen=True)
class RawReply:
    """A reply as it was sent, without its framing."""

    status: int
    headers: httpx.Headers
    body: bytes


def post_raw(url: str, body: bytes | Json, **headers: str) -> RawReply:
    """Post a body and return the reply without decoding it."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {"content-type": "application/json", "authorization": "Bearer sk-client"}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    with httpx.stream("POST", url, content=content, headers=fields, timeout=PATIENCE_S) as response:
        return RawReply(response.status_code, response.headers, b"".join(response.iter_raw()))


def without_member(body: bytes) -> bytes:
    """Return the bytes without our `pinocchio` member, which precedes a last brace."""
    return MEMBER.sub(b"", body)


def events_in(stream: bytes) -> list[dict[str, Any]]:
    """Return the chunks of a stream, without [DONE]; an error event is one of them."""
    lines = [line for line in stream.splitlines() if line.startswith(b"data: ")]
    return [json.loads(line[6:]) for line in lines if line != b"data: [DONE]"]


def members_in(stream: bytes) -> list[dict[str, Any]]:
    return [chunk["pinocchio"] for chunk in events_in(stream) if "pinocchio" in chunk]


def text_in(stream: bytes) -> str:
    """Return the text of all deltas."""
    deltas = (choice["delta"] for chunk in events_in(stream) for choice in chunk["choices"])
    return "".join(delta.get("content") or "" for delta in deltas)


def error_of(response: httpx.Response) -> dict[str, Any]:
    """Return the error in the proxy's own envelope; fail if it is another one or incomplete."""
    assert response.headers["x-pinocchio-error"] == "true"
    assert response.headers["content-type"] == "application/json"
    error: dict[str, Any] = response.json()["error"]
    always = {"message", "type", "param", "code"}
    assert always <= set(error) <= always | {"review_id", "note", "retry_after_s"}
    assert error["message"]
    return error


def chat_request(body: Json, *fields: str) -> bytes:
    """Return head and body of a request for a chat completion, with further fields of the head."""
    sent = json.dumps(body).encode()
    lines = (
        "POST /v1/chat/completions HTTP/1.1",
        *("host: 127.0.0.1", *fields, "authorization: Bearer sk-client"),
        *("content-type: application/json", f"content-length: {len(sent)}"),
    )
    return "\r\n".join((*lines, "\r\n")).encode() + sent


@contextmanager
def left_behind(port: int, body: Json) -> Iterator[None]:
    """Ask for a chat completion and leave at the end of the block without having read anything."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.sendall(chat_request(body))
        yield


def until(holds: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    """Wait for a condition; fail if it does not become true in time."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)
