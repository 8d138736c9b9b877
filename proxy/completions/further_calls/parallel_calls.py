"""Several calls at once, to one or more models; the reply with the highest confidence wins."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from policies import surest
from proxy.completions.further_calls.calls import Calls
from proxy.exchange.answer import is_event_stream
from proxy.exchange.call import Call
from proxy.exchange.exchange import SharedClock
from proxy.http.wire.upstream import UpstreamReply


class SeveralCalls:
    """Concurrent calls, one for each entry of `models`.

    `head` is the first reply that may become an answer of the requested kind.
    """

    def __init__(self, calls: Calls, models: Sequence[str]) -> None:
        self.calls = calls
        self.head: asyncio.Future[UpstreamReply] = asyncio.get_running_loop().create_future()
        self._models = models

    async def make_all(self) -> list[Call]:
        """Make all calls and return them in order, including those that failed.

        The first model's reply stays open if it is no answer, so that it can be passed on.
        """
        self.calls.exchange.in_upstream = SharedClock()
        first = self.calls.add_call(self._models[0])
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.calls.put(first, on_head=self._note))
                others = [
                    group.create_task(self.calls.ask(model, on_head=self._note))
                    for model in self._models[1:]
                ]
        except BaseException:
            await first.aclose()
            raise
        return [first, *(task.result() for task in others)]

    def surest(self, made: Sequence[Call]) -> Call | None:
        """Return the call with the highest confidence, the first of equals; None if none is usable.

        A reply of the other kind than requested, a stream or one object, is usable only if none of
        the right kind has begun, because the client may be receiving that one already.
        """
        is_stream = self.calls.asked.is_stream
        answered = [call for call in made if call.answer is not None]
        alike = [call for call in answered if (call.whole.events is not None) == is_stream]
        usable = alike if self.head.done() else answered
        return usable[surest([call.confidence for call in usable])] if usable else None

    def _note(self, reply: UpstreamReply) -> None:
        if is_event_stream(reply) == self.calls.asked.is_stream and not self.head.done():
            self.head.set_result(reply)
