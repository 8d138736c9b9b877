"""The messages between our own scoring server and its clients, as values.

    GET  /pinocchio/v1/scorer   {"calibrator": NAME, "reads_images": bool, "reads_tool_use": bool,
                                 "reads_messages": bool, "reads_facts": bool,
                                 "opinion"?: NAME}
    POST /pinocchio/v1/score    {"items": [{"question", "answer", "source_model"?, "benchmark"?,
                                            "domain"?, "images"?: [base64],
                                            "tool_use"?: {"messages", "tools", "message"},
                                            "others"?: [{"answer", "source_model"?, "tool_use"?}],
                                            "alone"?: confidence, "messages"?: [...],
                                            "facts"?: [text]}]}
                             -> {"calibrator": NAME, "scores": [{"score", "confidence",
                                 "is_truncated", "because"?, "fields"?, "alone"?, "compared"?,
                                 "support"?, "unsupported"?, "basis"?, "act"?, "needs_facts"?,
                                 "is_unfamiliar"?, "unread"?, "notes"?}
                                 or {"error": {"message", "reason"}}]}

An answer has one score for each item, in order. Missing fields of a score have their defaults.
Everything else is an error in OpenAI's envelope.

- `tool_use`: a reply that calls tools, or is text although tools were offered or used, is sent
  with the conversation before it to servers that read it. Its images are only mentioned.
- `messages`: the conversation before any reply, for servers that read it. It is then left out of
  `tool_use` if it is the same.
- `others`: other replies to the same question, for servers that have a name (`opinion`) for scores
  that take them into account; `alone` is the confidence without them, if it is known.
- `facts`: those of the operator's texts that are relevant to the reply.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from calibrator import (
    IMAGE_REASONS,
    MARKS,
    RISKS,
    CalibratorError,
    CallNotes,
    FieldDoubt,
    Item,
    Mark,
    NotScorableError,
    OtherReply,
    Score,
    ToolUse,
    basis_with,
)
from proxy.errors import BadRequestError
from proxy.http.wire.json_splice import parse_json_object
from proxy.scoring.engines.errors import BUSY, EngineError, check_probability, field_of
from proxy.scoring.engines.findings import read_unsupported, unsupported_values

SCORER_PATH = "/pinocchio/v1/scorer"
SCORE_PATH = "/pinocchio/v1/score"
LOADING = "calibrator_loading"  # the code of a 503 while the calibrator loads
DEADLINE = "deadline"  # the reason of an item that was not scored in time
NOT_SUPPORTED = (*IMAGE_REASONS, "audio", "video", "file")  # reasons that are due to the item

_TEXTS = ("question", "answer")
_TAGS = ("source_model", "benchmark", "domain")
_MORE = ("images", "tool_use", "others", "alone", "messages", "facts")


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason that an item has no score; `reason` is a single machine word."""

    reason: str
    message: str


# --- Requests -----------------------------------------------------------------------------------


def items_body(
    items: Sequence[Item],
    *,
    has_tool_use: bool = True,
    has_others: bool = True,
    has_messages: bool = True,
    has_facts: bool = True,
) -> bytes:
    """Return the JSON body of a request for scores of these items.

    Fields whose flag is False are left out, for servers that do not read them.
    """
    written = [_item_json(item, has_tool_use, has_messages) for item in items]
    if has_others:
        for item, values in zip(items, written, strict=True):
            values |= _others_written(item, has_tool_use)
    if has_facts:
        for item, values in zip(items, written, strict=True):
            values |= {"facts": item.facts} if item.facts else {}
    return json.dumps({"items": written}).encode()


def _item_json(item: Item, has_tool_use: bool, has_messages: bool) -> dict[str, Any]:
    """Return an item as a JSON object, without empty fields."""
    tags = {name: value for name in _TAGS if (value := getattr(item, name)) is not None}
    images = {"images": [base64.b64encode(image).decode() for image in item.images]}
    texts = {"question": item.question, "answer": item.answer}
    values = texts | tags | (images if item.images else {})
    if has_tool_use:
        values |= _tool_use_written(item.tool_use)
    if has_messages and item.messages:
        if item.tool_use is not None and item.tool_use.messages is item.messages and has_tool_use:
            del values["tool_use"]["messages"]  # the server takes those of the item
        values["messages"] = [*map(_without_files, item.messages)]
    return values


