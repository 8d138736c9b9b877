"""Spans and evaluation events for an OpenTelemetry collector, sent by its SDK (extra `otel`)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from proxy.config.settings.telemetry import OtelConfig
from proxy.exchange.call import tokens
from proxy.http.wire.json_splice import json_object
from proxy.observe import names
from proxy.observe.evaluation import Evaluation
from proxy.observe.outbox import NotSentError
from proxy.observe.traces import CallSpan, Trace

EXPORT_S = 10.0
SCOPE = InstrumentationScope("pinocchio-proxy", attributes={"gen_ai.semconv": names.VERSION})


class OtelCollector:
    """The connection to one collector; `send` is called on one thread."""

    def __init__(self, config: OtelConfig) -> None:
        name = os.environ.get("OTEL_SERVICE_NAME") or "pinocchio-proxy"
        self._resource = Resource.create({"service.name": name})
        headers = {name: secret.get_secret_value() for name, secret in config.headers.items()}
        self._spans = OTLPSpanExporter(
            f"{config.endpoint}/v1/traces", headers=headers, timeout=EXPORT_S
        )
        self._logs = OTLPLogExporter(
            f"{config.endpoint}/v1/logs", headers=headers, timeout=EXPORT_S
        )

    def send(self, batch: Sequence[CallSpan | Evaluation]) -> None:
        """Send spans and evaluation events; the exporters retry by themselves.

        Raises NotSentError where the collector did not accept all of them.
        """
        spans = [self._span(each) for each in batch if isinstance(each, CallSpan)]
        events = [self._event(each) for each in batch if isinstance(each, Evaluation)]
        is_sent = not spans or self._spans.export(spans) is SpanExportResult.SUCCESS
        if events:
            is_sent &= self._logs.export(events) is LogRecordExportResult.SUCCESS
        if not is_sent:
            raise NotSentError("the collector took no batch", may_pass=False)

    def close(self) -> None:
        for exporter in (self._spans, self._logs):
            exporter.shutdown()  # type: ignore[no-untyped-call]  # of the SDK

    def _span(self, span: CallSpan) -> ReadableSpan:
        """Return a call's span as the SDK exports it."""
        is_failed = span.error is not None
        return ReadableSpan(
            _sendable(f"{span.operation} {span.model or ''}".rstrip()),
            context=_context(span.trace, span.span_id),
            parent=_parent(span.trace),
            resource=self._resource,
            attributes=span_attributes(span),
            kind=SpanKind.CLIENT,
            status=Status(StatusCode.ERROR, span.error) if is_failed else Status(),
            start_time=span.began_ns,
            end_time=span.ended_ns,
            instrumentation_scope=SCOPE,
        )

    def _event(self, evaluation: Evaluation) -> ReadableLogRecord:
        """Return an evaluation as a log record of its call's span."""
        span = NonRecordingSpan(_context(evaluation.trace, evaluation.span_id))
        record = LogRecord(
            timestamp=evaluation.at_ns,
            observed_timestamp=time.time_ns(),
            context=set_span_in_context(span, Context()),
            severity_number=SeverityNumber.INFO,
            attributes=evaluation_attributes(evaluation),
            event_name=names.EVALUATION_EVENT,
        )
        return ReadableLogRecord(record, self._resource, SCOPE)


def _flags(trace: Trace) -> TraceFlags:
    """Return the trace's flags: sampled or not."""
    return TraceFlags(TraceFlags.SAMPLED if trace.is_sampled else TraceFlags.DEFAULT)


def _context(trace: Trace, span_id: bytes, *, is_remote: bool = False) -> SpanContext:
    """Return the SDK's context of a span of this trace."""
    ids = int.from_bytes(trace.trace_id, "big"), int.from_bytes(span_id, "big")
    return SpanContext(*ids, is_remote=is_remote, trace_flags=_flags(trace))


def _parent(trace: Trace) -> SpanContext | None:
    """Return the context of the client's span, or None for a trace of our own."""
    if trace.parent_id is None:
        return None
    return _context(trace, trace.parent_id, is_remote=True)


