"""Remove the question's own words from an answer that repeats them, before it is scored.

Repeating the question says nothing about the answer, yet makes a reply look more like a reply to
it. Removed are the question word for word, and sentences, lines and brackets that hold all of its
words and no others. Everything else stays, and so does a restatement that is the whole answer.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from calibrator.text.looking_for import reading_of

MAX_QUESTION = 600  # characters; a longer one is a task, whose text a reply may have to contain
MAX_ANSWER = 20_000
MIN_WORDS = 4  # of a question; shorter ones are not looked for
MIN_CONTENT = 3  # content words of a question; with fewer only the exact text is looked for
COVERED = 0.9  # the share of the question's content words that a restatement holds

_WORD = re.compile(r"\w+")
_BREAK = re.compile(r"((?<=[.!?])\s+|\n\s*|[ \t]+(?=\()|(?<=\))[ \t]+)")
_IS_CODE = re.compile(r"```|\bdef \w|[{;]\s*$", re.MULTILINE)
_SIGMA = "\u03a3"  # its small letter differs at the end of a word
_QUOTED = "\x00"  # replaces the whole question
_FUNCTION_WORDS = """
    a an the this that these those it its there here and or of in on at to for from by with as s
    about is are was were be been do does did has have had will would can could should
    who whom whose what which when where why how i you we he she they me my your our
    question questions answer answers reply ask asks asked asking query following regarding
    concerning below above given q
"""
_WITHOUT_CONTENT = frozenset(_FUNCTION_WORDS.split())


def without_question(question: str, answer: str) -> str:
    """Return an answer without the parts that only repeat the question.

    Removed are the question word for word, and sentences, lines and bracketed parts that hold
    (nearly) all of its content words and no others. The answer is returned unchanged if there are
    none, if nothing else would be left, and for a question that is code, has fewer than `MIN_WORDS`
    words or more than `MAX_QUESTION` characters, or for an answer of more than `MAX_ANSWER`.
    """
    asked = question.strip()
    if len(asked) > MAX_QUESTION or len(answer) > MAX_ANSWER:
        return answer
    wanted = _count_question(asked)
    if wanted is None or not _may_restate(asked, answer, wanted):
        return answer
    text = answer.replace(_QUOTED, " ").replace(asked, _QUOTED)
    parts = _BREAK.split(text)
    said, breaks = parts[::2], [*parts[1::2], ""]
    allowed = _WITHOUT_CONTENT.union(wanted)
    kept = [
        (part.replace(_QUOTED, ""), end)
        for part, end in zip(said, breaks, strict=True)
        if not (_has_only(part, allowed) and _is_restatement(part, wanted))
    ]
    left = "".join(part + end for part, end in kept).strip()
    is_changed = _QUOTED in text or len(kept) < len(said)
    return left if is_changed and _WORD.search(left) else answer


@lru_cache(maxsize=64)
def _count_question(asked: str) -> Counter[str] | None:
    """Return how often each content word, in lower case, is in a question.

    None for code and for fewer than `MIN_WORDS` words: restatements of these are not removed. The
    counts of the last 64 questions are cached; callers must not change them.
    """
    if len(_WORD.findall(asked)) < MIN_WORDS or _IS_CODE.search(asked):
        return None
    return _contents(asked)


def _may_restate(asked: str, answer: str, wanted: Counter[str]) -> bool:
    """Return False if the answer certainly does not repeat the question, without splitting it.

    `asked` is the question and `wanted` its content words. True where the answer contains the
    question, or at least the share `COVERED` of `MIN_CONTENT` or more content words.
    """
    if asked in answer or _SIGMA in answer or _QUOTED in answer:
        return True
    if len(wanted) < MIN_CONTENT:
        return False
    return len(wanted.keys() & reading_of(answer).words) >= COVERED * len(wanted)


def _has_only(part: str, allowed: frozenset[str]) -> bool:
    """Return whether all words of a part of an answer, in lower case, are in `allowed`."""
    return all(word[0].lower() in allowed for word in _WORD.finditer(part))


def _is_restatement(part: str, wanted: Counter[str]) -> bool:
    """Return whether a part of an answer repeats the question, whose content words are `wanted`.

    It must hold no other content word and none more often, and either the marker of the whole
    question or at least the share `COVERED` of `MIN_CONTENT` or more different content words.
    """
    own = _contents(part)
    if not own <= wanted:
        return False
    return _QUOTED in part or (len(wanted) >= MIN_CONTENT and len(own) >= COVERED * len(wanted))


def _contents(text: str) -> Counter[str]:
    """Return how often each word of a text, in lower case, is in it; no function words."""
    return Counter(w for w in _WORD.findall(text.lower()) if w not in _WITHOUT_CONTENT)
