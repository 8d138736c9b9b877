"""OpenTelemetry: what a collector gets of real requests, decoded from OTLP's protobuf."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from proxy.config.sections import Config
from proxy.errors import StartupError
from proxy.observe import names
from proxy.observe.traces import trace_of
from tests.proxy.observe.otlp_receiver import OtlpReceiver, attributes_of
from tests.running.desk_client import DESK, HOLD, scraped, value
from tests.running.live_proxy import (
    FailingScorer,
    HearingScorer,
    LiveProxy,
    create_app,
    environment,
    question,
    until,
)
from tests.servers.faulty_upstream import FaultyUpstream

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {}}}
Start = Callable[..., LiveProxy]


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as receiver:
        yield receiver


@pytest.fixture
def start(upstream: FaultyUpstream, receiver: OtlpReceiver, tmp_path: Path) -> Iterator[Start]:
    """Yield a function that starts a proxy that exports to the receiver.

    All of them stop in the end.
    """
    started: list[LiveProxy] = []

    def start(otel: dict[str, Any] | None = None, **options: Any) -> LiveProxy:
        section = {"endpoint": receiver.url, **(otel or {})}
        proxy = LiveProxy(upstream.base_url, tmp_path, telemetry={"otel": section}, **options)
        started.append(proxy)
        return proxy

    yield start
    for proxy in started:
        proxy.stop()


def arrived(receiver: OtlpReceiver, spans: int, events: int) -> tuple[list[Span], list[LogRecord]]:
    """Return exactly so many spans, in the order in which they began."""
    until(lambda: len(receiver.spans) >= spans and len(receiver.events) >= events, 20)
    assert (len(receiver.spans), len(receiver.events)) == (spans, events)
    return (
        sorted(receiver.spans, key=lambda span: span.start_time_unix_nano),
        sorted(receiver.events, key=lambda event: event.time_unix_nano),
    )


def test_a_call_is_a_span_below_the_clients(
    start: Start,
    receiver: OtlpReceiver,
    upstream: FaultyUpstream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call is a span below the client's, with the conventions' attributes; upstream gets
    its id and the client's other headers, and the confidence is an event of the span.
    """
    monkeypatch.setenv("OTEL_SERVICE_NAME", "gate")
    otel = {"headers": {"x-key": "secret"}}
    proxy = start(otel, policy=HOLD)
    headers = {"traceparent": PARENT, "tracestate": "a=1", "x-other": "stays"}
    reply = proxy.ask("p=0.3", headers=headers)
    [span], [event] = arrived(receiver, 1, 1)
    assert (span.name, span.kind) == ("chat ok", Span.SPAN_KIND_CLIENT)
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, SPAN)
    assert upstream.last.header("traceparent") == f"00-{TRACE}-{span.span_id.hex()}-01"
    assert upstream.last.header("tracestate") == "a=1"
    assert upstream.last.header("x-other") == "stays"
    attributes = attributes_of(span.attributes)
    sent = httpx.URL(upstream.base_url)
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "faulty",
        "gen_ai.request.model": "ok",
        "gen_ai.response.model": attributes["gen_ai.response.model"],
        "gen_ai.response.id": attributes["gen_ai.response.id"],
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": attributes["gen_ai.usage.input_tokens"],
        "gen_ai.usage.output_tokens": attributes["gen_ai.usage.output_tokens"],
        "server.address": sent.host,
        "server.port": sent.port,
        "http.response.status_code": 200,
        "pinocchio.upstream": "faulty",
    }
    assert attributes["gen_ai.response.model"] == "ok-2099"
    assert 0 < span.end_time_unix_nano - span.start_time_unix_nano < 10e9
    assert span.status.code == Status.STATUS_CODE_UNSET
    assert event.event_name == "gen_ai.evaluation.result"
    assert (event.trace_id.hex(), event.span_id) == (TRACE, span.span_id)
    assert attributes_of(event.attributes) == {
        "gen_ai.evaluation.name": "correctness",
        "gen_ai.evaluation.score.value": 0.3,
        "gen_ai.evaluation.score.label": "hold",
        "gen_ai.evaluation.explanation": reply.headers["x-pinocchio-policy"],
        "gen_ai.response.id": attributes["gen_ai.response.id"],
        "pinocchio.request_id": reply.headers["x-pinocchio-request-id"],
        "pinocchio.confidence.status": "scored",
        "pinocchio.policy": reply.headers["x-pinocchio-policy"],
        "pinocchio.mode": "enforce",
        "pinocchio.calibrator": "words@1",
        "pinocchio.basis": ["likeness"],
        "pinocchio.review_id": reply.headers["x-pinocchio-review-id"],
    }
    assert {each["x-key"] for each in receiver.headers} == {"secret"}
    assert {each["service.name"] for each in receiver.resources} == {"gate"}


