"""Word pieces of texts, cut word by word: what a word comes to is kept, for words recur.

BERT's cutter never looks past spaces and ASCII punctuation, so a text's pieces are those of its
words in a row. Finding words and looking them up takes a twentieth of the time that the tokenizer
needs; it is asked only for words that are new. Any other kind of tokenizer cuts whole texts.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Sequence
from itertools import chain
from typing import Any

from tokenizers import Tokenizer

from calibrator.kernel import compiled
from calibrator.text.layout import Layout, clip_characters, readable

MOST_WORDS = 50_000  # that are kept, some 10 MB; then it begins anew
LONGEST_WORD = 40  # characters of one that is kept; longer ones rarely recur

# spaces, and single signs of punctuation, end a word; all else, control characters and letters of
# any script, stays together and is the tokenizer's to cut
_HALF = re.compile("[\ud800-\udfff]")  # of a surrogate pair, which is no text in UTF-8
_WORD = re.compile(r"[^ \t\n\r!-/:-@\[-`{-~]+|[!-/:-@\[-`{-~]")


class WordPieces:
    """A tokenizer that remembers words; its ids are those of `layout.encode`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        told = json.loads(tokenizer.to_str())
        self._cuts_words = _cuts_words(told)
        self._added = [token["content"] for token in told["added_tokens"]]
        self._words = _Words(tokenizer)
        self._kernel = compiled() if self._cuts_words and _is_usual(told["model"]) else None
        if self._kernel is not None:
            unknown = told["model"]["vocab"][told["model"]["unk_token"]]
            self._held = self._kernel.vocabulary(told["model"]["vocab"], unknown)

    def encode(self, texts: Sequence[str], layout: Layout) -> list[array[int]]:
        """Token ids of each text, without [CLS] and [SEP]; the kernel reads arrays fastest."""
        return [self._of(clip_characters(text, layout)) for text in texts]

    def encode_whole(self, texts: Sequence[str]) -> list[array[int]]:
        """Return the ids of each text; the caller bounds their length."""
        return [self._of(text) for text in texts]

    def _of(self, text: str) -> array[int]:
        if not self._cuts_words or any(token in text for token in self._added):
            return array("i", _ids(self._tokenizer, text))
        if self._kernel is not None and (text.isascii() or not _HALF.search(text)):
            return array("i", self._kernel.cut(self._held, text, self._words))
        words = map(self._words.__getitem__, _WORD.findall(text))
        return array("i", chain.from_iterable(words))


class _Words(dict[str, tuple[int, ...]]):
    """The ids of words, each cut when it is first asked for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, word: str) -> tuple[int, ...]:
        # a whole word of the vocabulary is one piece; asking for it is cheaper than cutting
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
    found: list[int] = tokenizer.encode(readable(text), add_special_tokens=False).ids
    return found


def _is_usual(model: dict[str, Any]) -> bool:
    """Whether a model of word pieces has BERT's marks and lengths."""
    prefix, most = model["continuing_subword_prefix"], model["max_input_chars_per_word"]
    return (prefix, most, model["unk_token"] in model["vocab"]) == ("##", 100, True)


def _cuts_words(told: dict[str, Any]) -> bool:
    """Whether a tokenizer, as its JSON tells it, is one of BERT's: lower case, word pieces."""
    kinds = [(told[part] or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model")]
    normalizer = told["normalizer"] or {}
    return (
        kinds == ["BertNormalizer", "BertPreTokenizer", "WordPiece"]
        and all(normalizer.get(each) for each in ("clean_text", "lowercase"))
        and told["truncation"] is None
        and told["padding"] is None
        and not any(token["normalized"] for token in told["added_tokens"])
    )
