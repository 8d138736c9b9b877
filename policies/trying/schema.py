"""The JSON Schema of policies, for editors; `pinocchio check --schema` prints it.

    # yaml-language-server: $schema=policy.schema.json

It follows the reader as far as a schema can: every policy that the reader accepts is valid here
(tests/policies/trying/test_policy_schema.py draws them). The reader also refuses contradictions,
unreachable rules and repeated names.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from policies.conditions.call_notes import ANY, MARKS, RISKS
from policies.conditions.conditions import ON_REQUEST
from policies.conditions.findings import ACTS, BASES
from policies.deciding.actions import (
    ACTIONS,
    ASKS,
    DURATION,
    KEEPS,
    MAX_APPROVALS,
    MAX_HOPS,
    MAX_REVISIONS,
    ON_EXPIRY,
    OTHERWISE,
    REPLIES,
    REVISE,
)
from policies.deciding.asking import MAX_REPLIES
from policies.deciding.costs import PRICES
from policies.deciding.judge import BY
from policies.deciding.policy import MODES, NAME, ON_SCORE_ERROR
from policies.deciding.rules import MAX_RULE_NAME
from policies.deciding.second_opinion import MAX_OPINIONS, NEAR_THRESHOLD, STARTS

Schema: TypeAlias = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string", "pattern": r"\S"}
_TEXTS: Final[Schema] = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]}
_FLAG: Final[Schema] = {"type": "boolean"}
_NUMBER: Final[Schema] = {"type": "number"}
_PRICE: Final[Schema] = {"type": "number", "minimum": 0}
_PROBABILITY: Final[Schema] = {"type": "number", "minimum": 0, "maximum": 1}
_SHARE: Final[Schema] = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
_DURATION: Final[Schema] = {
    "type": "string",
    "pattern": f"^{DURATION.pattern.replace('?P<count>', '').replace('?P<unit>', '')}$",
}
_ACTION: Final[Schema] = {"$ref": "#/$defs/action"}


def json_schema() -> Schema:
    """Return the schema of a policy file (draft 2020-12)."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Pinocchio policy",
        **_keys(_POLICY, required=("version", "name", "default")),
        "$defs": {"action": _action(), "when": _nullable(_keys(_WHEN))},
    }


def _keys(properties: Schema, required: tuple[str, ...] = ()) -> Schema:
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | ({"required": list(required)} if required else {})


def _nullable(schema: Schema) -> Schema:
    """Return a schema that also allows null, as no value (`when:`) is an empty mapping or list."""
    return {"anyOf": [{"type": "null"}, schema]}


def _words(words: tuple[str, ...]) -> Schema:
    return {"enum": list(words)}


def _some_of(words: tuple[str, ...]) -> Schema:
    """Return the schema of one of the words, or a list of some."""
    listed = {"type": "array", "items": _words(words), "minItems": 1}
    return {"anyOf": [_words(words), listed]}


def _count(least: int) -> Schema:
    whole = {"type": "integer", "minimum": least}
    return {"anyOf": [whole, {**_keys({"at_least": whole, "below": whole}), "minProperties": 1}]}


def _action() -> Schema:
    """Return the schema of an action: a word, or a mapping from one word to its options."""
    with_options = [
        {**_keys({name: _nullable(options)}), "minProperties": 1}
        for name, options in _OPTIONS.items()
    ]
    needs_nothing = [name for name in ACTIONS if name not in ("annotate", "escalate")]
    return {"anyOf": [_words(tuple(needs_nothing)), *with_options]}


