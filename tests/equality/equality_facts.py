"""The content of an answer, whole or streamed, for comparison where its text may differ."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]


def chunks_in(body: bytes) -> list[Json]:
    """Return the chunks of a stream, whatever its line ends."""
    lines = body.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    data = (line.removeprefix("data:").strip() for line in lines if line.startswith("data:"))
    return [json.loads(text) for text in data if text and text != "[DONE]"]


def of_stream(chunks: Iterable[Json]) -> Json:
    """Return the facts of a stream once its chunks are assembled."""
    head: Json = {}
    choices: dict[int, Json] = {}
    for chunk in chunks:
        head |= {name: chunk[name] for name in ("id", "model", "usage") if chunk.get(name)}
        for part in chunk["choices"]:
            choice = choices.setdefault(part["index"], {"text": "", "calls": {}, "finish": None})
            _grow(choice, part["delta"])
            choice["finish"] = choice["finish"] or part["finish_reason"]
            logprobs = (part.get("logprobs") or {}).get("content") or []
            choice.setdefault("logprobs", []).extend(token["token"] for token in logprobs)
    return head | {"choices": choices}


def _grow(choice: Json, delta: Json) -> None:
    for name in ("content", "refusal", "reasoning_content"):
        choice[name] = choice.get(name, "") + (delta.get(name) or "")
    choice["reasoning_content"] += delta.get("reasoning") or ""  # another name for the same
    for name in ("audio", "function_call"):
        choice[name] = delta.get(name) or choice.get(name)
    for piece in delta.get("tool_calls") or ():
        call = choice["calls"].setdefault(piece["index"], {"arguments": ""})
        function = piece["function"]
        call["arguments"] += function.get("arguments") or ""
        call |= {k: v for k, v in (piece | function).items() if k in ("id", "name") and v}