def _tool_use_written(tool_use: ToolUse | None) -> dict[str, Any]:
    """Return `{"tool_use": ..}` with messages, tools and reply; {} for None."""
    if tool_use is None:
        return {}
    messages = [_without_files(message) for message in tool_use.messages]
    conversation = {
        "messages": messages,
        "tools": list(tool_use.tools),
        "message": tool_use.message,
    }
    return {"tool_use": conversation}


def _others_written(item: Item, has_tool_use: bool) -> dict[str, Any]:
    """Return the other replies and the confidence without them, as far as the item has them."""
    alone = {} if item.alone is None else {"alone": item.alone}
    others = [
        {"answer": other.answer}
        | ({} if other.source_model is None else {"source_model": other.source_model})
        | (_tool_use_written(other.tool_use) if has_tool_use else {})
        for other in item.others
    ]
    return alone | ({"others": others} if others else {})


def _without_files(message: Any) -> Any:
    """Return a message whose parts other than text, such as images, have only their type."""
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        return message
    parts = [
        part if not isinstance(part, dict) or "text" in part else {"type": part.get("type")}
        for part in content
    ]
    return {**message, "content": parts}


def read_items(body: bytes) -> list[Item]:
    """Parse the items of a request; raises BadRequestError, which says where the mistake is."""
    request = parse_json_object(body)
    items = request.get("items")
    if not isinstance(items, list) or not items:
        raise BadRequestError("'items' must be a list with at least one item", param="items")
    if unknown := sorted(request.keys() - {"items"}):
        raise BadRequestError(f"unknown field {unknown[0]!r}", param=unknown[0])
    return [_item(value, f"items[{at}]") for at, value in enumerate(items)]


def _item(value: Any, where: str) -> Item:
    """Parse an item, called `where` in errors, such as `items[3]`; raises BadRequestError."""
    if not isinstance(value, dict):
        raise BadRequestError(f"{where} must be an object", param=where)
    if unknown := sorted(value.keys() - {*_TEXTS, *_TAGS, *_MORE}):
        raise BadRequestError(f"{where} has an unknown field {unknown[0]!r}", param=where)
    for name in _TEXTS:
        if not isinstance(value.get(name), str):
            raise BadRequestError(f"{where}.{name} must be a string", param=f"{where}.{name}")
    for name in _TAGS:
        if not isinstance(value.get(name), str | None):
            raise BadRequestError(f"{where}.{name} must be a string", param=f"{where}.{name}")
    images = _images(value.get("images"), f"{where}.images")
    tags: dict[str, Any] = {name: value.get(name) for name in _TAGS}
    messages = value.get("messages", ())
    if not isinstance(messages, list | tuple):
        raise BadRequestError(f"{where}.messages must be a list", param=f"{where}.messages")
    tool_use = _tool_use(value.get("tool_use"), f"{where}.tool_use", messages)
    others = _others(value.get("others"), f"{where}.others")
    alone = value.get("alone")
    if alone is not None and not (type(alone) in (int, float) and 0 <= alone <= 1):
        raise BadRequestError(f"{where}.alone must be a number from 0 to 1", param=f"{where}.alone")
    facts = value.get("facts", [])
    if not isinstance(facts, list) or not all(isinstance(each, str) for each in facts):
        raise BadRequestError(f"{where}.facts must be a list of texts", param=f"{where}.facts")
    return Item(
        *(value["question"], value["answer"]),
        **tags,
        images=images,
        tool_use=tool_use,
        others=others,
        alone=alone,
        messages=messages,
        facts=tuple(facts),
    )


