"""Cut texts into word pieces, with a bound on the work that one text takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

CLS, SEP = 101, 102  # of BERT's uncased vocabulary
CHARACTERS_PER_TOKEN = 12  # more than nearly any text has, so that a cut by characters is safe


@dataclass(frozen=True, slots=True)
class Layout:
    """How much of a text is read, saved in `calibrator.json`."""

    max_tokens: int = 256

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def load_tokenizer(folder: Path) -> Tokenizer:
    """Load the tokenizer of a folder's `tokenizer.json`, with truncation and padding turned off."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def clip_characters(text: str, layout: Layout) -> str:
    """Return a very long text's beginning and end, which bounds the tokenizer's work.

    Shorter texts are returned unchanged.
    """
    limit = layout.max_tokens * CHARACTERS_PER_TOKEN
    return f"{text[:limit]} {text[-limit:]}" if is_clipped(text, layout) else text


def is_clipped(text: str, layout: Layout) -> bool:
    return len(text) > 2 * layout.max_tokens * CHARACTERS_PER_TOKEN


def replace_surrogates(text: str) -> str:
    """Replace half surrogate pairs, which JSON can carry and tokenizers refuse, with U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def encode(tokenizer: Tokenizer, texts: Sequence[str], layout: Layout) -> list[list[int]]:
    """Return the token ids of each text, without [CLS] and [SEP]."""
    clipped = [replace_surrogates(clip_characters(text, layout)) for text in texts]
    return [e.ids for e in tokenizer.encode_batch_fast(clipped, add_special_tokens=False)]
