"""Confidences as scores in Langfuse and Phoenix, and the verdicts that people give there.

Both speak JSON over HTTP: `POST /api/public/scores` and `GET /api/public/v3/scores` of Langfuse
(3.179 or newer), `POST /v1/span_annotations` and `GET /v1/projects/{}/span_annotations` of Phoenix.
A score names its request in `metadata`, so that a verdict on the same trace or span can be matched.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol
from urllib.parse import quote

import httpx

from proxy.config.settings.telemetry import LangfuseConfig, PhoenixConfig, TelemetryConfig
from proxy.observe.evaluation import Evaluation
from proxy.observe.outbox import NotSentError

ANSWER_S: Final = 10.0
A_PAGE: Final = 100
MAX_NAME: Final = 200  # characters of a person's name
OURS: Final = "pinocchio"  # marks our annotations in Phoenix, one for each span
SCORE: Final = "confidence"  # the confidence's name in both
VERDICT: Final = "correct"  # the name of the score by which people judge replies
YES: Final = frozenset({"correct", "right", "true", "yes"})
NO: Final = frozenset({"incorrect", "wrong", "false", "no"})


class UnreadableScoresError(Exception):
    """People's verdicts cannot be fetched; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class ForeignVerdict:
    """A verdict from elsewhere.

    `request_id` is None where no single request matches its subject.
    """

    request_id: str | None
    is_correct: bool
    by: str


class ScoreKeeper(Protocol):
    """A service that keeps scores; its methods block and belong on a thread."""

    name: str

    def send(self, batch: Sequence[Evaluation]) -> int:
        """Send confidences and return how many were refused.

        Raises NotSentError where none was accepted.
        """

    def verdicts(self, since: float) -> Iterator[ForeignVerdict]:
        """Yield people's verdicts since a time (Unix seconds); raises UnreadableScoresError."""

    def probe(self) -> None:
        """Fetch a single score to test the connection; raises UnreadableScoresError."""

    def close(self) -> None: ...


def score_keepers(config: TelemetryConfig) -> list[ScoreKeeper]:
    """Return the services that keep scores, Langfuse and Phoenix, as far as configured."""
    found: list[ScoreKeeper] = []
    if config.langfuse is not None:
        found.append(Langfuse(config.langfuse))
    if config.phoenix is not None:
        found.append(Phoenix(config.phoenix))
    return found


class Langfuse:
    """Scores of traces, or of the observation of our span."""

    name = "langfuse"

    def __init__(self, config: LangfuseConfig) -> None:
        keys = config.public_key, config.secret_key.get_secret_value()
        self._http = httpx.Client(base_url=config.base_url, auth=keys, timeout=ANSWER_S)

    def send(self, batch: Sequence[Evaluation]) -> int:
        """Send the confidences of a batch as scores; return how many were refused."""
        return sum(not self._is_taken(each) for each in batch)

    def _is_taken(self, evaluation: Evaluation) -> bool:
        """Send one confidence as a score, and return whether it was accepted or there is none."""
        if evaluation.confidence is None:
            return True  # there is nothing to send
        score = {
            "id": evaluation.request_id,  # a score that is sent twice replaces itself
            "traceId": evaluation.trace.trace_id.hex(),
            "name": SCORE,
            "value": evaluation.confidence,
            "dataType": "NUMERIC",
            "comment": evaluation.explanation,
            "metadata": _metadata(evaluation),
        }
        if evaluation.call is not None:
            score["observationId"] = evaluation.call.span_id.hex()
        return _post_body(self._http, "/api/public/scores", score)

    def verdicts(self, since: float) -> Iterator[ForeignVerdict]:
        """Yield people's annotations since a time (Unix seconds) that are about scores of ours."""
        at = datetime.fromtimestamp(since, UTC).isoformat().replace("+00:00", "Z")
        request_ids: defaultdict[str, set[str]] = defaultdict(
            set
        )  # requests by trace and observation
        own_query = {"name": SCORE, "source": "API", "fields": "subject,details"}
        for score in self._pages(own_query | {"fromTimestamp": at}):
            request_id = _object(score, "metadata").get("request_id")
            if isinstance(request_id, str):
                for place in _subject(score):
                    request_ids[place].add(request_id)
        annotation_query = {"name": VERDICT, "source": "ANNOTATION", "fields": "subject,annotation"}
        for score in self._pages(annotation_query | {"fromTimestamp": at}):
            is_correct = _as_label(score.get("value"))
            places = [place for place in _subject(score) if place in request_ids]
            if is_correct is None or not places:
                continue
            [*requests] = request_ids[places[0]]  # those of the observation, where there is one
            by = _person("langfuse", score.get("authorUserId"))
            yield ForeignVerdict(requests[0] if len(requests) == 1 else None, is_correct, by)

    def probe(self) -> None:
        """Fetch one score to test the connection; raises UnreadableScoresError."""
        _fetch_page(self._http, "/api/public/v3/scores", {"limit": "1"})

    def _pages(self, query: dict[str, str]) -> Iterator[dict[str, Any]]:
        """Yield the scores of all pages that match a query."""

        def cursor_of(page: dict[str, Any]) -> Any:
            return _object(page, "meta").get("cursor")

        return _all_pages(self._http, "/api/public/v3/scores", query, cursor_of)

    def close(self) -> None:
        self._http.close()


