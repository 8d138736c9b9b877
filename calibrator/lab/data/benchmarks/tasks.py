"""Questions for models, from a benchmark's file or from a user's.

A line of a user's file is `{"question" | "messages", "gold", ..}`; `gold` is the right answer or a
list of all right answers. `options`, a list or an object by letter, makes it multiple choice,
`rubric` has a model grade it, and `grader` names another grader. Otherwise `gold` decides the
grader. `id`, `benchmark`, `domain` and `images` (data URLs, or files beside this one) are optional.
"""

from __future__ import annotations

import ast
import base64
import csv
import hashlib
import json
import mimetypes
import random
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_args

from calibrator.errors import InputError, RowError
from calibrator.lab.data.benchmarks.registry import PROMPTS, Benchmark, benchmark_named
from calibrator.lab.data.grading.graders import GraderName
from calibrator.rows.rows import read_lines

Json = dict[str, Any]
OPTIONS: Final = string.ascii_uppercase
_NUMBER = re.compile(r"[-+$]?\s*\d[\d,]*(?:\.\d+)?\s*%?")
_FORMULA = re.compile(r"[\\^{}=]|\d\s*[*/]\s*\d")


@dataclass(frozen=True, slots=True)
class Task:
    """One question as it is sent, with the fields that grading needs."""

    question_id: str
    benchmark: str
    domain: str | None
    messages: list[Json]
    question: str  # the text that is sent, with options and prompt
    gold: tuple[str, ...]
    grader: GraderName
    rubric: str = ""
    images: tuple[str, ...] = ()  # data URLs
    has_own_messages: bool = field(default=False)


def load_tasks(
    sources: Sequence[str], *, is_as_it_is: bool = False, most: int | None = None
) -> tuple[list[Task], list[RowError]]:
    """Return the tasks of files and the errors of their bad rows; each question once.

    A source is `FILE` or `BENCHMARK=FILE`. `most` limits the tasks of each file; they are
    chosen by the hash of their ids. `is_as_it_is` adds no prompt to a question. Raises
    InputError for a file that cannot be read or has no task, and for an unknown benchmark.
    """
    tasks: dict[str, Task] = {}
    bad: list[RowError] = []
    for source in sources:
        name, _, rest = source.partition("=")
        path = Path(rest or name)
        known = benchmark_named(name) if rest else None
        found: dict[str, Task] = {}
        for number, raw in _lines(path):
            if isinstance(raw, RowError):
                bad.append(raw)
                continue
            try:
                task = task_of(raw, known, path, is_as_it_is=is_as_it_is)
            except ValueError as error:
                bad.append(RowError(str(path), number, str(error)))
                continue
            found.setdefault(task.question_id, task)
        if not found:
            why = f": {bad[0]}" if bad else ""
            raise InputError(f"{path} has no question that could be asked{why}")
        chosen = sorted(found, key=_draw_key)[:most] if most else found
        tasks.update({id: found[id] for id in found if id in set(chosen)})
    return list(tasks.values()), bad


def _draw_key(id: str) -> str:
    return hashlib.sha256(id.encode()).hexdigest()


