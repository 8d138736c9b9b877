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

MOST_WORDS = 50_000  # that are remembered, about 10 MB; then all are dropped
LONGEST_WORD = 40  # characters; longer words rarely recur and are not remembered
# Spaces and single punctuation marks end a word. Everything else, such as control characters and
# letters of any script, stays together and is cut by the tokenizer.
_HALF = re.compile("[\ud800-\udfff]")  # half a surrogate pair, which has no UTF-8
_WORD = re.compile(r"[^ \t\n\r!-/:-@\[-`{-~]+|[!-/:-@\[-`{-~]")


@dataclass(frozen=True, slots=True)
class Layout:
    """How much of a text is read, saved in `calibrator.json`."""

    max_tokens: int = 256

    def as_dict(self) -> dict[str, Any]:
        """Return the values by name, for `calibrator.json`."""
        return asdict(self)


def load_tokenizer(folder: Path) -> Tokenizer:
    """Load the tokenizer of a folder's `tokenizer.json`, with truncation and padding turned off.

    Raises an exception of `tokenizers` if the file is missing or unreadable.
    """
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def clip_characters(text: str, layout: Layout) -> str:
    """Return a very long text's beginning and end, to bound the tokenizer's work.

    A text of more than 24 characters for each of `layout.max_tokens` keeps 12 for each at either
    end, with a space between them; shorter texts are returned unchanged.
    """
    limit = layout.max_tokens * CHARACTERS_PER_TOKEN
    return f"{text[:limit]} {text[-limit:]}" if is_clipped(text, layout) else text


def is_clipped(text: str, layout: Layout) -> bool:
    """Return whether a text has more than 24 characters for each of `layout.max_tokens`.

    Such a text is cut by `clip_characters`.
    """
    return len(text) > 2 * layout.max_tokens * CHARACTERS_PER_TOKEN


def replace_surrogates(text: str) -> str:
    """Return the text with half surrogate pairs replaced by U+FFFD.

    JSON can carry them, and tokenizers refuse them.
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def encode(tokenizer: Tokenizer, texts: Sequence[str], layout: Layout) -> list[list[int]]:
    """Return the token ids of each text, without [CLS] and [SEP], with `tokenizer` itself.

    Very long texts are first cut by characters (`clip_characters`); ids are not cut to
    `max_tokens`.
    """
    clipped = [replace_surrogates(clip_characters(text, layout)) for text in texts]
    return [e.ids for e in tokenizer.encode_batch_fast(clipped, add_special_tokens=False)]


class WordPieces:
    """A tokenizer that remembers the ids of words; the ids are those of the function `encode`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Wrap a tokenizer; the kernel cuts the words if it is one of BERT's usual kind."""
        self._tokenizer = tokenizer
        config = json.loads(tokenizer.to_str())
        self._cuts_words = _cuts_words(config)
        self._added = [token["content"] for token in config["added_tokens"]]
        self._words = _Words(tokenizer)
        self._kernel = load_kernel() if self._cuts_words and _is_usual(config["model"]) else None
        if self._kernel is not None:
            unknown = config["model"]["vocab"][config["model"]["unk_token"]]
            self._held = self._kernel.vocabulary(config["model"]["vocab"], unknown)

    def encode(self, texts: Sequence[str], layout: Layout) -> list[array[int]]:
        """Return the token ids of each text, without [CLS] and [SEP].

        Very long texts are first cut by characters (`clip_characters`); ids are not cut to
        `layout.max_tokens`. They are arrays of 32-bit integers, which the kernel reads fastest.
        """
        return [self._cut(clip_characters(text, layout)) for text in texts]

    def encode_whole(self, texts: Sequence[str]) -> list[array[int]]:
        """Return the token ids of each text, without [CLS] and [SEP], however long it is."""
        return [self._cut(text) for text in texts]

    def _cut(self, text: str) -> array[int]:
        """Return the token ids of one whole text.

        The kernel cuts it into words where it can. The tokenizer itself cuts it if it is not BERT's
        kind, or if the text contains one of its added tokens such as `[SEP]`.
        """
        if not self._cuts_words or any(token in text for token in self._added):
            return array("i", _ids(self._tokenizer, text))
        if self._kernel is not None and (text.isascii() or not _HALF.search(text)):
            return array("i", self._kernel.cut(self._held, text, self._words))
        words = map(self._words.__getitem__, _WORD.findall(text))
        return array("i", chain.from_iterable(words))


class _Words(dict[str, tuple[int, ...]]):
    """The ids of words, each cut when it is first looked up; all are dropped at `MOST_WORDS`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, word: str) -> tuple[int, ...]:
        """Return the ids of a word that is not remembered, and remember it unless it is long."""
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
    """Return the ids of a text by the tokenizer itself, without [CLS] and [SEP]."""
    found: list[int] = tokenizer.encode(replace_surrogates(text), add_special_tokens=False).ids
    return found


def _is_usual(model: dict[str, Any]) -> bool:
    """Return whether the `model` of a tokenizer's JSON has BERT's usual settings.

    These are the prefix `##` inside words, words of at most 100 characters, and an unknown token
    that is in the vocabulary.
    """
    prefix, most = model["continuing_subword_prefix"], model["max_input_chars_per_word"]
    return (prefix, most, model["unk_token"] in model["vocab"]) == ("##", 100, True)


def _cuts_words(config: dict[str, Any]) -> bool:
    """Return whether a tokenizer, as parsed JSON, treats each word alone, as BERT's do.

    It must have BERT's normalizer (clean, lower case) and splitter, word pieces, no truncation and
    padding, and no added token that is searched for in normalized text.
    """
    kinds = [(config[part] or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model")]
    normalizer = config["normalizer"] or {}
    return (
        kinds == ["BertNormalizer", "BertPreTokenizer", "WordPiece"]
        and all(normalizer.get(each) for each in ("clean_text", "lowercase"))
        and config["truncation"] is None
        and config["padding"] is None
        and not any(token["normalized"] for token in config["added_tokens"])
    )
