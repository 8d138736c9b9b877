"""Files of rows: a check that they can be read, the form of a line, and missing fields.

A similar field is suggested and never used instead: in published data `answer` is often the right
answer rather than a model's reply, and `label` 1 may mark wrong ones. No numpy is needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal

from calibrator.errors import InputError

ROW_FORM: Final = '{"question": "..", "response": "..", "correct": 1}'
SAMPLE: Final = "examples/labelled/rows.jsonl"  # its folder has a page about the fields
Field = Literal["question", "response", "correct"]
MEANINGS: Final[dict[Field, str]] = {
    "question": "if it is what the model was asked",
    "response": "if it is the reply that the model gave",
    "correct": "with 1 where the reply is right and 0 where it is wrong",
}
OTHER_NAMES: Final[dict[Field, tuple[str, ...]]] = {
    "question": (
        *("prompt", "query", "input", "instruction", "problem", "task", "user", "request"),
        *("conversation", "dialog", "dialogue", "questions"),
    ),
    "response": (
        *("answer", "reply", "output", "completion", "generation", "prediction", "result"),
        *("model_answer", "model_response", "model_output", "assistant", "responses", "text"),
    ),
    "correct": (
        *("label", "is_correct", "correctness", "right", "is_right", "verdict", "labels"),
        *("target", "grade", "is_true", "truth", "ok", "passed"),
    ),
}


def json_line(values: Any) -> str:
    """Return values as JSON in one line with a line end.

    Half a surrogate pair, which has no UTF-8, becomes an escape.
    """
    text = json.dumps(values, ensure_ascii=False)
    return text.encode(errors="backslashreplace").decode() + "\n"


def check_readable(paths: Iterable[Path | None], *, times: int = 1) -> None:
    """Raise InputError for the first file that cannot be opened; None is skipped.

    A pipe is refused where it is named twice, or with `times` above 1: a second reading of it would
    find nothing, or wait for another writer.
    """
    pipes: set[Path] = set()
    for path in paths:
        if path is None:
            continue
        try:
            if path.is_fifo():  # opening it would take its only reading
                if times > 1 or path.resolve() in pipes:
                    raise InputError(
                        f"{path} is a pipe, and the rows are read {max(times, 2)} times; "
                        "save them in a file and name that"
                    )
                pipes.add(path.resolve())
            else:
                path.open("rb").close()
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from error


def missing_field(field: Field, row: Mapping[str, Any]) -> str:
    """Return a sentence such as `'response' is missing; rename 'answer' to 'response' ..`.

    It names a similar field of the row to rename, or `messages` that end with a reply, if any.
    """
    name = f"{field!r} (or 'messages')" if field == "question" else repr(field)
    if near := near_miss(field, row):
        return f"{name} is missing; rename {near!r} to {field!r} {MEANINGS[field]}"
    if field == "response" and _ends_with_reply(row.get("messages")):
        return f"{name} is missing; move the last of 'messages', which is the reply, to 'response'"
    return f"{name} is missing"


def near_miss(field: Field, row: Mapping[str, Any]) -> str | None:
    """Return the key of a row that was probably meant instead of `field`, or None.

    It may be another common name (`answer`), have other case, or have a slip (`respnse`).
    """
    by_plain_name = {_plain_name(key): key for key in reversed(list(row)) if key != field}
    for other in (field, *OTHER_NAMES[field]):
        if key := by_plain_name.get(_plain_name(other)):
            return key
    close = get_close_matches(field, by_plain_name, n=1, cutoff=0.8)
    return by_plain_name[close[0]] if close else None


def _ends_with_reply(messages: Any) -> bool:
    """Return whether `messages` is a list that ends with an assistant's message."""
    last = messages[-1] if isinstance(messages, list) and messages else None
    return isinstance(last, Mapping) and last.get("role") == "assistant"


def _plain_name(name: str) -> str:
    """Return the letters and digits of a name, in lower case."""
    return "".join(filter(str.isalnum, name.lower()))
