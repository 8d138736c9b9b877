"""The demo upstream: canned answers, right and wrong ones, with no network and no key.

To a client it behaves like OpenAI's chat completions: streams, tools, n, structured output, cut
replies and errors. Its answers and their labels are in `demo.yaml`: a newcomer sees what a
confidence is worth, and a test measures it.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, reduce
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml

from proxy.completion import json_object
from proxy.errors import BadRequestError, NotFoundError, ProxyError
from proxy.sse import DONE, event_bytes
from proxy.upstream import Headers, UpstreamReply, UpstreamRequest

Json = dict[str, Any]

_MODEL: Json = {"id": "demo", "object": "model", "created": 1767225600, "owned_by": "pinocchio"}
_CLOSE = 0.8  # the share of words that a question must have in common with a canned one
_NEGATIONS = frozenset({"not", "no", "never", "without", "except", "t"})  # "t" as in "don't"
_MOST = {"n": 128, "max_tokens": sys.maxsize, "max_completion_tokens": sys.maxsize}
_TYPES = {
    "model": str,
    "messages": list,
    "tools": list,
    "response_format": dict,
    "stream_options": dict,
}


# The canned answers


@dataclass(frozen=True, slots=True)
class DemoRow:
    """One labelled answer; the rows of one question share its `question_id`.

    `content` is None where the answer is tool calls: `calls`, each with `name` and `arguments`.
    `tools` are the definitions, in OpenAI's format, of the functions that those calls assume.
    """

    id: str
    question_id: str
    domain: str
    question: str
    tools: tuple[Json, ...]
    content: str | None
    calls: tuple[Json, ...]
    correct: bool

    def message(self) -> Json:
        """The answer as OpenAI's assistant message, with new call ids each time."""
        message = _text_message(self.content)
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{uuid4().hex[:24]}",
                    "type": "function",
                    "function": {"name": call["name"], "arguments": _dumped(call["arguments"])},
                }
                for call in self.calls
            ]
        return message


@cache
def rows() -> tuple[DemoRow, ...]:
    """Every labelled answer, in the order of the file."""
    text = Path(__file__).with_name("demo.yaml").read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return tuple(
        DemoRow(
            id=f"{entry['id']}/{number}",
            question_id=entry["id"],
            domain=entry["domain"],
            question=entry["question"],
            tools=tuple(entry.get("tools", ())),
            content=answer.get("content"),
            calls=tuple(answer.get("tool_calls", ())),
            correct=answer["correct"],
        )
        for entry in yaml.load(text, Loader=loader)
        for number, answer in enumerate(entry["answers"])
    )


@cache
def questions() -> Mapping[str, tuple[DemoRow, ...]]:
    """The answers to each question, in the order of the file."""
    return {text: tuple(group) for text, group in groupby(rows(), key=lambda row: row.question)}


def first_question(*, correct: bool = False) -> str:
    """A short question for a first try: the demo answers it wrongly, or with `correct` rightly."""
    return next(text for text, found in questions().items() if found[0].correct is correct)


def _find(question: str) -> tuple[DemoRow, ...]:
    """The answers to the canned question that `question` stands for, () where it is none.

    Case, white space and punctuation do not count. A few words may be added or left out, but none
    changed or moved: "most" is never taken for "least".
    """
    asked = _words(question)
    closest = max(questions(), key=lambda known: _closeness(asked, _words(known)))
    return questions()[closest] if _closeness(asked, _words(closest)) >= _CLOSE else ()


def _words(text: str) -> list[str]:
    """Words, numbers and operators, in lower case."""
    return re.findall(r"\w+|[+*/^%<>=]|(?<!\w)-(?=\d)", text.casefold())


def _closeness(one: list[str], other: list[str]) -> float:
    """The length of the shorter text as a share of the longer, 0 where the meaning may differ."""
    short, long = sorted((one, other), key=len)
    if not short or _telling(short) != _telling(long):
        return 0.0
    rest = iter(long)  # `in` reads it up to the word it finds, so the order counts
    return len(short) / len(long) if all(word in rest for word in short) else 0.0


def _telling(words: list[str]) -> list[str]:
    """Numbers, operators and negations: a question without one of these is another question."""
    return [word for word in words if word in _NEGATIONS or not word.isalpha()]


# The upstream