def _lines(path: Path) -> Iterator[tuple[int, Json | RowError]]:
    """Yield (line number, row or its error) for JSON lines, or CSV by the file's name.

    Empty lines are skipped. Raises InputError for a file that cannot be read.
    """
    try:
        if ".csv" in path.suffixes:
            with path.open(encoding="utf-8", newline="") as stream:
                for row in (reader := csv.DictReader(stream)):
                    yield reader.line_num, dict(row)
            return
        for number, line in read_lines(path):
            if isinstance(line, RowError):
                yield number, line
            elif line.strip():
                yield number, _object(path, number, line)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _object(path: Path, number: int, line: bytes) -> Json | RowError:
    """Parse a line as a JSON object; return a RowError, without raising it, if it is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        return RowError(str(path), number, f"not JSON: {error}")
    return found if isinstance(found, dict) else RowError(str(path), number, "no JSON object")


def task_of(
    raw: Mapping[str, Any], known: Benchmark | None, path: Path, *, is_as_it_is: bool = False
) -> Task:
    """Return the task of one row of a file, with the messages to send and the grader.

    `known` maps the names of its fields; without it the benchmark is the one that the row
    names, else the file's name. Images are read beside `path`. `is_as_it_is` adds no prompt.
    The id is `BENCHMARK/ID`, or a hash if the row has no id. Raises ValueError with the fault
    of a bad row, such as a missing right answer.
    """
    fields: Mapping[str, Any] = known.fields if known else {}
    gold = _texts(_value(raw, fields, "gold"))
    rubric = "\n".join(_texts(_value(raw, fields, "rubric")))
    options = _options(raw, fields, gold)
    grader = _grader(raw, known, gold, rubric, is_choice=bool(options))
    if options:
        gold = _letters(gold, options)
    if not gold and not rubric:
        raise ValueError("neither 'gold', the right answer, nor 'rubric' is there to grade by")
    if grader != "rubric" and not gold:
        raise ValueError(f"the grader {grader} needs 'gold', the right answer")
    images = tuple(_image(each, path) for each in _texts(_value(raw, fields, "images")))
    own = raw.get("messages")
    if isinstance(own, list) and own:
        messages, text = own, ""
    else:
        text = _question_text(raw, fields, options, "" if is_as_it_is else PROMPTS[grader])
        messages = [{"role": "user", "content": _content(text, images)}]
    named = _value(raw, fields, "id") if raw.get("question_id") is None else raw["question_id"]
    stated = json.dumps([messages, list(gold)], sort_keys=True, ensure_ascii=False)
    benchmark = known.name if known else str(raw.get("benchmark") or path.name.split(".")[0])
    return Task(
        question_id=f"{benchmark}/{named if named not in (None, '') else _draw_key(stated)[:16]}",
        benchmark=benchmark,
        domain=known.domain if known else raw.get("domain"),
        messages=messages,
        question=text,
        gold=gold,
        grader=grader,
        rubric=rubric,
        images=images,
        has_own_messages=not text,
    )


def _value(raw: Mapping[str, Any], fields: Mapping[str, Any], name: str) -> Any:
    """Return the row's field under the benchmark's name for it, else under ours; None without."""
    found = raw.get(fields.get(name, name))
    return raw.get(name) if found is None else found


def _texts(value: Any) -> tuple[str, ...]:
    """Return a value, or each of a list, as a tuple of texts; others are written as JSON.

    None, `null` and empty texts are left out.
    """
    listed = value if isinstance(value, list | tuple) else [value]
    plain = [each if isinstance(each, str) else json.dumps(each) for each in listed if each != ""]
    return tuple(each for each in plain if each != "null")


def _question_text(
    raw: Mapping[str, Any], fields: Mapping[str, Any], options: Mapping[str, str], prompt: str
) -> str:
    """Return question, options (`A. ..`) and prompt, joined by empty lines, as the text to send.

    Raises ValueError without a question.
    """
    question = "\n\n".join(_texts(_value(raw, fields, "question")))
    if not question.strip():
        named = fields.get("question", "question")
        raise ValueError(f"{named!r} (or 'messages') is missing")
    offered = "\n".join(f"{letter}. {text}" for letter, text in options.items())
    return "\n\n".join(part for part in (question.strip(), offered, prompt) if part)


def _options(
    raw: Mapping[str, Any], fields: Mapping[str, Any], gold: Sequence[str]
) -> dict[str, str]:
    """Return the options by letter, such as `{"A": "red"}`; empty if the row has none.

    Right and wrong options that have fields of their own are shuffled, the same way each time.
    Raises ValueError for a text that is no list.
    """
    wrong = fields.get("wrong") or "wrong"
    names = wrong if isinstance(wrong, list) else [wrong]
    apart = [text for name in names for text in _texts(raw.get(name))]
    if apart:
        mixed = [*gold[:1], *apart]
        random.Random(_draw_key("\0".join(sorted(mixed)))).shuffle(mixed)
        return dict(zip(OPTIONS, mixed, strict=False))
    offered = _value(raw, fields, "options")
    if isinstance(offered, str):  # CSV and some data sets write a list as text
        try:
            offered = ast.literal_eval(offered)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            raise ValueError(f"'options' is {offered[:40]!r}, which is no list") from None
    if isinstance(offered, dict):
        return {str(letter): str(text) for letter, text in offered.items()}
    return dict(zip(OPTIONS, _texts(offered), strict=False)) if isinstance(offered, list) else {}


def _letters(gold: Sequence[str], options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the letters of the right options, which `gold` names by text or by letter, as `(B)`.

    Raises ValueError for one that is no option.
    """
    by_text = {text.strip(): letter for letter, text in options.items()}
    found = [by_text.get(each.strip(), each.strip().strip("()")) for each in gold]
    if unknown := [each for each in found if each not in options]:
        raise ValueError(f"'gold' is {unknown[0]!r}, which is none of the options")
    return tuple(found)


def _grader(
    raw: Mapping[str, Any],
    known: Benchmark | None,
    gold: Sequence[str],
    rubric: str,
    *,
    is_choice: bool,
) -> GraderName:
    """Return a row's grader: the one it names, or the first that fits.

    That is `choice` with options, the benchmark's own, `rubric` with a rubric, or the one for
    the form of `gold`. Raises ValueError for an unknown name.
    """
    named = raw.get("grader")
    if named is not None:
        if named not in get_args(GraderName):
            raise ValueError(f"'grader' is {named!r}; there are {', '.join(get_args(GraderName))}")
        return named  # type: ignore[no-any-return]  # it is one of them
    if is_choice:
        return "choice"
    if known is not None:
        return known.grader
    if rubric:
        return "rubric"
    return grader_for(gold)


def grader_for(gold: Sequence[str]) -> GraderName:
    """Return the grader for the form of the right answers: `claim`, `number`, `formula` or `fuzzy`.

    `claim` if all are yes, no, true or false; `number` if all are numbers; `formula` if any
    looks like one; else, also without answers, `fuzzy`.
    """
    if gold and all(each.strip().lower() in ("yes", "no", "true", "false") for each in gold):
        return "claim"
    if gold and all(_NUMBER.fullmatch(each.strip()) for each in gold):
        return "number"
    if any(_FORMULA.search(each) for each in gold):
        return "formula"
    return "fuzzy"


def _content(text: str, images: Sequence[str]) -> Any:
    """Return a message's content: the text, or parts with the images first if there are any."""
    if not images:
        return text
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in images]
    return [*parts, {"type": "text", "text": text}]


def _image(image: str, path: Path) -> str:
    """Return an image as a data URL: as it is, or read from a file beside the questions.

    Raises ValueError for a file outside that folder, of no image type by its name, or
    unreadable.
    """
    if image.startswith("data:"):
        return image
    file = (path.parent / image).resolve()
    kind = mimetypes.guess_type(file.name)[0] or ""
    if not file.is_relative_to(path.parent.resolve()) or not kind.startswith("image/"):
        raise ValueError(f"'images' names {image!r}, which is no image beside the questions")
    try:
        return f"data:{kind};base64,{base64.b64encode(file.read_bytes()).decode()}"
    except OSError as error:
        raise ValueError(f"the image {image!r} cannot be read: {error.strerror}") from error
