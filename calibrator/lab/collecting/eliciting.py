"""Asks models about existing replies: their stated confidence, a judge's verdict, and more samples.

Each answer becomes a field of its row, by which `pinocchio study --out` compares these methods with
the calibrator (paper I01, I06 to I12).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from calibrator import Row, message_text
from calibrator.lab.collecting.asking import ModelRequest, RequestSender
from calibrator.lab.collecting.kept_answers import KeptAnswers
from calibrator.lab.judging.baselines.stated import stated_in, stated_prompt

if TYPE_CHECKING:
    from proxy.upstreams.router import Router

MAX_QUESTION, MAX_ANSWER = 1_500, 800  # characters, as for the calibrator
PROMPT: Final = (
    "Estimate how likely it is that the following response answers the question correctly.\n\n"
    "Question: {question}\n\nResponse: {answer}\n\n"
    "Reply with only a number between 0.0, certainly incorrect, and 1.0, certainly correct."
)
LIKELY, UNLIKELY, UNKNOWN = 0.8, 0.2, 0.5  # P(correct) where a judge gives words and no number
_DECIMAL = re.compile(r"(?<![\d.])(?:0?\.\d+|0(?:\.0*)?|1(?:\.0*)?)(?![\d.]*\d|%)")
_NO = re.compile(r"(?i)\b(no|incorrect|not correct)\b")
_YES = re.compile(r"(?i)\b(yes|correct)\b")

Json = dict[str, Any]
SURE: Final[Json] = {"temperature": 0}
TEMPERATURE: Final = 0.7  # temperature of samples (I08)


@dataclass(frozen=True, slots=True)
class Elicitation:
    """The questions that are asked about each row.

    With `is_stated` the model states its confidence in the reply; `judge` is the model that judges
    it, or empty. `samples` is the number of further answers to the question alone, at
    `temperature`. `model` states and samples instead of the row's own model where it is given.
    """

    is_stated: bool = False
    judge: str = ""
    samples: int = 0
    model: str = ""
    temperature: float = TEMPERATURE

    def models(self, rows: Sequence[Row]) -> list[str]:
        """Return the names of all models that will be asked, each once, the judge last.

        Others are `model` or else the rows' models, if a stated confidence or samples are wanted. A
        row without a model gives an empty name.
        """
        answering = [self.model] if self.model else [row.model or "" for row in rows]
        named = answering if self.is_stated or self.samples else []
        return list(dict.fromkeys([*named, *([self.judge] if self.judge else [])]))

    def asks(self, row: Row) -> list[ModelRequest]:
        """Return the requests of a row: the stated confidence, the judge, then the samples.

        Those that are not wanted are left out, so the list may be empty. The first two have
        temperature 0; samples repeat the row's messages and differ in their `number`, from 1.
        """
        model, found = self.model or row.model or "", []
        if self.is_stated:
            text = stated_prompt(row.question, row.answer)
            found.append(ModelRequest(model, [{"role": "user", "content": text}], SURE))
        if self.judge:
            text = judge_prompt(row.question, row.answer)
            found.append(ModelRequest(self.judge, [{"role": "user", "content": text}], SURE))
        parameters = {"temperature": self.temperature}
        messages = _messages_of(row)
        return [
            *found,
            *(ModelRequest(model, messages, parameters, n + 1) for n in range(self.samples)),
        ]


@dataclass
class ElicitedRows:
    """The rows with their new fields, and counts of what failed."""

    rows: list[Json]
    failed: Mapping[str, int]
    retries: int
    unread: int = 0  # stated confidences without a number
    missing: int = 0  # requests without an answer
    counts: Counter[str] = field(default_factory=Counter)  # how many rows have each new field


async def elicit(
    rows: Sequence[Row],
    elicitation: Elicitation,
    router: Router,
    kept_at: Path,
    bar: Callable[[str, int], Any],
    concurrency: int,
) -> ElicitedRows:
    """Send the requests that are not answered yet, and return the rows with the new fields.

    Answers are kept in the file `kept_at` and count as answered in a later run. `bar` makes a
    progress bar (a context manager) of a title and a number of steps. Requests that fail for good
    add no field and are counted in the result. Raises StartupError for a refused key, or where
    another process has that file.
    """
    asks = [elicitation.asks(row) for row in rows]
    every = [ask for each in asks for ask in each]
    with KeptAnswers(kept_at) as kept:
        sender = RequestSender(router, kept, concurrency)
        with bar("asking", len({ask.key for ask in every})) as progress:
            await sender.ask_all(every, progress.advance)
        found = ElicitedRows([], sender.failed, sender.retries)
        for row, requests in zip(rows, asks, strict=True):
            found.rows.append(
                _with_answers(row, elicitation, [_text(kept, ask) for ask in requests], found)
            )
    return found


def _messages_of(row: Row) -> list[Json]:
    """Return a row's own `messages`, or without any one user message with its question."""
    messages = row.raw.get("messages")
    if isinstance(messages, list) and messages:
        return messages
    return [{"role": "user", "content": row.question}]


def _text(kept: KeptAnswers, ask: ModelRequest) -> str | None:
    """Return the text of the kept answer to a request, or None where there is no answer."""
    answer = kept.get(ask.key)
    return None if answer is None else message_text(answer["message"])


def _with_answers(
    row: Row, elicitation: Elicitation, texts: Sequence[str | None], found: ElicitedRows
) -> Json:
    """Return a copy of the row's JSON object with a field for each of its answers.

    `texts` are in the order of `Elicitation.asks`, None for a missing answer, which adds no field.
    The fields are `verbalized_confidence` (only if a number was read), `judged` with `judge` (the
    judge's name), and `samples` (a list of texts). Missing, unread and added ones are counted in
    `found`.
    """
    remaining, fields = list(texts), dict(row.raw)
    found.missing += sum(text is None for text in texts)
    if elicitation.is_stated and (text := remaining.pop(0)) is not None:
        stated = stated_in(text)
        found.unread += stated is None
        if stated is not None:
            fields["verbalized_confidence"] = stated
            found.counts["verbalized_confidence"] += 1
    if elicitation.judge and (text := remaining.pop(0)) is not None:
        fields |= {"judged": judged_in(text), "judge": elicitation.judge}
        found.counts["judged"] += 1
    if elicitation.samples and (samples := [text for text in remaining if text is not None]):
        fields["samples"] = samples
        found.counts["samples"] += 1
    return fields


def lines_of(found: ElicitedRows) -> str:
    """Return the rows as text of JSON lines, one object a line; "" without rows."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found.rows)


def judge_prompt(question: str, answer: str) -> str:
    """Return the text that asks a model how likely it is that `answer` answers `question` (I06).

    No right answer is needed (I07, F10). Question and answer are cut to `MAX_QUESTION` and
    `MAX_ANSWER` characters, as for the calibrator.
    """
    return PROMPT.format(question=question[:MAX_QUESTION], answer=answer[:MAX_ANSWER])


def judged_in(text: str) -> float:
    """Return the P(correct) that a judge's words state.

    This is a number alone, else the first decimal from 0 to 1 in the text, else 0.2 for `no` or
    `incorrect`, else 0.8 for `yes` or `correct`, else 0.5, which is about the base rate (I18).
    `incorrect` holds `correct`, so the negative words are looked for first.
    """
    try:
        number = float(text.strip())
    except ValueError:
        number = -1.0
    if 0 <= number <= 1:
        return number
    if found := _DECIMAL.search(text):
        return float(found[0])
    if _NO.search(text):
        return UNLIKELY
    return LIKELY if _YES.search(text) else UNKNOWN