def _others(value: Any, where: str) -> tuple[OtherReply, ...]:
    """Parse the other replies of an item; () for None. Raises BadRequestError."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise BadRequestError(f"{where} must be a list", param=where)
    return tuple(_other(each, f"{where}[{at}]") for at, each in enumerate(value))


def _other(value: Any, where: str) -> OtherReply:
    """Parse another reply of an item, called `where` in errors; raises BadRequestError."""
    known = {"answer", "source_model", "tool_use"}
    if not isinstance(value, dict) or value.keys() - known:
        raise BadRequestError(
            f"{where} must be an object of {', '.join(sorted(known))}", param=where
        )
    answer, model = value.get("answer"), value.get("source_model")
    if not isinstance(answer, str) or not isinstance(model, str | None):
        text = f"{where}.answer and {where}.source_model must be strings"
        raise BadRequestError(text, param=where)
    return OtherReply(answer, model, _tool_use(value.get("tool_use"), f"{where}.tool_use"))


def _tool_use(value: Any, where: str, messages: Sequence[Any] = ()) -> ToolUse | None:
    """Parse a reply's tool use; it takes its item's messages if it has none of its own.

    Returns None for no tool use; raises BadRequestError.
    """
    if value is None:
        return None
    kinds = {"messages": list, "tools": list, "message": dict}
    if messages and isinstance(value, dict):
        value = {"messages": messages, **value}
    if not isinstance(value, dict) or value.keys() != kinds.keys():
        raise BadRequestError(f"{where} must be an object of {', '.join(kinds)}", param=where)
    for name, kind in kinds.items():
        if not isinstance(value[name], kind):
            text = f"{where}.{name} must be {'an object' if kind is dict else 'a list'}"
            raise BadRequestError(text, param=f"{where}.{name}")
    return ToolUse(**value)


def _images(value: Any, where: str) -> tuple[bytes, ...]:
    """Decode a list of base64 images; () for None. Raises BadRequestError."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(image, str) for image in value):
        raise BadRequestError(f"{where} must be a list of base64 strings", param=where)
    try:
        return tuple(base64.b64decode(image, validate=True) for image in value)
    except (binascii.Error, ValueError) as error:
        raise BadRequestError(f"{where} holds no base64: {error}", param=where) from error


# --- Answers ------------------------------------------------------------------------------------


def scores_body(calibrator: str, results: Sequence[Score | Failure]) -> bytes:
    """Return the JSON body of an answer: the calibrator's name and a result for each item."""
    return json.dumps(
        {"calibrator": calibrator, "scores": [_result(result) for result in results]}
    ).encode()


def _result(result: Score | Failure) -> dict[str, Any]:
    """Return a score as a JSON object without empty fields, or `{"error": ..}` for a failure."""
    if isinstance(result, Failure):
        return {"error": {"message": result.message, "reason": result.reason}}
    found: dict[str, Any] = {
        "score": result.score,
        "confidence": result.confidence,
        "is_truncated": result.is_truncated,
    }
    if result.because:
        found["because"] = result.because
    if result.fields:
        found["fields"] = [asdict(each) for each in result.fields]
    if result.notes is not None:
        found["notes"] = [asdict(each) for each in result.notes]
    if result.alone is not None:
        found |= {"alone": result.alone, "compared": result.compared}
    return found | _findings_written(result)


def _findings_written(result: Score) -> dict[str, Any]:
    """Return the findings of a score as JSON values, without those at their defaults."""
    plain = Score(0.0, 0.0)
    names = ("support", "basis", "act", "needs_facts", "is_unfamiliar", "unread")
    pairs = ((name, getattr(result, name)) for name in names)
    found = {name: value for name, value in pairs if value != getattr(plain, name)}
    if result.unsupported:
        found["unsupported"] = unsupported_values(result.unsupported)
    return found


def read_scores(answer: Any, calibrator: str, count: int) -> list[Score]:
    """Parse the scores of an answer to `count` items.

    Raises EngineError for an answer of another calibrator or with another number of scores. If an
    item has no score, raises the error that the answer has for it.
    """
    if (name := field_of(answer, "calibrator", str)) != calibrator:
        raise EngineError("engine_other", f"scored with {name}, not with {calibrator}")
    scores = field_of(answer, "scores", list)
    if len(scores) != count:
        raise EngineError("engine_answer", f"gave {len(scores)} scores for {count} items")
    return [_score(value) for value in scores]