def test_no_value_costs_a_batch(start: Start, receiver: OtlpReceiver) -> None:
    """Half a surrogate pair and a number of more than 64 bits, from a
    client or an upstream, are sent in a form that the protocol has.
    """
    usage = {"prompt_tokens": 10**30, "completion_tokens": 2, "total_tokens": 3}
    message = {"role": "assistant", "content": "p=0.9"}
    choice = {"index": 0, "message": message, "finish_reason": "st\udc80p"}
    reply = {"id": "\ud800", "model": "\ud801", "choices": [choice], "usage": usage}
    body = json.dumps(question("?", "m\ud800", reply=reply)).encode()
    assert start().post_raw(body, x_faulty="told").status == 200
    [span], _ = arrived(receiver, 1, 1)
    assert span.name == "chat m\\ud800"
    attributes = attributes_of(span.attributes)
    assert attributes["gen_ai.response.id"] == "\\ud800"
    assert attributes["gen_ai.response.finish_reasons"] == ["st\\udc80p"]
    assert attributes["gen_ai.usage.input_tokens"] == str(10**30)


def test_streams_are_spans_to_their_end(start: Start, receiver: OtlpReceiver) -> None:
    """A stream's span ends with it; ids, reasons and requested usage are read from its events."""
    proxy = start()
    proxy.ask("p=0.6", stream=True, stream_options={"include_usage": True})
    [span], [event] = arrived(receiver, 1, 1)
    attributes = attributes_of(span.attributes)
    assert attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert span.status.code == Status.STATUS_CODE_UNSET
    assert attributes["gen_ai.response.id"]
    assert 0 <= attributes["gen_ai.response.time_to_first_chunk"] < 10
    assert attributes_of(event.attributes)["gen_ai.evaluation.score.value"] == 0.6
    assert attributes_of(event.attributes)["gen_ai.response.id"] == attributes["gen_ai.response.id"]


def test_each_call_for_one_request_is_a_span(start: Start, receiver: OtlpReceiver) -> None:
    """Several calls for one request are spans below the client's; the judged one has the event."""
    policy = (
        "version: 1\nname: up\nrules: [{name: unsure, when: {confidence: {below: 0.5}},"
        " then: {escalate: {to: say sure p=0.9}}}]\ndefault: deliver\n"
    )
    proxy = start(policy=policy)
    proxy.ask("p=0.2", headers={"traceparent": PARENT})
    spans, [event] = arrived(receiver, 2, 1)
    assert [span.name for span in spans] == ["chat ok", "chat say sure p=0.9"]
    assert {span.parent_span_id.hex() for span in spans} == {SPAN}
    assert event.span_id == spans[1].span_id
    assert attributes_of(event.attributes)["gen_ai.evaluation.score.value"] == 0.9