def _subject(score: dict[str, Any]) -> list[str]:
    """Return the observation and the trace that a score is about, the narrower first."""
    subject = _object(score, "subject")
    return [each for each in (subject.get("id"), subject.get("traceId")) if isinstance(each, str)]


class Phoenix:
    """Annotations of our spans, or of the client's where ours are not sent."""

    name = "phoenix"

    def __init__(self, config: PhoenixConfig) -> None:
        self._config = config
        key = config.api_key.get_secret_value()
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(base_url=config.base_url, headers=headers, timeout=ANSWER_S)

    def send(self, batch: Sequence[Evaluation]) -> int:
        """Send the confidences of a batch as span annotations; return how many were refused."""
        data = [
            {
                "span_id": each.span_id.hex(),
                "name": SCORE,
                "annotator_kind": "CODE",
                "result": {
                    "score": each.confidence,
                    "label": each.action,
                    "explanation": each.explanation,
                },
                "metadata": _metadata(each),
                "identifier": OURS,
            }
            for each in batch
            if each.confidence is not None
        ]
        if not data or _post_body(self._http, "/v1/span_annotations", {"data": data}):
            return 0
        return len(data)

    def verdicts(self, since: float) -> Iterator[ForeignVerdict]:
        """Yield people's annotations of spans that got a confidence of ours since a time."""
        request_ids: dict[str, str] = {}  # requests by span
        for each in self._pages({"identifier": OURS, "include_annotation_names": SCORE}):
            request_id = _object(each, "metadata").get("request_id")
            if isinstance(request_id, str) and _at(each) >= since:
                request_ids[str(each.get("span_id"))] = request_id
        spans = [*request_ids]
        for start in range(0, len(spans), A_PAGE):
            some: dict[str, Any] = {"span_ids": spans[start : start + A_PAGE]}
            for each in self._pages(some | {"include_annotation_names": VERDICT}):
                result = _object(each, "result")
                is_correct = _as_label(result.get("label"))
                if is_correct is None:
                    is_correct = _as_label(result.get("score"))
                if each.get("annotator_kind") != "HUMAN" or is_correct is None:
                    continue
                by = _person("phoenix", each.get("user_id") or each.get("identifier"))
                yield ForeignVerdict(request_ids.get(str(each.get("span_id"))), is_correct, by)

    def probe(self) -> None:
        """Fetch one annotation to test the connection; raises UnreadableScoresError."""
        _fetch_page(self._http, self._path, {"limit": 1, "identifier": OURS})

    @property
    def _path(self) -> str:
        return f"/v1/projects/{quote(self._config.project, safe='')}/span_annotations"

    def _pages(self, query: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the annotations of all pages that match a query."""
        return _all_pages(self._http, self._path, query, lambda page: page.get("next_cursor"))

    def close(self) -> None:
        self._http.close()


def _metadata(evaluation: Evaluation) -> dict[str, Any]:
    """Return the facts that are sent beside a confidence, such as `request_id`, without Nones."""
    found = {
        "request_id": evaluation.request_id,
        "action": evaluation.action,
        "policy": evaluation.policy,
        "mode": evaluation.mode,
        "calibrator": evaluation.calibrator,
        "basis": list(evaluation.basis) or None,
        "support": evaluation.support,
        "review_id": evaluation.review_id,
    }
    return {name: value for name, value in found.items() if value is not None}


def _as_label(value: Any) -> bool | None:
    """Return True for 1 or a word such as `correct`, False for 0 or its opposite, else None."""
    if value in (0, 1):  # True and False are equal to these
        return bool(value)
    word = value.strip().lower() if isinstance(value, str) else None
    return True if word in YES else False if word in NO else None


def _at(annotation: dict[str, Any]) -> float:
    """Return when an annotation was made, in Unix seconds; 0.0 without a readable date."""
    try:
        return datetime.fromisoformat(str(annotation.get("created_at"))).timestamp()
    except (ValueError, OverflowError):  # no date, or one beyond those of the platform
        return 0.0


def _post_body(client: httpx.Client, path: str, body: Any) -> bool:
    """Send a body and return whether it was accepted.

    Raises NotSentError for failures that concern every request, such as a refused key.
    """
    try:
        answer = client.post(path, json=body)
    except httpx.HTTPError as error:
        raise NotSentError(type(error).__name__, may_pass=True) from error
    if answer.status_code == 429 or answer.status_code >= 500:
        raise NotSentError(f"status {answer.status_code}", may_pass=True)
    if answer.status_code in (401, 403, 404):
        raise NotSentError(f"status {answer.status_code}", may_pass=False)
    return answer.is_success


def _all_pages(
    client: httpx.Client,
    path: str,
    query: dict[str, Any],
    cursor_of: Callable[[dict[str, Any]], Any],
) -> Iterator[dict[str, Any]]:
    """Yield the items of all pages.

    Raises UnreadableScoresError where a page cannot be read or comes twice.
    """
    seen: set[str] = set()
    more: dict[str, Any] = {}
    while True:
        page = _fetch_page(client, path, query | {"limit": A_PAGE} | more)
        yield from _items(page)
        if not (cursor := cursor_of(page)):
            return
        if str(cursor) in seen:
            raise UnreadableScoresError(f"{client.base_url}{path} gives the same page again")
        seen.add(str(cursor))
        more = {"cursor": str(cursor)}


def _fetch_page(client: httpx.Client, path: str, query: dict[str, Any]) -> dict[str, Any]:
    """Fetch a page of scores as a JSON object; raises UnreadableScoresError."""
    try:
        answer = client.get(path, params=query)
        answer.raise_for_status()
        page = answer.json()
    except (httpx.HTTPError, ValueError) as error:
        raise UnreadableScoresError(f"{client.base_url}: {error}") from error
    if not isinstance(page, dict):
        raise UnreadableScoresError(f"{client.base_url}{path} gave no page of scores")
    return page


def _object(item: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a member that is an object, else an empty one."""
    value = item.get(name)
    return value if isinstance(value, dict) else {}


def _person(keeper: str, name: Any) -> str:
    """Return who gave a verdict as `<keeper>:<name>`, fit for the record and a terminal.

    The name loses its unprintable characters and is cut to `MAX_NAME`; it is `somebody` if nothing
    is left or it is no string.
    """
    printable = "".join(filter(str.isprintable, name))[:MAX_NAME] if isinstance(name, str) else ""
    return f"{keeper}:{printable or 'somebody'}"


def _items(page: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the objects in a page's list `data`; empty without such a list."""
    data = page.get("data")
    return [each for each in data if isinstance(each, dict)] if isinstance(data, list) else []