_HOLD: Final[Schema] = {
    "reply": _words(REPLIES),
    "wait": _DURATION,
    "otherwise": _words(OTHERWISE),
    "expires": _DURATION,
    "on_expiry": _words(ON_EXPIRY),
    "approvals": {"type": "integer", "minimum": 1, "maximum": MAX_APPROVALS},
    "escalate": _nullable(_keys({"after": _DURATION, "to": _TEXT}, required=("after", "to"))),
}
_MODELS: Final[Schema] = {
    "anyOf": [
        _TEXT,
        {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": MAX_HOPS, "uniqueItems": True},
    ]
}
_OPTIONS: Final[dict[str, Schema]] = {
    "deliver": _keys({"notice": _TEXT}),
    "annotate": _keys({"label": _TEXT}, required=("label",)),
    "clarify": _keys({"text": _TEXT, "ask": _words(ASKS), "model": _TEXT}),
    "escalate": {
        "anyOf": [
            _keys(
                {"to": _MODELS, "keep": _words(KEEPS), "otherwise": _ACTION},
                required=("to",),
            ),
            _keys({"human": _TEXT, **_HOLD}, required=("human",)),
        ]
    },
    REVISE: _keys(
        {
            "times": {"type": "integer", "minimum": 1, "maximum": MAX_REVISIONS},
            "to": _TEXT,
            "keep": _words(KEEPS),
            "otherwise": _ACTION,
        }
    ),
    "hold": _keys({"queue": _TEXT, **_HOLD}),
    "block": _keys({"message": _TEXT}),
}
_CONFIDENCE: Final[Schema] = {
    "anyOf": [
        {**_keys({"below": _PROBABILITY, "at_least": _PROBABILITY}), "minProperties": 1},
        _keys(
            {"between": {"type": "array", "items": _PROBABILITY, "minItems": 2, "maxItems": 2}},
            required=("between",),
        ),
        _keys({"max_error": _SHARE}, required=("max_error",)),
        _keys({"lowest_share": _SHARE}, required=("lowest_share",)),
    ]
}
_SUPPORT: Final[Schema] = {"anyOf": _CONFIDENCE["anyOf"][:2]}
_BASIS: Final[Schema] = {"anyOf": [_some_of(BASES), _keys({"only": _some_of(BASES)}, ("only",))]}
_ARGUMENT: Final[Schema] = {
    "anyOf": [
        {"type": ["number", "boolean", "null"]},
        _TEXTS,
        {
            **_keys(
                {
                    "above": _NUMBER,
                    "at_least": _NUMBER,
                    "below": _NUMBER,
                    "at_most": _NUMBER,
                    "not": _TEXTS,
                    "present": _FLAG,
                    "words": _TEXTS,
                    "commands": _TEXTS,
                    "paths": _TEXTS,  # or `outside`
                }
            ),
            "minProperties": 1,
        },
    ]
}
_ARGUMENTS: Final[Schema] = {
    "type": "object",
    "additionalProperties": _ARGUMENT,
    "minProperties": 1,
}
_MARKS: Final[Schema] = {"anyOf": [{"const": ANY}, _some_of(MARKS)]}
_MARKED: Final[Schema] = {
    "anyOf": [
        _MARKS,
        {"type": "object", "additionalProperties": _MARKS, "minProperties": 1},
    ]
}
_TOOL: Final[Schema] = {
    **_keys(
        {
            "name": _TEXTS,
            "words": _TEXTS,
            "without": _TEXTS,
            "arguments": {
                "anyOf": [_ARGUMENTS, {"type": "array", "items": _ARGUMENTS, "minItems": 1}]
            },
            "marked": _MARKED,
            "risk": _some_of(RISKS),
        }
    ),
    "anyOf": [{"required": [key]} for key in ("name", "words", "marked", "risk")],
}
_WHEN: Final[Schema] = {
    "confidence": _CONFIDENCE,
    "stream": _FLAG,
    "model": _TEXTS,
    "team": _TEXTS,
    "key": _TEXTS,
    "domain": _TEXTS,
    "tags": _TEXTS,
    "n": _count(1),
    "finish_reason": _TEXTS,
    "refusal": _FLAG,
    "length": _count(0),
    "calls": _count(0),
    "tools": {
        "anyOf": [
            _words(("any", "none")),
            {"type": "array", "items": {"anyOf": [_TEXT, _TOOL]}, "minItems": 1},
        ]
    },
    "risk": _some_of(RISKS),
    "support": _SUPPORT,
    "basis": _BASIS,
    "act": _some_of(ACTS),
    "needs_facts": _FLAG,
    "familiar": _FLAG,
}
_RULE: Final[Schema] = {
    "name": {**_TEXT, "maxLength": MAX_RULE_NAME},
    "when": {"$ref": "#/$defs/when"},
    "then": _ACTION,
    "shadow": _FLAG,
}
_ASK: Final[Schema] = {
    **_keys(
        {
            "n": {"type": "integer", "minimum": 1, "maximum": MAX_REPLIES},
            "models": _TEXTS,
            "when": _nullable(_keys({name: _WHEN[name] for name in ON_REQUEST})),
        }
    ),
    "anyOf": [{"required": ["n"]}, {"required": ["models"]}],
}
_BANDS: Final[Schema] = {"anyOf": _CONFIDENCE["anyOf"][:2]}
_SECOND_OPINION: Final[Schema] = _keys(
    {
        "from": _TEXTS,
        "when": {
            "anyOf": [
                {"const": NEAR_THRESHOLD},
                _nullable(_keys(_WHEN | {"confidence": _BANDS})),
            ]
        },
        "n": {"type": "integer", "minimum": 1, "maximum": MAX_OPINIONS},
        "start": _words(STARTS),
        "within": _DURATION,
    },
    required=("from",),
)
_JUDGE: Final[Schema] = _keys(
    {
        "model": _TEXT,
        "when": _SECOND_OPINION["properties"]["when"],
        "by": _words(BY),
        "within": _DURATION,
    },
    required=("model",),
)
_POLICY: Final[Schema] = {
    "version": {"const": 1},
    "name": {"type": "string", "pattern": f"^{NAME.pattern}$"},
    "mode": _words(MODES),
    "on_score_error": {
        "anyOf": [
            _words(ON_SCORE_ERROR),
            *(_keys({name: _nullable(_OPTIONS[name])}, (name,)) for name in ON_SCORE_ERROR),
        ]
    },
    "ask": _ASK,
    "second_opinion": _SECOND_OPINION,
    "judge": _JUDGE,
    "logprobs": {"type": "boolean"},
    "certificate": _TEXT,
    "costs": _nullable(
        _keys(
            {
                "currency": _TEXT,
                **dict.fromkeys(PRICES, _PRICE),
                "queues": {"type": "object", "additionalProperties": _PRICE},
            }
        )
    ),
    "rules": _nullable({"type": "array", "items": _keys(_RULE, required=("name", "then"))}),
    "default": _ACTION,
}
