"""Labels of replies by rule: whether a reply's answer is the right one (D01, D03).

Every reply gets a label. Refusals, empty replies and replies without a recognizable answer are
incorrect. The label has a reason, so that a person can look at each kind.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from calibrator.lab.data.grading.formulas import same_formula
from calibrator.text.options import final_letter

GraderName = Literal["exact", "choice", "claim", "number", "formula", "fuzzy", "rubric"]
Why = Literal["same", "other", "refusal", "empty", "no_answer"]

RULES: Final[tuple[GraderName, ...]] = ("exact", "choice", "claim", "number", "formula", "fuzzy")
LOOK: Final = 4_000  # characters at a reply's end that are searched for its answer
SHORT_WORDS: Final = 60  # words of a reply that may be an answer as a whole
SAME_WORDS: Final = 0.8  # F1 of the words at which two answers count as the same (fuzzy)

_BOXED = re.compile(r"\\boxed\s*\{")
_LINE = re.compile(
    r"(?im)^[\s>*_#-]*(?:final\s+)?answer[*_\s]*[:\uff1a][*_\s]*(\S[^\n]*)$|^\s*####\s*(\S[^\n]*)$"
)
_FIELD = re.compile(r"[\"'](?:final_)?answer[\"']\s*:\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^,}\n]+))")
_SENTENCE = re.compile(r"(?i)\banswer\s+(?:is|would be|equals)\s*:?\s*([^\n]{1,200})")
_LETTER = re.compile(  # A and I are also words that begin a sentence
    r"^\W*(?:option|choice|answer)?\W*([B-HJ-Z]|[AI](?! ?[a-z]))(?![\w'\u2019])"
)
_MARKED = re.compile(r"\u7b54\u6848[^A-Za-z]{0,8}([A-J])(?![A-Za-z])")  # "the answer", in Chinese
_WORD = re.compile(r"\w+(?:[.,/]\d+)*")
_NUMBER = re.compile(r"[-\u2212]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?")
_CLAIMS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
_CLAIM = re.compile(r"\b(yes|no|true|false)\b", re.IGNORECASE)
_REFUSAL = re.compile(
    r"^\W*(?:(?:i'm|i am|we're) (?:very |so |really )?sorry|sorry,|as an ai\b|unfortunately,? i"
    r"|i (?:can(?:no|')t|am unable to|am not able to|do not know|don't know|won't|will not"
    r"|must decline))",
    re.IGNORECASE,
)
_ARTICLES = frozenset({"a", "an", "the"})


@dataclass(frozen=True, slots=True)
class Grade:
    """A label with its reason; `answer` is the answer that was found in the reply."""

    is_correct: bool
    why: Why
    answer: str = ""


def grade(grader: GraderName, reply: str, gold: Sequence[str]) -> Grade:
    """Return the label of a reply by a rule such as `number`, with its reason and the answer found.

    `gold` has all right answers; one that is the same suffices. Empty replies, refusals and
    replies without an answer are incorrect. Raises ValueError for `rubric`, and if `gold` is
    empty.
    """
    if grader not in RULES:
        raise ValueError(f"{grader!r} is no rule; rules are {', '.join(RULES)}")
    if not gold:
        raise ValueError("there is no right answer to grade by")
    if not reply.strip():
        return Grade(False, "empty")
    stated = stated_answer(reply)
    if stated is None and is_refusal(reply):
        return Grade(False, "refusal")
    answer = _ANSWERS[grader](reply, stated)
    if answer is None:
        return Grade(False, "no_answer")
    is_same = any(_SAME[grader](answer, each) for each in gold)
    return Grade(is_same, "same" if is_same else "other", answer[:200])


def is_refusal(reply: str) -> bool:
    """Return whether a reply of up to `SHORT_WORDS` words begins as refusals do (`I cannot ..`)."""
    return bool(_REFUSAL.match(reply)) and len(reply.split()) <= SHORT_WORDS


def stated_answer(reply: str) -> str | None:
    """Return the answer that the reply's end states, or None if it states none.

    The first of these forms that occurs counts, its last occurrence: a LaTeX box, a line
    `Answer: ..` or `#### ..`, a JSON field `answer`, a sentence `the answer is ..`.
    """
    end = reply[-LOOK:]
    boxes = list(_BOXED.finditer(end))
    if boxes:
        return _text_in_braces(end, boxes[-1].end())
    for pattern in (_LINE, _FIELD, _SENTENCE):
        found = list(pattern.finditer(end))
        if found:
            stated = next(group for group in found[-1].groups() if group is not None)
            return stated.strip().strip("*_`").strip() or None
    return None


def _text_in_braces(text: str, start: int) -> str:
    """Return the text from `start` to the brace that closes it, or to the end without one."""
    depth = 1
    for at in range(start, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return text[start:at].strip()
    return text[start:].strip()


# The functions below find the answer in a reply, one for each grader.


def _last_line(reply: str) -> str:
    return reply.strip().rsplit("\n", 1)[-1].strip()


def _any_text(reply: str, stated: str | None) -> str | None:
    """Return the stated answer, else a short reply of one line, else the reply's last line."""
    if stated is not None:
        return stated
    is_short = len(reply.split()) <= SHORT_WORDS and "\n" not in reply.strip()
    return reply.strip() if is_short else _last_line(reply)


