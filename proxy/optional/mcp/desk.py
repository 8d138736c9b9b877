"""A client of the review desk's API for tools, with one reviewer's key."""

from __future__ import annotations

from typing import Any

import httpx

ANSWER_S = 30.0
REVIEWS = "/pinocchio/v1/reviews"
MOST_LISTED = 50

Json = dict[str, Any]


class DeskError(Exception):
    """The desk refuses or does not answer: a sentence for the client."""


class DeskClient:
    """A client of the desk at `url`, with the reviewer's `key`."""

    def __init__(self, url: str, key: str) -> None:
        headers = {"authorization": f"Bearer {key}"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=ANSWER_S, trust_env=False)

    def close(self) -> None:
        self._http.close()

    def queue(self, queue: str | None, limit: int) -> list[Json]:
        """Return the replies that wait for a decision, the least sure first; raises DeskError.

        At most MOST_LISTED are returned.
        """
        params = {"limit": str(max(1, min(limit, MOST_LISTED)))} | (
            {"queue": queue} if queue else {}
        )
        items: list[Json] = self._request_json("GET", REVIEWS, params=params)["items"]
        return items

    def review(self, id: str) -> Json:
        """Return one reply with its conversation; raises DeskError."""
        return self._request_json("GET", f"{REVIEWS}/{_plain(id)}")

    def decide(self, id: str, verdict: Json) -> Json:
        """Decide on a reply, once; raises DeskError, also where somebody else was faster."""
        return self._request_json("POST", f"{REVIEWS}/{_plain(id)}/verdict", json=verdict)

    def _request_json(self, method: str, path: str, **options: Any) -> Json:
        """Send a request and return the JSON object of the answer; raises DeskError."""
        try:
            response = self._http.request(method, path, **options)
            answer: Json = response.json()
        except (httpx.TransportError, ValueError) as error:
            raise DeskError(f"no review desk answers at {self._http.base_url}") from error
        if response.is_success:
            return answer
        details = answer.get("error")
        message = details.get("message") if isinstance(details, dict) else None
        raise DeskError(str(message or f"the review desk answers {response.status_code}"))


def _plain(id: str) -> str:
    """Return an id that is safe in a path; raises DeskError for any other."""
    if not id.replace("-", "").replace("_", "").isalnum():
        raise DeskError(f"{id[:80]!r} is no id of a review")
    return id