def _score(value: Any) -> Score:
    """Parse the score of one item.

    Raises the error that the answer has instead, and EngineError for a missing field or a number
    that is no probability.
    """
    if isinstance(value, Mapping) and (error := value.get("error")) is not None:
        raise _error(field_of(error, "reason", str), field_of(error, "message", str))
    score, confidence = field_of(value, "score", float), field_of(value, "confidence", float)
    is_truncated = field_of(value, "is_truncated", bool)
    found = Score(
        check_probability(score),
        check_probability(confidence),
        is_truncated,
        _because(value),
        fields=_fields(value),
        notes=_notes(value),
        **_findings(value),
    )
    if "alone" not in value:
        return found
    compared = tuple(str(each)[:20] for each in field_of(value, "compared", list))
    return replace(
        found, alone=check_probability(field_of(value, "alone", float)), compared=compared
    )


def _findings(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parsed findings of a score, as keyword arguments of `Score`.

    Missing ones, as from older servers, get their defaults, and texts are cut. Raises EngineError
    for a support that is no probability.
    """
    support, basis = value.get("support"), value.get("basis")
    act, unread = value.get("act"), value.get("unread")
    found: dict[str, Any] = {
        "support": None
        if support is None
        else check_probability(field_of(value, "support", float)),
        "unsupported": read_unsupported(value.get("unsupported")),
        "needs_facts": value.get("needs_facts") is True,
        "is_unfamiliar": value.get("is_unfamiliar") is True,
    }
    if isinstance(basis, list):
        found["basis"] = basis_with(each for each in basis if isinstance(each, str))
    if isinstance(act, str):
        found["act"] = act[:40]
    if isinstance(unread, str):
        found["unread"] = unread[:40]
    return found


def _because(value: Mapping[str, Any]) -> tuple[str, ...]:
    """Return up to five facts that speak against a reply, cut at 200 characters.

    () if the server gives none.
    """
    facts = value.get("because")
    return tuple(str(each)[:200] for each in facts[:5]) if isinstance(facts, list) else ()


def _fields(value: Mapping[str, Any]) -> tuple[FieldDoubt, ...]:
    """Return up to 20 doubts about arguments of calls; () if the server gives none.

    Raises EngineError for a damaged one.
    """
    doubts = value.get("fields")
    return tuple(map(_field, doubts[:20])) if isinstance(doubts, list) else ()


def _notes(value: Mapping[str, Any]) -> tuple[CallNotes, ...] | None:
    """Return the marks and risks of calls, bounded and with known names only.

    Returns None if the server gives none.
    """
    notes = value.get("notes")
    return tuple(map(_note, notes[:20])) if isinstance(notes, list) else None


def _note(value: Any) -> CallNotes:
    """Parse the marks and the risk of one call; raises EngineError for a missing field.

    Unknown marks are left out, an unknown risk becomes the last of `RISKS`, and texts are cut at
    200 characters.
    """
    risk = field_of(value, "risk", str)
    reasons = tuple(str(each)[:200] for each in field_of(value, "reasons", list)[:10])
    marks = tuple(map(_mark, field_of(value, "marks", list)[:40]))
    known = tuple(mark for mark in marks if mark.name in MARKS)
    return CallNotes(known, risk if risk in RISKS else RISKS[-1], reasons)


def _mark(value: Any) -> Mark:
    """Parse a mark, its texts cut at 200 characters; raises EngineError for a missing field."""
    texts = (field_of(value, name, str)[:200] for name in ("name", "argument", "words"))
    return Mark(*texts)


def _field(value: Any) -> FieldDoubt:
    """Parse the doubt about one argument of a call; raises EngineError for a missing field."""
    name, mark = field_of(value, "name", str)[:200], field_of(value, "mark", str)[:200]
    share = value.get("share")
    known = None if share is None else check_probability(field_of(value, "share", float))
    return FieldDoubt(name, mark, field_of(value, "call", int), known)


def _error(reason: str, message: str) -> CalibratorError:
    """Return the error of an item: not scorable, not done in time, or another failure."""
    if reason in NOT_SUPPORTED:
        return NotScorableError(reason, message)
    if reason == DEADLINE:
        return EngineError(BUSY, "did not get to it in time")
    return CalibratorError(message)
