"""The telemetry of one application: spans and scores, sent only where configured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

from calibrator import install_command
from proxy.config.settings.telemetry import TelemetryConfig
from proxy.config.settings.upstreams import UpstreamConfig
from proxy.errors import ExitStatus, StartupError
from proxy.http.wire.headers import Headers
from proxy.http.wire.http import Counts
from proxy.http.wire.upstream import Upstream
from proxy.observe.evaluation import Evaluation, evaluation_of
from proxy.observe.outbox import Outbox
from proxy.observe.traces import CURRENT, CallSpan, TracedUpstream, place_of, trace_of

if TYPE_CHECKING:
    from proxy.exchange.exchange import Exchange
    from proxy.observe.otel import OtelCollector


class ScoreReceiver(Protocol):
    """A service that keeps scores; its methods block and belong on a thread."""

    name: str

    def send(self, batch: Sequence[Evaluation]) -> int:
        """Send confidences and return how many were refused.

        Raises NotSentError where none was accepted.
        """

    def close(self) -> None: ...


class Telemetry:
    """Sends spans and scores; `enter` and `note` are called on the event loop and never wait.

    `receivers` get the scores. Raises StartupError where a library is missing.
    """

    def __init__(
        self, config: TelemetryConfig, counts: Counts, receivers: Sequence[ScoreReceiver] = ()
    ) -> None:
        self._counts = counts
        self._sample = config.otel.sample if config.otel else 0.0
        self._collector = _collector(config)
        self._otel: Outbox[CallSpan | Evaluation] | None = None
        if self._collector is not None:
            self._otel = Outbox("otel", self._collector.send)
        self._receivers = receivers
        self._scores = [Outbox(each.name, each.send) for each in receivers]

    @property
    def outboxes(self) -> Iterator[Outbox[Any]]:
        """The queues of spans and of scores, for those receivers that are configured."""
        if self._otel is not None:
            yield self._otel
        yield from self._scores

    def start(self) -> None:
        for outbox in self.outboxes:
            outbox.start()

    def close(self) -> None:
        """Send what is queued and close all connections; blocks, so it belongs on a thread."""
        boxes = [*self.outboxes]
        with ThreadPoolExecutor(len(boxes)) as together:  # so that one that hangs delays no other
            list(together.map(Outbox.close, boxes))
        for each in (self._collector, *self._receivers):
            if each is not None:
                each.close()

    def enter(self, headers: Headers) -> None:
        """Set the trace of the current task and its children, from a request's headers."""
        CURRENT.set(trace_of(headers, self._sample))

    def wrap(self, name: str, section: UpstreamConfig, upstream: Upstream) -> Upstream:
        """Return an upstream that records its calls as spans; the same one if no spans are sent.

        `name` and `section` describe it in the configuration.
        """
        if self._otel is None:
            return upstream
        return TracedUpstream(upstream, place_of(name, section), self._end)

    def _end(self, span: CallSpan) -> None:
        """Queue a span that has ended, if its trace is sampled."""
        if self._otel is not None and span.trace.is_sampled:
            self._otel.add(span)

    def note(self, exchange: Exchange, passed_s: float) -> None:
        """Count an exchange that ends, and queue its evaluation for the collector and receivers.

        `passed_s` is passed on to the counts. A receiver gets it only with a confidence, and a
        trace of the client's or a span of ours to belong to.
        """
        self._counts.note(exchange, passed_s)
        trace = CURRENT.get()
        if trace is None or exchange.polled_reply is not None:
            return
        evaluation = evaluation_of(exchange, trace)
        if evaluation is None:
            return
        if self._otel is not None and trace.is_sampled:
            self._otel.add(evaluation)
        if evaluation.confidence is None or not (trace.is_clients or evaluation.call):
            return  # there is no confidence, or no trace or span to which it could belong
        for outbox in self._scores:
            outbox.add(evaluation)


def _collector(config: TelemetryConfig) -> OtelCollector | None:
    """Return the connection to the configured collector, or None without one.

    Raises StartupError where a library is missing.
    """
    if config.otel is None:
        return None
    try:
        from proxy.observe.otel import OtelCollector
    except ImportError as error:
        command = install_command("otel")
        message = f"telemetry.otel needs libraries that are not installed: {command}"
        raise StartupError(ExitStatus.UNUSABLE_INPUT, message) from error
    return OtelCollector(config.otel)