class DemoUpstream:
    """An Upstream that answers from `demo.yaml`; a stream waits `delay_s` after each chunk."""

    def __init__(self, delay_s: float = 0.005) -> None:
        self._delay_s = delay_s

    async def send(self, request: UpstreamRequest) -> UpstreamReply:
        try:
            match request.method, request.path:
                case "GET", "/models":
                    return _reply(200, {"object": "list", "data": [_MODEL]})
                case "GET", "/models/demo":
                    return _reply(200, _MODEL)
                case "POST", "/chat/completions":
                    return self._chat(_parsed(request.body))
                case method, path:
                    message = f"Invalid URL ({method} /v1{path})"
                    raise NotFoundError(message, code="unknown_url")
        except ProxyError as error:
            return _reply(error.status, error.envelope())

    async def aclose(self) -> None:
        """There is nothing to close."""

    def _chat(self, body: Json) -> UpstreamReply:
        completion = _completion(body)
        if not body.get("stream"):
            return _reply(200, completion)
        has_usage = (body.get("stream_options") or {}).get("include_usage") is True
        events = self._events(completion, has_usage=has_usage)
        headers = _headers("text/event-stream; charset=utf-8")
        return UpstreamReply(200, headers, events, on_close=events.aclose)

    async def _events(self, completion: Json, *, has_usage: bool) -> AsyncGenerator[bytes, None]:
        """The completion as server-sent events: chunks, usage where asked for, [DONE]."""
        frame = completion | {"object": "chat.completion.chunk", "usage": None}
        if not has_usage:
            del frame["usage"]
        for choice in _interleaved(completion["choices"]):
            yield event_bytes(_dumped(frame | {"choices": [choice]}))
            await asyncio.sleep(self._delay_s)
        if has_usage:
            usage = completion["usage"]
            yield event_bytes(_dumped(frame | {"choices": [], "usage": usage}))
        yield event_bytes(DONE)


def _parsed(raw: bytes) -> Json:
    """The body of a request for a completion; raises BadRequestError as OpenAI answers 400."""
    body = json_object(raw)
    if body is None:
        raise BadRequestError("We could not parse the JSON body of your request.")
    for name in ("model", "messages"):
        if body.get(name) is None:
            text = f"Missing required parameter: '{name}'."
            raise BadRequestError(text, param=name, code="missing_required_parameter")
    for name, kind in _TYPES.items():
        if not isinstance(body.get(name), kind | None):
            text = f"Invalid type for '{name}': expected {kind.__name__}."
            raise BadRequestError(text, param=name, code="invalid_type")
    for name, most in _MOST.items():
        value = body.get(name)
        # not isinstance, for which true is an integer
        if value is not None and not (type(value) is int and 1 <= value <= most):
            text = f"Invalid '{name}': expected an integer from 1 to {most}."
            raise BadRequestError(text, param=name, code="invalid_value")
    if not body["messages"]:
        text = "Invalid 'messages': empty array."
        raise BadRequestError(text, param="messages", code="empty_array")
    if not all(isinstance(message, dict) for message in body["messages"]):
        text = "Invalid type for 'messages': expected an array of objects."
        raise BadRequestError(text, param="messages", code="invalid_type")
    return body


def _completion(body: Json) -> Json:
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or sys.maxsize
    choices = [_choice(body, index, limit) for index in range(body.get("n") or 1)]
    asked = sum(len(_tokens(_text(message))) for message in body["messages"])
    told = sum(
        len(_tokens(part[key])) for choice in choices for part, key in _written(choice["message"])
    )
    return {
        "id": f"chatcmpl-demo-{uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body["model"],
        "choices": choices,
        "usage": {
            "prompt_tokens": asked,
            "completion_tokens": told,
            "total_tokens": asked + told,
        },
        "system_fingerprint": "fp_demo",
    }


def _choice(body: Json, index: int, limit: int) -> Json:
    message = _answer(body, index)
    if message["content"] is not None:
        message["content"] = _formatted(message["content"], body.get("response_format") or {})
    reason = "tool_calls" if "tool_calls" in message else "stop"
    for part, key in _written(message):
        tokens = _tokens(part[key])
        if len(tokens) > limit:
            reason = "length"
        part[key] = "".join(tokens[:limit])
        limit = max(0, limit - len(tokens))
    return {"index": index, "message": message, "logprobs": None, "finish_reason": reason}


def _answer(body: Json, index: int) -> Json:
    """The assistant message of choice `index`, neither formatted nor cut."""
    last = body["messages"][-1]
    if last.get("role") == "tool":  # the canned call once more would be an endless loop
        return _text_message(f"The tool answered: {_text(last)}")
    asked = [_text(message) for message in body["messages"] if message.get("role") == "user"]
    found = _find(asked[-1]) if asked else ()
    if not found:
        return _text_message(_unknown())
    row = found[index % len(found)]
    offered = _offered(body)
    for call in row.calls:
        if call["name"] not in offered:
            return _text_message(
                f"My canned answer calls the tool `{call['name']}`, which this request does not "
                "offer or does not allow."
            )
    return row.message()


def _offered(body: Json) -> list[str]:
    """The names of the functions that may be called."""
    choice = body.get("tool_choice")
    names = []
    for tool in [choice] if isinstance(choice, dict) else body.get("tools") or []:
        match tool:
            case {"function": {"name": str(name)}}:
                names.append(name)
    return [] if choice == "none" else names