def test_second_opinions_are_spans_of_the_same_trace(start: Start, receiver: OtlpReceiver) -> None:
    """Calls for second opinions are spans of the same trace, and the first call has the event."""
    policy = (
        "version: 1\nname: two\nsecond_opinion: {from: [say Paris, status-500], n: 2}\n"
        "default: deliver\n"
    )
    proxy = start(policy=policy, scorer=HearingScorer())
    proxy.ask("Paris p=0.5")
    spans, [event] = arrived(receiver, 3, 1)
    by_name = {span.name: span for span in spans}
    assert len({span.trace_id for span in spans}) == 1
    assert event.span_id == by_name["chat ok"].span_id
    failed = by_name["chat status-500"]
    assert failed.status.code == Status.STATUS_CODE_ERROR
    assert attributes_of(failed.attributes)["error.type"] == "500"


@pytest.mark.parametrize(
    ("model", "error", "status"),
    [("status-429", "429", 429), ("hang-up", "upstream_broke_off", None), ("cut", None, 200)],
)
def test_calls_that_fail_say_how(
    start: Start, receiver: OtlpReceiver, model: str, error: str | None, status: int | None
) -> None:
    """A failed call has the status of HTTP, or our code where there was none or no whole reply."""
    start().ask("?", model)
    until(lambda: len(receiver.spans) == 1, 20)
    [span] = receiver.spans
    attributes = attributes_of(span.attributes)
    assert span.status.code == Status.STATUS_CODE_ERROR
    assert attributes.get("http.response.status_code") == status
    assert attributes["error.type"] == error or (
        error is None and attributes["error.type"].startswith("up")
    )


def test_an_absent_confidence_has_its_reason(start: Start, receiver: OtlpReceiver) -> None:
    """An absent confidence has an explanation, and an `error.type` where scoring failed."""
    proxy = start(scorer=FailingScorer())
    proxy.ask("p=0.5")
    proxy.ask("?", "status-503")
    _, events = arrived(receiver, 2, 2)
    failed, skipped = (attributes_of(each.attributes) for each in events)
    assert "gen_ai.evaluation.score.value" not in failed
    assert failed["error.type"] == "scorer_failed"
    assert failed["gen_ai.evaluation.explanation"] == "no confidence: scorer_failed"
    assert "gen_ai.evaluation.score.value" not in skipped
    assert "error.type" not in skipped
    assert skipped["gen_ai.evaluation.explanation"] == "no confidence: upstream_status"


def test_other_surfaces_have_spans_and_their_bytes(
    start: Start, receiver: OtlpReceiver, upstream: FaultyUpstream
) -> None:
    """Embeddings are relayed unchanged and have a span; a request that calls no model has none."""
    proxy = start()
    body = {"model": "e-1", "input": "text"}
    assert proxy.http.post("/v1/embeddings", json=body).json() == body
    assert proxy.http.get("/v1/models", headers={"traceparent": PARENT}).status_code == 200
    assert upstream.last.header("traceparent") == PARENT
    [span], _ = arrived(receiver, 1, 0)
    assert span.name == "embeddings"


def test_only_what_is_sampled_is_sent(
    start: Start, receiver: OtlpReceiver, upstream: FaultyUpstream
) -> None:
    """The client decides about its own traces, and `sample` about requests without one."""
    proxy = start({"sample": 0.0})
    proxy.ask("p=0.5", headers={"traceparent": f"00-{TRACE}-{SPAN}-00"})
    sent = upstream.last.header("traceparent")
    assert sent is not None
    assert sent.startswith(f"00-{TRACE}-")
    assert sent.endswith("-00")
    proxy.ask("p=0.5")
    proxy.ask("p=0.5", headers={"traceparent": PARENT})
    arrived(receiver, 1, 1)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        b"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        b"00-00000000000000000000000000000000-b7ad6b7169203331-01",
        b"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
        b"00-" + b"g" * 32 + b"-b7ad6b7169203331-01",
        b"0" * 100_000,
    ],
)
def test_a_traceparent_that_is_none_begins_a_new_trace(header: bytes) -> None:
    """An invalid traceparent begins a new trace, as W3C's specification says."""
    found = trace_of([(b"traceparent", header)], 1.0)
    assert (found.parent_id, len(found.trace_id), found.is_sampled) == (None, 16, True)
    later = b"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more"
    assert trace_of([(b"traceparent", later)], 1.0).trace_id.hex() == TRACE


