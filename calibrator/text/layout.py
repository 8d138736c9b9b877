"""Put question, answer and tags into one row of tokens for the cross-encoder.

    [CLS] Benchmark: .. Source model: .. Question: .. [SEP] .. answer .. [SEP]

The tags are present only where they are known (paper F01, F07; training drops them at random, so
their absence is normal). Texts that are too long lose their middle: a question keeps mostly its
beginning, an answer mostly its end, where the final answer usually stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

CLS, SEP, PAD = 101, 102, 0  # of BERT's uncased vocabulary
CHARACTERS_PER_TOKEN = 12  # more than nearly any text has, so that a cut by characters is safe


@dataclass(frozen=True, slots=True)
class Layout:
    """The token budgets of one row, saved in `calibrator.json`."""

    max_tokens: int = 256
    answer_share: float = 0.6  # of the row, where both question and answer are too long
    question_head_share: float = 0.6
    answer_head_share: float = 0.4

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One row ready for the model; `segment_b` is the position in `ids` where the answer begins."""

    ids: list[int]
    segment_b: int
    is_truncated: bool


def load_tokenizer(folder: Path) -> Tokenizer:
    """Load the tokenizer of a folder's `tokenizer.json`, with truncation and padding turned off."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def tag_text(benchmark: str | None, source_model: str | None) -> str:
    """Return the lines before the question, as in the paper's prompt (F01)."""
    lines = []
    if benchmark:
        lines.append(f"Benchmark: {benchmark}")
    if source_model:
        lines.append(f"Source model: {source_model}")
    return "\n".join([*lines, "Question:"])


def cut_middle(tokens: Sequence[int], budget: int, head_share: float) -> list[int]:
    """Shorten tokens to `budget` by removing their middle.

    `head_share` of the budget is taken from the beginning, the rest from the end.
    """
    if len(tokens) <= budget:
        return list(tokens)
    head = round(budget * head_share)
    return [*tokens[:head], *tokens[len(tokens) - (budget - head) :]]


def clip_characters(text: str, layout: Layout) -> str:
    """Return a very long text's beginning and end, which bounds the tokenizer's work.

    Shorter texts are returned unchanged.
    """
    limit = layout.max_tokens * CHARACTERS_PER_TOKEN
    return f"{text[:limit]} {text[-limit:]}" if is_clipped(text, layout) else text


def is_clipped(text: str, layout: Layout) -> bool:
    return len(text) > 2 * layout.max_tokens * CHARACTERS_PER_TOKEN


def readable(text: str) -> str:
    """Replace half surrogate pairs, which JSON can carry and tokenizers refuse, with U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def encode(tokenizer: Tokenizer, texts: Sequence[str], layout: Layout) -> list[list[int]]:
    """Return the token ids of each text, without [CLS] and [SEP]."""
    clipped = [readable(clip_characters(text, layout)) for text in texts]
    return [e.ids for e in tokenizer.encode_batch_fast(clipped, add_special_tokens=False)]


def assemble(
    tags: Sequence[int], question: Sequence[int], answer: Sequence[int], layout: Layout
) -> TokenRow:
    """Join three token lists within the budget of one row.

    Question or answer may use the room that the other leaves free.
    """
    tags = tags[: layout.max_tokens - 3]  # [CLS] and two [SEP]
    room = layout.max_tokens - 3 - len(tags)
    answer_budget = max(round(room * layout.answer_share), room - len(question))
    answer_part = cut_middle(answer, answer_budget, layout.answer_head_share)
    question_part = cut_middle(question, room - len(answer_part), layout.question_head_share)
    head = [CLS, *tags, *question_part, SEP]
    return TokenRow(
        ids=[*head, *answer_part, SEP],
        segment_b=len(head),
        is_truncated=len(question_part) < len(question) or len(answer_part) < len(answer),
    )
