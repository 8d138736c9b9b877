"""Cut texts into word pieces word by word, and remember the pieces of words, because words recur.

BERT's tokenizer never looks past spaces and ASCII punctuation, so a text's pieces are those of its
words in a row. Finding words and looking them up takes a twentieth of the tokenizer's time; the
tokenizer is called only for new words. Other kinds of tokenizers get whole texts.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from calibrator.kernel import load_kernel

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


MOST_WORDS = 50_000  # that are remembered, about 10 MB; then all are dropped
LONGEST_WORD = 40  # characters; longer words rarely recur and are not remembered

# Spaces and single punctuation marks end a word. Everything else, such as control characters and
# letters of any script, stays together and is cut by the tokenizer.
_HALF = re.compile("[\ud800-\udfff]")  # half a surrogate pair, which has no UTF-8
_WORD = re.compile(r"[^ \t\n\r!-/:-@\[-`{-~]+|[!-/:-@\[-`{-~]")


class WordPieces:
    """A tokenizer that remembers words; its ids are those of `layout.encode`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        told = json.loads(tokenizer.to_str())
        self._cuts_words = _cuts_words(told)
        self._added = [token["content"] for token in told["added_tokens"]]
        self._words = _Words(tokenizer)
        self._kernel = load_kernel() if self._cuts_words and _is_usual(told["model"]) else None
        if self._kernel is not None:
            unknown = told["model"]["vocab"][told["model"]["unk_token"]]
            self._held = self._kernel.vocabulary(told["model"]["vocab"], unknown)

    def encode(self, texts: Sequence[str], layout: Layout) -> list[array[int]]:
        """Return the token ids of each text, without [CLS] and [SEP], after a cut by characters.

        They are arrays, which the kernel reads fastest.
        """
        return [self._cut(clip_characters(text, layout)) for text in texts]

    def encode_whole(self, texts: Sequence[str]) -> list[array[int]]:
        """Return the token ids of each whole text; the caller bounds their length."""
        return [self._cut(text) for text in texts]

    def _cut(self, text: str) -> array[int]:
        """Return the token ids of one text, with the kernel where it can read the text."""
        if not self._cuts_words or any(token in text for token in self._added):
            return array("i", _ids(self._tokenizer, text))
        if self._kernel is not None and (text.isascii() or not _HALF.search(text)):
            return array("i", self._kernel.cut(self._held, text, self._words))
        words = map(self._words.__getitem__, _WORD.findall(text))
        return array("i", chain.from_iterable(words))


class _Words(dict[str, tuple[int, ...]]):
    """The ids of words, each cut when it is first looked up."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, word: str) -> tuple[int, ...]:
        # a word of the vocabulary is one piece; looking it up is cheaper than cutting
        known = self._tokenizer.token_to_id(word.lower()) if word.isascii() else None
        if known is not None and word.isalnum():
            found: tuple[int, ...] = (known,)
        else:
            found = tuple(_ids(self._tokenizer, word))
        if len(word) <= LONGEST_WORD:
            if len(self) >= MOST_WORDS:
                self.clear()
            self[word] = found
        return found


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    found: list[int] = tokenizer.encode(replace_surrogates(text), add_special_tokens=False).ids
    return found


def _is_usual(model: dict[str, Any]) -> bool:
    """Return whether a model of word pieces has BERT's marks and lengths."""
    prefix, most = model["continuing_subword_prefix"], model["max_input_chars_per_word"]
    return (prefix, most, model["unk_token"] in model["vocab"]) == ("##", 100, True)


def _cuts_words(told: dict[str, Any]) -> bool:
    """Return whether a tokenizer's JSON, `told`, is one of BERT's: lower case, word pieces."""
    kinds = [(told[part] or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model")]
    normalizer = told["normalizer"] or {}
    return (
        kinds == ["BertNormalizer", "BertPreTokenizer", "WordPiece"]
        and all(normalizer.get(each) for each in ("clean_text", "lowercase"))
        and told["truncation"] is None
        and told["padding"] is None
        and not any(token["normalized"] for token in told["added_tokens"])
    )
