"""Structured output of the demo: a canned answer as the JSON that a request wants."""

from __future__ import annotations

import re
from functools import reduce
from typing import Any

from proxy.errors import BadRequestError
from proxy.http.wire.json_splice import json_object
from proxy.upstreams.demo.answers import Json, dump_json, words_of


def format_answer(content: str, response_format: Json) -> str:
    """Convert an answer to the JSON that `response_format` wants, or return it unchanged.

    Raises BadRequestError for a schema that the demo cannot fill.
    """
    known = json_object(content)
    match response_format:
        case {"type": "json_object"}:
            return dump_json({"answer": content} if known is None else known)
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            try:
                return dump_json(_fill_schema(schema, content if known is None else known, schema))
            except (AttributeError, KeyError, TypeError, RecursionError):
                text = "Invalid schema for response_format: the demo cannot fill it."
                raise BadRequestError(text, param="response_format") from None
    return content


def _fill_schema(schema: Json, source: Any, root: Json) -> Any:
    """Return a value that fits a JSON Schema and has the content of `source` as far as possible."""
    match schema:
        case {"$ref": str(pointer)}:
            target = reduce(lambda node, step: node[step], pointer.split("/")[1:], root)
            return _fill_schema(target, source, root)
        case {"anyOf": [first, *_]}:
            return _fill_schema(first, source, root)
        case {"const": value}:
            return value
        case {"enum": [first, *_] as values}:
            named = {str(value).casefold(): value for value in values}
            return next((named[word] for word in words_of(str(source)) if word in named), first)
        case {"type": [first, *_]}:
            return _fill_schema(schema | {"type": first}, source, root)
        case {"type": "object"}:
            known = source if isinstance(source, dict) else {}
            parts = schema.get("properties", {}).items()
            return {name: _fill_schema(part, known.get(name, source), root) for name, part in parts}
        case {"type": "array"}:
            items = source if isinstance(source, list) else [source]
            return [_fill_schema(schema.get("items", {}), item, root) for item in items]
        case {"type": "string"}:
            return source if isinstance(source, str) else dump_json(source)
        case {"type": "boolean"}:
            return source if isinstance(source, bool) else not re.match(r"(?i)no\b", str(source))
        case {"type": "integer" | "number" as kind}:
            # The last number of an answer is most often its result.
            found = re.findall(r"-?\d{1,15}(?:\.\d+)?", str(source).replace(",", ""))
            number = float(found[-1]) if found else 0.0
            return int(number) if kind == "integer" else number
        case {"type": "null"}:
            return None
    return source