def _unknown() -> str:
    """What the demo says to a question that it does not know."""
    texts = [text for text, found in questions().items() if not found[0].tools]
    shortest = "\n".join(f"- {text}" for text in sorted(texts, key=len)[:5])
    return (
        "This is the demo upstream: there is no model here, only canned answers to "
        f"{len(questions())} questions, some right and some wrong. Yours is not among them. "
        f"Try one of these:\n\n{shortest}"
    )


# Structured output


def _formatted(content: str, response_format: Json) -> str:
    """The answer as the JSON that was asked for, or as it is where none was."""
    known = json_object(content)
    match response_format:
        case {"type": "json_object"}:
            return _dumped({"answer": content} if known is None else known)
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            try:
                return _dumped(_filled(schema, content if known is None else known, schema))
            except (AttributeError, KeyError, TypeError, RecursionError):
                text = "Invalid schema for response_format: the demo cannot fill it."
                raise BadRequestError(text, param="response_format") from None
    return content


def _filled(schema: Json, source: Any, root: Json) -> Any:
    """A value that fits a JSON Schema and says what `source` says, as far as that goes."""
    match schema:
        case {"$ref": str(pointer)}:
            target = reduce(lambda node, step: node[step], pointer.split("/")[1:], root)
            return _filled(target, source, root)
        case {"anyOf": [first, *_]}:
            return _filled(first, source, root)
        case {"const": value}:
            return value
        case {"enum": [first, *_] as values}:
            named = {str(value).casefold(): value for value in values}
            return next((named[word] for word in _words(str(source)) if word in named), first)
        case {"type": [first, *_]}:
            return _filled(schema | {"type": first}, source, root)
        case {"type": "object"}:
            known = source if isinstance(source, dict) else {}
            parts = schema.get("properties", {}).items()
            return {name: _filled(part, known.get(name, source), root) for name, part in parts}
        case {"type": "array"}:
            items = source if isinstance(source, list) else [source]
            return [_filled(schema.get("items", {}), item, root) for item in items]
        case {"type": "string"}:
            return source if isinstance(source, str) else _dumped(source)
        case {"type": "boolean"}:
            return source if isinstance(source, bool) else not re.match(r"(?i)no\b", str(source))
        case {"type": "integer" | "number" as kind}:
            # the last number of an answer is most often its result
            found = re.findall(r"-?\d{1,15}(?:\.\d+)?", str(source).replace(",", ""))
            number = float(found[-1]) if found else 0.0
            return int(number) if kind == "integer" else number
        case {"type": "null"}:
            return None
    return source


# Messages, chunks and replies


def _text_message(content: str | None) -> Json:
    return {"role": "assistant", "content": content, "refusal": None}


def _text(message: Json) -> str:
    """The text of a message, whose content is a string, a list of parts or null."""
    content = message.get("content")
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        return " ".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def _written(message: Json) -> list[tuple[Json, str]]:
    """Where the text of an answer stands: in its content and in the arguments of its calls."""
    calls = [(call["function"], "arguments") for call in message.get("tool_calls", ())]
    return calls if message["content"] is None else [(message, "content"), *calls]


def _tokens(text: str) -> list[str]:
    """The text in pieces of about a word, which stand for tokens."""
    return re.findall(r"\w+\W*|\W+", text)


def _interleaved(choices: list[Json]) -> Iterator[Json]:
    """The chunks of all choices, in turns as OpenAI sends them."""
    for together in zip_longest(*map(_chunks, choices)):
        yield from filter(None, together)


def _chunks(choice: Json) -> Iterator[Json]:
    """A complete choice as the chunks of a stream: role, content, tool calls, finish."""
    message = choice["message"]
    content = message["content"]
    deltas: list[Json] = [_text_message(None if content is None else "")]
    deltas += [{"content": token} for token in _tokens(content or "")]
    for index, call in enumerate(message.get("tool_calls", ())):
        opening = call | {"index": index, "function": call["function"] | {"arguments": ""}}
        deltas.append({"tool_calls": [opening]})
        for token in _tokens(call["function"]["arguments"]):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": token}}]})
    frame = choice | {"finish_reason": None}
    del frame["message"]
    yield from (frame | {"delta": delta} for delta in deltas)
    yield frame | {"delta": {}, "finish_reason": choice["finish_reason"]}


def _dumped(value: object) -> str:
    """Compact JSON that can be encoded as UTF-8."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="replace").decode()  # JSON may carry half characters, UTF-8 may not


def _headers(content_type: str) -> Headers:
    return [("content-type", content_type), ("x-request-id", f"req_demo_{uuid4().hex}")]


def _reply(status: int, body: Json) -> UpstreamReply:
    async def chunks() -> AsyncIterator[bytes]:
        yield _dumped(body).encode()

    return UpstreamReply(status, _headers("application/json"), chunks())