def _letter(reply: str, stated: str | None) -> str | None:
    """Return the letter of the option that a reply chooses, such as `B`, or None.

    It is read from the stated answer, else from a short reply's start, else from the reply's
    end.
    """
    for text in (stated, reply.strip() if len(reply.strip()) <= 200 else None):
        found = _LETTER.match(_strip_text_commands(text)) if text else None
        if found:
            return found[1]
    last = final_letter(reply[-LOOK:])
    if last is not None:
        return last[1].upper()
    marked = _MARKED.findall(reply[-LOOK:])
    return marked[-1] if marked else None


def _strip_text_commands(text: str) -> str:
    return re.sub(r"\\(?:text|mathrm|textbf)\s*\{([^{}]*)\}", r"\1", text)


def _claim(reply: str, stated: str | None) -> str | None:
    """Return `yes`, `no`, `true` or `false`, or None if the reply says none of them.

    It is the first one in the stated answer, else in the first 20 characters, else in the last
    line.
    """
    for text in (stated, reply.strip()[:20], _last_line(reply)):
        found = _CLAIM.findall(text or "")
        if found:
            return str(found[0]).lower()
    return None


def _number(reply: str, stated: str | None) -> str | None:
    """Return the stated answer, else the last number of the reply as text, or None."""
    if stated is not None:
        return stated
    found = _NUMBER.findall(reply[-LOOK:])
    return found[-1] if found else None


# The functions below compare two answers, one for each grader.


def normalize_words(text: str) -> str:
    """Return the words without case, accents, articles and punctuation, as SQuAD compares them."""
    flat = unicodedata.normalize("NFKD", text.lower())
    flat = "".join(each for each in flat if not unicodedata.combining(each))
    return " ".join(word for word in _WORD.findall(flat) if word not in _ARTICLES)


def _is_exact(answer: str, gold: str) -> bool:
    """Return whether both have the same normalized words; if `gold` has none, the same text."""
    return (
        normalize_words(answer) == normalize_words(gold)
        if normalize_words(gold)
        else answer.strip() == gold.strip()
    )


def _is_letter(answer: str, gold: str) -> bool:
    """Return whether `gold` begins with the answer's letter, as `B`, `(B)` or `option B` do."""
    found = _LETTER.match(_strip_text_commands(gold).upper())
    return found is not None and found[1] == answer


def _is_claim(answer: str, gold: str) -> bool:
    """Return whether both mean the same: yes, true and 1, or no, false and 0."""
    value, right = _CLAIMS.get(answer), _CLAIMS.get(normalize_words(gold))
    return right is not None and value == right


def _is_number(answer: str, gold: str) -> bool:
    """Return whether both have the same value, also rounded to three figures or more.

    The number of a sentence is its last one; a bare answer with several numbers is False.
    """
    if same_formula(answer, gold):
        return True
    found = _NUMBER.findall(answer)
    is_bare = re.search(r"[A-Za-z]{3}", _strip_text_commands(answer).replace("\\", " ")) is None
    if not found or (is_bare and len(found) > 1):
        return False
    return same_formula(found[-1], gold) or _is_rounded(found[-1], gold)


def _is_rounded(one: str, other: str) -> bool:
    """Return whether one decimal is the other, rounded to three figures or more."""
    short, long = sorted((one.replace(",", ""), other.replace(",", "")), key=_decimals)
    figures = len(short.lstrip("-\u22120.").replace(".", ""))
    try:
        return figures >= 3 and round(float(long), _decimals(short)) == float(short)
    except ValueError:
        return False


def _decimals(number: str) -> int:
    return len(number.partition(".")[2])


def _is_formula(answer: str, gold: str) -> bool:
    """Return whether the answer, or the last formula between dollar signs in it, equals `gold`."""
    if same_formula(answer, gold):
        return True
    inner = re.findall(r"\$([^$]+)\$", answer)
    return bool(inner) and same_formula(inner[-1], gold)


def _is_fuzzy(answer: str, gold: str) -> bool:
    """Return whether the answer has `gold` as a phrase or nearly the same words (F1 of 0.8).

    All numbers of `gold` have to be in the answer. If `gold` has no words the texts must be
    equal.
    """
    words, gold_words = normalize_words(answer).split(), normalize_words(gold).split()
    if not gold_words:
        return answer.strip() == gold.strip()
    if {word for word in gold_words if word[0].isdigit()} - set(words):
        return False
    if f" {' '.join(gold_words)} " in f" {' '.join(words)} ":
        return True
    both = sum((Counter(words) & Counter(gold_words)).values())
    return 2 * both / (len(words) + len(gold_words)) >= SAME_WORDS


_ANSWERS: Final[dict[str, Callable[[str, str | None], str | None]]] = {
    "exact": _any_text,
    "choice": _letter,
    "claim": _claim,
    "number": _number,
    "formula": _any_text,
    "fuzzy": _any_text,
}
_SAME: Final[dict[str, Callable[[str, str], bool]]] = {
    "exact": _is_exact,
    "choice": _is_letter,
    "claim": _is_claim,
    "number": _is_number,
    "formula": _is_formula,
    "fuzzy": _is_fuzzy,
}
