"""The cost of collecting: an estimate by characters before it, and a bill by tokens after it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from calibrator.lab.collecting.asking import ModelRequest

CHARACTERS_A_TOKEN: Final = 4  # roughly, in English text and JSON


@dataclass(frozen=True, slots=True)
class Price:
    """A model's price, in US dollars for a million tokens."""

    prompt: float
    completion: float

    def cost_of(self, prompt_tokens: float, completion_tokens: float) -> float:
        """Return the dollars that these numbers of prompt and completion tokens cost."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6


def price_of(text: str) -> tuple[str, Price]:
    """Parse `MODEL=PROMPT,COMPLETION`, such as `gpt-5-mini=0.25,2`, into a model and its price.

    The numbers are dollars for a million tokens. Raises ValueError for another form or a negative
    price.
    """
    model, _, numbers = text.rpartition("=")
    parts = numbers.split(",")
    try:
        if not model or len(parts) != 2:
            raise ValueError
        prompt, completion = (float(part) for part in parts)
        if not (prompt >= 0 and completion >= 0):
            raise ValueError
    except ValueError:
        example = "gpt-5-mini=0.25,2"
        raise ValueError(
            f"--price {text!r} is not MODEL=PROMPT,COMPLETION, dollars for a million tokens, "
            f"as in {example}"
        ) from None
    return model, Price(prompt, completion)


@dataclass(frozen=True, slots=True)
class BillLine:
    """The calls of one model with their tokens; `dollars` is None where no price is known."""

    model: str
    calls: int
    prompt_tokens: int
    completion_tokens: int
    dollars: float | None


def estimate(
    asks: Sequence[ModelRequest], prices: Mapping[str, Price], expected_tokens: int
) -> list[BillLine]:
    """Estimate the cost of calls that are still to be made, one line for each model.

    Lines are in the order of each model's first request. A request's tokens are its characters
    divided by `CHARACTERS_A_TOKEN`; each answer counts as `expected_tokens`.
    """
    grouped: dict[str, list[ModelRequest]] = defaultdict(list)
    for ask in asks:
        grouped[ask.model].append(ask)
    return [
        _line(
            model,
            len(each),
            sum(ask.characters for ask in each) // CHARACTERS_A_TOKEN,
            expected_tokens * len(each),
            prices,
        )
        for model, each in grouped.items()
    ]


def bill(answers: Iterable[Mapping[str, Any]], prices: Mapping[str, Price]) -> list[BillLine]:
    """Return the cost of kept answers, one line for each model, sorted by its name.

    Each answer is a dict with `model`, `prompt_tokens` and `completion_tokens`.
    """
    grouped: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for answer in answers:
        grouped[answer["model"]].append(answer)
    return [
        _line(
            model,
            len(each),
            sum(answer["prompt_tokens"] for answer in each),
            sum(answer["completion_tokens"] for answer in each),
            prices,
        )
        for model, each in sorted(grouped.items())
    ]


def _line(
    model: str, calls: int, prompt: int, completion: int, prices: Mapping[str, Price]
) -> BillLine:
    """Return one model's line: its calls, its tokens and their cost, None without a price."""
    price = prices.get(model)
    dollars = price.cost_of(prompt, completion) if price else None
    return BillLine(model, calls, prompt, completion, dollars)


def total(lines: Iterable[BillLine]) -> float:
    """Return the dollars of all lines together; lines without a price count as 0."""
    return sum(line.dollars or 0.0 for line in lines)


def sentence(lines: Sequence[BillLine], what: str) -> str:
    """Return a sentence with the calls, tokens and dollars of all lines together.

    `what` begins it, as in `collected: 12 calls, 3,400 tokens in, 560 out, 0.01 USD`. The dollars
    are left out where no line has a price; models without one are named at the end.
    """
    calls = sum(line.calls for line in lines)
    prompt = sum(line.prompt_tokens for line in lines)
    completion = sum(line.completion_tokens for line in lines)
    text = f"{what}: {calls:,} calls, {prompt:,} tokens in, {completion:,} out"
    unpriced = [line.model for line in lines if line.dollars is None]
    if len(unpriced) < len(lines):
        text += f", {total(lines):,.2f} USD"
    if unpriced:
        text += f"; no --price for {', '.join(unpriced)}"
    return text
