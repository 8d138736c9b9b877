"""The confidences of replies, for clients that show neither headers nor unknown members.

    seen = Confidences()
    client = OpenAI(base_url=URL, http_client=DefaultHttpxClient(event_hooks=seen.hooks))
    ...  # whatever is built on `client`
    seen.last["confidence"]

Copy this one file, which needs only the standard library. Event hooks of a client built on httpx
pass it every response, and it keeps the values of the proxy's headers. A live stream has no
confidence there yet: `last` asks the proxy for it, with the request's key, after the stream's end.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterator
from typing import Any

PREFIX = "x-pinocchio-"
KEYS = ("authorization", "x-api-key", "api-key")


class Confidences:
    """The latest replies of one client; use one for each task that runs at the same time."""

    def __init__(self, most: int = 1_000) -> None:
        self._replies: deque[tuple[dict[str, Any], urllib.request.Request]] = deque(maxlen=most)

    @property
    def hooks(self) -> dict[str, list[Any]]:
        """The `event_hooks` for a synchronous client."""
        return {"response": [self._note]}

    @property
    def async_hooks(self) -> dict[str, list[Any]]:
        """The `event_hooks` for an asynchronous client."""
        return {"response": [self._note_later]}

    @property
    def last(self) -> dict[str, Any]:
        """The proxy's values for the last reply, empty before the first reply.

        The names are those of the headers: `confidence` (None without one), `confidence-status`,
        `support`, `basis`, `action`, `request-id` and others.
        """
        return self._values(*self._replies[-1]) if self._replies else {}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over the values for each reply (one for each call of a model), oldest first."""
        return iter([self._values(*each) for each in self._replies])

    def _note(self, response: Any) -> None:
        facts = {
            name.removeprefix(PREFIX): value
            for name, value in response.headers.items()
            if name.startswith(PREFIX)
        }
        if "confidence-status" not in facts:
            return
        confidence = facts.get("confidence")
        facts["confidence"] = None if confidence is None else float(confidence)
        url = response.request.url
        port = f":{url.port}" if url.port else ""
        results_url = f"{url.scheme}://{url.host}{port}/pinocchio/v1/results/{facts['request-id']}"
        sent = response.request.headers
        keys = {name: sent[name] for name in KEYS if name in sent}
        self._replies.append((facts, urllib.request.Request(results_url, headers=keys)))

    async def _note_later(self, response: Any) -> None:
        self._note(response)

    def _values(self, facts: dict[str, Any], results: urllib.request.Request) -> dict[str, Any]:
        if facts["confidence-status"] == "pending":
            try:
                with urllib.request.urlopen(results, timeout=5) as reply:
                    found = json.load(reply)
            except urllib.error.HTTPError:  # the stream has not ended
                return facts
            facts |= {"confidence": found.get("confidence"), "confidence-status": found["status"]}
            names = ("action", "policy", "mode", "support")
            facts |= {name: found[name] for name in names if name in found}
            facts |= {"basis": ",".join(found["basis"])} if "basis" in found else {}
            facts.pop("confidence-reason", None)  # it was `stream`
            if "reason" in found:
                facts["confidence-reason"] = found["reason"]
        return facts
