"""Baselines that only compare a reply with the text before it.

Where the answer is in the context, a reply made of the context's words is often right. A
calibrator that does no better than these baselines does not read the context.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calibrator.errors import NotScorableError
from calibrator.metrics.metrics import Floats
from calibrator.scorer import Item
from calibrator.text.transcript import content_text

# This matches a word, or one character of a script that is written without spaces.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, in order, with repetitions.

    Each Chinese or Japanese character is a word.
    """
    return _WORD.findall(text.lower())


def text_before(item: Item) -> str:
    """Return the texts of all messages before a reply, joined by newlines.

    Where no message has text it is the item's question.
    """
    texts = [_text(message) for message in item.messages]
    return "\n".join(text for text in texts if text) or item.question


def _text(message: Any) -> str:
    """Return a message's text; "" for no mapping, no text, or content that cannot be read."""
    try:
        return content_text(message.get("content"), []) if isinstance(message, Mapping) else ""
    except (NotScorableError, ValueError):
        return ""


def word_shares(items: Sequence[Item]) -> Floats:
    """Return the share of each reply's words that occur in the text before it, (n,).

    The share is 0 for a reply without words.
    """
    found = []
    for item in items:
        words, before = words_of(item.answer), {*words_of(text_before(item))}
        found.append(sum(word in before for word in words) / len(words) if words else 0.0)
    return np.array(found)


def tfidf_cosines(items: Sequence[Item]) -> Floats:
    """Return the cosine of each reply and the text before it, (n,), from 0 to 1.

    The weight of a word is (1 + ln tf) * (1 + ln((1 + n) / (1 + df))), with the document
    frequencies of these replies and texts (Manning et al., Introduction to Information
    Retrieval, 6.4).
    """
    texts = [
        (Counter(words_of(text_before(each))), Counter(words_of(each.answer))) for each in items
    ]
    spread = Counter(word for pair in texts for counts in pair for word in counts)
    total = 1 + 2 * len(texts)

    def weigh_words(counts: Counter[str]) -> dict[str, float]:
        """Return the weight of each word of one text, given the word's count in it."""
        return {
            word: (1 + math.log(count)) * (1 + math.log(total / (1 + spread[word])))
            for word, count in counts.items()
        }

    return np.array([_cosine(weigh_words(before), weigh_words(reply)) for before, reply in texts])


def _cosine(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Return the cosine of two texts' weights by word, 0 where either has no words."""
    length = math.sqrt(sum(v * v for v in one.values()) * sum(v * v for v in other.values()))
    shared = sum(weight * one.get(word, 0.0) for word, weight in other.items())
    return shared / length if length else 0.0