def span_attributes(span: CallSpan) -> dict[str, Any]:
    """Return what is known of a call as attributes: `{"gen_ai.request.model": "gpt-5", ..}`."""
    facts, place = facts_of(span), span.place
    first_s = None
    if span.is_stream and span.first_ns is not None:
        first_s = (span.first_ns - span.began_ns) / 1e9
    return _without_none(
        {
            names.OPERATION: span.operation,
            names.PROVIDER: place.provider,
            names.REQUEST_MODEL: span.model or None,
            names.RESPONSE_MODEL: facts.model,
            names.RESPONSE_ID: facts.id,
            names.FINISH_REASONS: facts.finish_reasons or None,
            names.FIRST_CHUNK_S: first_s,
            names.INPUT_TOKENS: facts.input_tokens,
            names.OUTPUT_TOKENS: facts.output_tokens,
            names.SERVER_ADDRESS: place.address,
            names.SERVER_PORT: place.port,
            names.HTTP_STATUS: span.status,
            names.ERROR_TYPE: span.error,
            names.UPSTREAM: place.name,
        }
    )


def evaluation_attributes(evaluation: Evaluation) -> dict[str, Any]:
    """Return an evaluation as attributes: `{"gen_ai.evaluation.score.value": 0.71, ..}`.

    Unknown values are left out.
    """
    found = evaluation
    return _without_none(
        {
            names.EVALUATION_NAME: names.EVALUATED,
            names.EVALUATION_VALUE: found.confidence,
            names.EVALUATION_LABEL: found.action,
            names.EVALUATION_EXPLANATION: found.explanation,
            names.RESPONSE_ID: facts_of(found.call).id if found.call is not None else None,
            names.ERROR_TYPE: found.error,
            names.REQUEST_ID: found.request_id,
            names.STATUS: found.status,
            names.POLICY: found.policy,
            names.MODE: found.mode,
            names.CALIBRATOR: found.calibrator,
            names.BASIS: found.basis or None,
            names.SUPPORT: found.support,
            names.REVIEW_ID: found.review_id,
        }
    )


def _without_none(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes that are not None, converted by `_sendable`."""
    return {name: _sendable(each) for name, each in attributes.items() if each is not None}


def _sendable(value: Any) -> Any:
    """Return a text, an integer or a tuple of them in a form that the protocol can carry.

    A value that it cannot carry would cost the whole batch. Lone surrogates are escaped, and
    integers beyond 64 bits become text. Values of other types are returned unchanged.
    """
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, tuple):
        return tuple(map(_sendable, value))
    is_large = isinstance(value, int) and not -(2**63) <= value < 2**63
    return str(value) if is_large else value


@dataclass(frozen=True, slots=True)
class ReplyFacts:
    """A reply's facts; None where the reply does not state one."""

    id: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    finish_reasons: tuple[str, ...] = ()


def facts_of(span: CallSpan) -> ReplyFacts:
    """Return what a reply states about itself: id, model, tokens and finish reasons.

    All are unknown for an encoded or unreadable reply.
    """
    if span.is_encoded or not span.head:
        return ReplyFacts()
    objects = [*_objects(span)]
    ids = (each.get("id") for each in objects)
    models = (each.get("model") for each in objects)
    used: dict[str, int] = {}
    for each in objects:
        used |= tokens(each.get("usage"))
    return ReplyFacts(
        next((each for each in ids if isinstance(each, str)), None),
        next((each for each in models if isinstance(each, str)), None),
        used.get("prompt_tokens"),
        used.get("completion_tokens"),
        tuple(dict.fromkeys(reason for each in objects for reason in _finish_reasons(each))),
    )


def _objects(span: CallSpan) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON objects of a reply: its completion, or the events of a stream.

    Only those that were kept whole are read. Objects inside an event come before it, and ids of
    events that are not the completion's are left out.
    """
    if not span.is_stream:
        if span.size == len(span.head) and (found := json_object(bytes(span.head))):
            yield found
        return
    lines = bytes(span.head).split(b"\n")
    if span.size > len(span.head):
        lines = [*lines[:-1], *span.tail.split(b"\n")[1:]]
    for line in lines:
        if line.startswith(b"data:") and (event := json_object(line[5:].strip())):
            for inner in ("response", "message"):  # of Responses, of Anthropic
                if isinstance(found := event.get(inner), dict):
                    yield found
            yield {key: value for key, value in event.items() if key != "id" or "choices" in event}


def _finish_reasons(completion: Mapping[str, Any]) -> Iterator[str]:
    """Return the finish reasons in a completion or event, in any of the formats."""
    choices, delta = completion.get("choices"), completion.get("delta")
    found = [each.get("finish_reason") for each in choices or () if isinstance(each, dict)]
    found.append(completion.get("stop_reason"))
    if isinstance(delta, dict):
        found.append(delta.get("stop_reason"))
    return (reason for reason in found if isinstance(reason, str))
