"""Fallback: other models are asked in turn where the one that was asked for fails.

It fails before its reply begins: no connection, no answer in time, or a status that the route
names. A reply that breaks off later is not asked for again: the client may have its beginning.
"""

from __future__ import annotations

import asyncio

from proxy.completions.further_calls.calls import Calls
from proxy.config.upstreams import FallbackConfig
from proxy.errors import ProxyError, UpstreamError, UpstreamTimeoutError
from proxy.exchange.answer import is_success
from proxy.exchange.call import Call
from proxy.upstreams.upstream import UpstreamReply, UpstreamRequest
from proxy.wire.named_ids import ids_in_body

IDEMPOTENCY = (b"idempotency-key",)  # another model's answer is another one
PACKING = (b"accept-encoding",)  # a policy may have to read the stream's events


async def send_or_fall_back(
    calls: Calls, fallback: FallbackConfig, request: UpstreamRequest
) -> UpstreamReply:
    """Return the reply of the first model that gives one.

    Where none does, what the model said that was asked for; raises ProxyError as it did.
    """
    first = Call(calls.asked.model, upstream=calls.exchange.upstream)
    await _begin(calls, first, request, fallback.within_s)
    if not _has_failed(first, fallback):
        return _reply_of(first)
    calls.exchange.calls.append(first)
    calls.note_failure(first, _why(first))
    left_out = (*IDEMPOTENCY, *(PACKING if calls.asked.is_stream else ()))
    for model in fallback.to:
        request = calls.request_to(model, left_out=left_out)
        if model == first.model or not await _may_be_asked(calls, model, first, request):
            continue
        call = calls.noted(model)
        await _begin(calls, call, request, fallback.within_s)
        if call.reply is not None and is_success(call.reply.status):
            await first.aclose()
            call.error = None
            calls.keep(call)
            calls.exchange.fallback_from = first.model
            return call.reply
        calls.note_failure(call, _why(call))
        await call.aclose()
    return _reply_of(first)


async def _may_be_asked(calls: Calls, model: str, first: Call, request: UpstreamRequest) -> bool:
    """Whether a model can answer: what upstream keeps under an id is at that upstream alone."""
    if calls.router.name_or_default(model) == first.upstream:
        return True
    return not await ids_in_body(request.body)


async def _begin(
    calls: Calls, call: Call, request: UpstreamRequest, within_s: float | None
) -> None:
    """Send a call and wait for its reply to begin; what goes wrong stands in the call."""
    if within_s is not None:
        request.deadline = asyncio.get_running_loop().time() + within_s
    try:
        async with asyncio.timeout_at(request.deadline):
            call.reply = await calls.send(call, request)
    except TimeoutError:
        call.raised = UpstreamTimeoutError(
            f"upstream did not begin to answer for {call.model!r} within {within_s:g} s"
        )
    except ProxyError as error:
        call.raised = error


def _has_failed(call: Call, fallback: FallbackConfig) -> bool:
    if call.reply is not None:
        status = call.reply.status
        return str(status) in fallback.on or f"{status // 100}xx" in fallback.on
    if isinstance(call.raised, UpstreamTimeoutError):
        return "timeout" in fallback.on
    return isinstance(call.raised, UpstreamError) and "unreachable" in fallback.on


def _why(call: Call) -> str:
    """The machine word for a call without an answer."""
    if call.raised is not None:
        return call.raised.machine_code
    return f"upstream_status_{call.reply.status}" if call.reply is not None else "unfinished"


def _reply_of(call: Call) -> UpstreamReply:
    if call.reply is None:
        assert call.raised is not None
        raise call.raised
    return call.reply
