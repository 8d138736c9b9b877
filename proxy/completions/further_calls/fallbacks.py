"""Fallback: other models are called in turn if the requested one fails.

It fails before its reply begins: no connection, no answer in time, or a status that the route
names. A reply that breaks off later is not requested again, because the client may have its
beginning.
"""

from __future__ import annotations

import asyncio

from proxy.completions.further_calls.calls import IDEMPOTENCY, Calls
from proxy.config.settings.upstreams import FallbackConfig
from proxy.errors import ProxyError, UpstreamError, UpstreamTimeoutError
from proxy.exchange.answer import is_success
from proxy.exchange.call import Call
from proxy.holds.named_ids import ids_in_body
from proxy.http.wire.upstream import UpstreamReply, UpstreamRequest


async def send_or_fall_back(
    calls: Calls, fallback: FallbackConfig, request: UpstreamRequest
) -> UpstreamReply:
    """Send a request, then to fallback models while it fails, and return the first good reply.

    Notes every call and the kept one. If none succeeds, returns the reply of the requested model,
    or raises its ProxyError.
    """
    first = Call(calls.request.model, upstream=calls.exchange.upstream)
    await _begin(calls, first, request, fallback.within_s)
    if not _has_failed(first, fallback):
        return _reply_of(first)
    calls.exchange.calls = (*calls.exchange.calls, first)
    calls.note_failure(first, _why(first))
    try:
        kept = await _first_success(calls, fallback, first)
    except BaseException:  # the client has left
        await first.aclose()
        raise
    if kept is None:
        return _reply_of(first)
    await first.aclose()
    calls.keep(kept)
    calls.exchange.fallback_from = first.model
    return _reply_of(kept)


async def _first_success(calls: Calls, fallback: FallbackConfig, first: Call) -> Call | None:
    """Call the fallback models in turn and return the first call with a 2xx reply, or None."""
    for model in await _others(calls, fallback, first):
        call = calls.add_call(model)
        request = calls.request_to(model, left_out=IDEMPOTENCY)
        await _begin(calls, call, request, fallback.within_s)
        if call.reply is not None and is_success(call.reply.status):
            call.error = None
            return call
        calls.note_failure(call, _why(call))
        await call.aclose()
    return None


async def _others(calls: Calls, fallback: FallbackConfig, first: Call) -> list[str]:
    """Return the fallback models that can answer, in order.

    If the request names an id that upstream stores, these are only models at that upstream.
    """
    others = [model for model in fallback.to if model != first.model]
    near = [each for each in others if calls.router.name_or_default(each) == first.upstream]
    if near == others or not await ids_in_body(calls.request_to(others[0]).body):
        return others
    return near


async def _begin(
    calls: Calls, call: Call, request: UpstreamRequest, within_s: float | None
) -> None:
    """Send a call and wait for the head of its reply, at most `within_s` seconds.

    Reply or error is stored in the call; raises nothing.
    """
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
    """Return whether a call failed in a way that `fallback.on` names.

    It lists statuses such as `503` and `5xx`, `timeout` and `unreachable`.
    """
    if call.reply is not None:
        status = call.reply.status
        return str(status) in fallback.on or f"{status // 100}xx" in fallback.on
    if isinstance(call.raised, UpstreamTimeoutError):
        return "timeout" in fallback.on
    return isinstance(call.raised, UpstreamError) and "unreachable" in fallback.on


def _why(call: Call) -> str:
    """Return the machine word for a call without an answer, such as `upstream_status_503`."""
    if call.raised is not None:
        return call.raised.machine_code
    return f"upstream_status_{call.reply.status}" if call.reply is not None else "unfinished"


def _reply_of(call: Call) -> UpstreamReply:
    """Return a call's reply; raises the error that the call ended with if there is none."""
    if call.reply is None:
        assert call.raised is not None
        raise call.raised
    return call.reply