def test_requests_at_once_do_not_mix(start: Start, receiver: OtlpReceiver) -> None:
    """Concurrent requests each have their own event and trace."""
    proxy = start()
    with ThreadPoolExecutor(8) as pool:

        def ask(number: int) -> None:
            parent = f"00-{number:032x}-{number:016x}-01"
            body = question(f"p=0.{number:02}", "ok", stream=number % 2 == 0)
            headers = {"traceparent": parent}
            httpx.post(
                f"{proxy.base_url}/chat/completions", json=body, headers=headers, trust_env=False
            )

        list(pool.map(ask, range(1, 41)))
    spans, events = arrived(receiver, 40, 40)
    ids = {span.trace_id: span.span_id for span in spans}
    for event in events:
        number = int(event.trace_id.hex(), 16)
        assert event.span_id == ids[event.trace_id]
        confidence = attributes_of(event.attributes)["gen_ai.evaluation.score.value"]
        assert confidence == float(f"0.{number:02}")


def test_a_collector_that_is_away_costs_no_request(start: Start, receiver: OtlpReceiver) -> None:
    """What an absent collector does not take is dropped and counted; later it gets what follows."""
    receiver.status = 400
    proxy = start(**DESK)
    assert proxy.ask("p=0.5").headers["x-pinocchio-confidence"] == "0.5000"

    def now(name: str) -> float:
        return value(scraped(proxy.desk), f"pinocchio_telemetry_{name}_total", to="otel")

    until(lambda: now("dropped") == 2, 20)
    assert now("sent") == 0
    receiver.status = 200
    proxy.ask("p=0.5")
    until(lambda: now("sent") == 2, 20)
    arrived(receiver, 1, 1)


def test_what_waits_is_sent_at_the_end(start: Start, receiver: OtlpReceiver) -> None:
    """A proxy that stops sends what still waits."""
    proxy = start()
    for _ in range(5):
        proxy.ask("p=0.5")
    proxy.stop()
    assert (len(receiver.spans), len(receiver.events)) == (5, 5)


def test_names_are_those_of_the_conventions() -> None:
    """Each attribute that is used is in the pinned version of the conventions' package."""
    ours = {
        name: value
        for name, value in vars(names).items()
        if isinstance(value, str) and value.startswith("gen_ai.") and name != "EVALUATION_EVENT"
    }
    assert len(ours) == 13
    known = {value for value in vars(gen_ai_attributes).values() if isinstance(value, str)}
    assert set(ours.values()) <= known
    operations = {each.value for each in gen_ai_attributes.GenAiOperationNameValues}
    assert set(names.OPERATIONS.values()) <= operations
    providers = {each.value for each in gen_ai_attributes.GenAiProviderNameValues}
    assert set(names.PROVIDERS.values()) <= providers
    assert importlib.metadata.version("opentelemetry-semantic-conventions") == names.VERSION


def test_nothing_is_imported_unless_it_is_configured() -> None:
    """Without `telemetry` no module of OpenTelemetry, and none of ours for it, is imported."""
    code = (
        "import sys\nfrom proxy.app import create_app_of\n"
        "from proxy.config.setup import load_setup\n"
        "create_app_of(load_setup(None))\n"
        "names = ('otel', 'traces', 'evaluation', 'outbox')\n"
        "ours = tuple(f'proxy.observe.{name}' for name in names)\n"
        "found = [m for m in sys.modules if m.startswith(('opentelemetry', *ours))]\n"
        "assert not found, found"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(),
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_libraries_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing library is named with the command that installs it."""
    monkeypatch.delitem(sys.modules, "proxy.observe.otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    config = Config.model_validate({"telemetry": {"otel": {}}})
    with pytest.raises(StartupError, match=r"telemetry\.otel needs libraries .*\[otel\]"):
        create_app(config)
