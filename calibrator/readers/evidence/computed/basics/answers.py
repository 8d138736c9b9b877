"""The answer that a reply states: a number, a choice between words, yes or no."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from calibrator.readers.evidence.computed.basics.numbers import Number, number_text, numbers_in
from calibrator.readers.evidence.computed.basics.verdict import MAX_TEXT, Verdict
from calibrator.text.guarded import compile_guarded

SHORT: Final = 60  # characters; a reply of this length is an answer and nothing else
_MARK: Final = re.compile(
    r"(?:\\boxed\{\s*|(?:\*\*|`)\s*[$€£]?\s*"
    r"|\b(?:the )?(?:final |correct )?(?:answer|result|total|sum|product|solution|antwort|ergebnis"
    r"|respuesta|resultado|r[ée]ponse|r[ée]sultat)(?: is| would be| comes to| ist| es|"
    r" est)?\s*[:=]?\s*"
    r"(?:approximately |about |roughly |around |exactly )?[*$€£`]*\s*"
    r"|[=≈]\s*[*$€£`]*\s*|\b(?:equals|makes|gives|therefore|thus|hence)\b[^0-9\n.]{0,30})$",
    re.IGNORECASE,
)
_STRONG: Final = re.compile(
    r"\\boxed\{|\b(?:answer|result|antwort|ergebnis|respuesta|resultado|r[ée]ponse|r[ée]sultat)\b",
    re.IGNORECASE,
)
_HEDGE: Final = re.compile(
    r"(?:\b(?:about|approximately|approx|roughly|around|nearly|almost|rounded|ca|circa|etwa|rund"
    r"|ungefähr|unos|unas|aproximadamente|environ|presque|rounds?|just (?:over|under)"
    r"|(?:a )?little (?:over|under|more|less)(?: than)?)\b|[≈~])",
    re.IGNORECASE,
)
_MISTAKES: Final = re.compile(
    r"\b(?:not|isn't|wasn't|rather than|instead of|mistake|common(?:ly)?|you might|one might"
    r"|no wait|correction)\b",
    re.IGNORECASE,
)
ROUNDED: Final = Fraction(
    1, 100
)  # largest distance of a rough figure that may be the rounded result


_COMMA_WORDS: Final = compile_guarded(
    r"\b(?:was|ist|sind|wie|viel|wieviel|berechne|und|mal|der|die|das|cu[aá]nto|cu[aá]l|es|el|los"
    r"|las|por|combien|quel(?:le)?|est|font|fait|les|des|calcule|prozent|von|quanto|rechne"
    r"|welche[rs]?)\b",
    re.IGNORECASE,
)
_POINT_WORDS: Final = compile_guarded(
    r"\b(?:what|how|is|the|of|calculate|compute)\b", re.IGNORECASE
)


def is_comma_language(text: str) -> bool:
    """Return whether decimals in `text` are probably written with a comma, as in German.

    True if it has a German, Spanish or French word such as `wie` and no English one such as `what`.
    """
    return bool(_COMMA_WORDS.search(text)) and not _POINT_WORDS.search(text)


def states_number(
    reply: str,
    wanted: Fraction,
    known: Iterable[Fraction] = (),
    *,
    is_rough: bool = False,
    is_rounded: bool = False,
    is_comma_decimal: bool = False,
) -> bool | None:
    """Return whether a reply states `wanted` as its answer, such as `The answer is 12.`.

    None if that is not clear: no number but repeated ones in a long reply, a possible rounding, or
    other numbers beside it. `known` are the numbers of the question, which a reply may repeat.
    `is_rough` allows any usual rounding, such as 8 for 8.05; `is_rounded` allows none, because
    `wanted` is rounded already. With `is_comma_decimal`, `1,500` is read as 1.5 first.
    """
    text = reply[:MAX_TEXT]
    found = numbers_in(text, is_comma_decimal)
    repeated = set(known) - {wanted}
    if not found:
        return None
    fresh = [number for number in found if number.value not in repeated]
    if not fresh:
        return False if len(text.strip()) <= SHORT and len(found) == 1 else None
    final = final_number(text, fresh)
    if is_rounded:
        verdicts: list[bool | None] = [number.is_close(wanted) for number in fresh]
    else:
        verdicts = [_judge(number, wanted, text, is_rough) for number in fresh]
    at_final = verdicts[fresh.index(final)]
    if True not in verdicts:
        if None in verdicts:
            return None
        return False if at_final is False else None
    if at_final is True:
        return True
    if _is_first_answer(text, fresh[0]) and verdicts[0] is True and not _is_marked(text, final):
        return True
    return False if at_final is False and _is_strongly_marked(text, final) else None


def _judge(number: Number, wanted: Fraction, text: str, is_rough: bool) -> bool | None:
    """Return whether one number of the reply is `wanted`.

    None if it may be a rounding or a cut of it. `text` is the reply. A word such as `about` before
    the number, or `is_rough`, allows 1 % of distance if `wanted` is no whole number (`is_rough`:
    always).
    """
    if number.is_close(wanted):
        is_cut = 10**4 % wanted.denominator == 0 and wanted not in number.values
        return None if is_cut and not is_rough else True  # 0.38 for 0.375
    before = text[max(0, number.start - 25) : number.start]
    is_hedged = is_rough or bool(_HEDGE.search(before))
    if is_hedged and wanted.denominator != 1 and number.is_within(wanted, ROUNDED):
        return True
    if is_rough and number.is_within(wanted, ROUNDED):
        return True
    is_short = not is_hedged and 100 % wanted.denominator == 0  # 12.5 is not written as 12
    if (wanted.denominator != 1 and not is_short) or is_hedged:
        unit = Fraction(1, 10**number.decimals)
        if any(abs(value - wanted) <= unit for value in number.values):
            return True if is_hedged else None
        if number.is_within(wanted, Fraction(2, 100)):
            return None
    return False


def final_number(text: str, numbers: Sequence[Number]) -> Number:
    r"""Return the number that a reply gives as its result; `numbers`, in order, must not be empty.

    It is the last one after a word such as `answer` or in `\boxed{`, else the last in bold or after
    `=`, else the last of all.
    """
    for number in reversed(numbers):
        if _is_strongly_marked(text, number):
            return number
    for number in reversed(numbers):
        if _is_marked(text, number) and not _has_continuation(text, number):
            return number
    return numbers[-1]


def _is_marked(text: str, number: Number) -> bool:
    """Return whether a mark of a result precedes a number directly.

    An example is `**`, `=` or `total is`.
    """
    before = text[max(0, number.start - 60) : number.start]
    return _MARK.search(before) is not None


def _is_strongly_marked(text: str, number: Number) -> bool:
    r"""Return whether the sentence before a number has `answer`, `result` or `\boxed{`.

    False if that sentence also speaks of mistakes, as in `the answer is not 7`.
    """
    before = text[max(0, number.start - 60) : number.start]
    sentence = re.split(r"[.!?]\s|\n", before)[-1]
    return bool(_STRONG.search(sentence)) and not _MISTAKES.search(sentence)


def _has_continuation(text: str, number: Number) -> bool:
    """Return whether a calculation goes on after this number, as after 12 in `= 12 + 24`."""
    return bool(re.match(r"[\s*`$]*[+*/×·÷^−-]\s*[\d(]", text[number.end : number.end + 12]))


def _is_first_answer(text: str, number: Number) -> bool:
    """Return whether a number is in the first sentence of a reply."""
    first = re.split(r"(?<=[.!?])\s+|\n", text.strip(), maxsplit=1)[0]
    return number.end <= len(text) - len(text.lstrip()) + len(first)


_YES: Final = re.compile(
    r"^\W*(?:yes|yep|yeah|correct|true|right|indeed|that(?:'s| is) (?:right|correct|true)|ja"
    r"|richtig"
    r"|stimmt|sí|si|correcto|cierto|oui|vrai|exact)\b",
    re.IGNORECASE,
)
_NO: Final = re.compile(
    r"^\W*(?:no|nope|false|incorrect|wrong|not (?:quite|correct|true)|that(?:'s| is) (?:wrong|false"
    r"|incorrect|not)|nein|falsch|falso|incorrecto|non|faux)\b",
    re.IGNORECASE,
)


def says_yes(reply: str) -> bool | None:
    """Return True if a reply begins with yes, False if it begins with no, in four languages.

    Else None. `That's right` counts as yes and `not quite` as no.
    """
    if _YES.match(reply[:200]):
        return True
    if _NO.match(reply[:200]):
        return False
    return None


def states_word(reply: str, wanted: Collection[str], others: Iterable[str]) -> bool | None:
    """Return whether a reply has one of the right words and none of the wrong ones.

    `wanted` are spellings of the right word, `others` the wrong words; only whole words count.
    False if it has wrong ones alone; None if it has neither, or both.
    """
    text = reply[:MAX_TEXT].casefold()
    right = _last_place(text, wanted)
    wrong = _last_place(text, others)
    if right < 0 and wrong < 0:
        return None
    if wrong < 0:
        return True
    if right < 0:
        return False
    return None


def _states_first(reply: str, wanted: Collection[str], others: Iterable[str]) -> bool | None:
    """Return whether the reply begins with a right word and `is`, as in `9.9 is larger than 9.11`.

    False if it begins so with a word of `others`; None if it begins with neither.
    """
    text = reply[:MAX_TEXT].casefold().replace("*", "")
    for word, is_right in (*((word, True) for word in wanted), *((word, False) for word in others)):
        if re.match(
            rf"^\W*(?:the )?(?:number )?{re.escape(word.casefold())}"
            r"(?![\w.]*\d) is\b",
            text,
        ):
            return is_right
    return None


def _last_place(text: str, words: Iterable[str]) -> int:
    """Return the last position in `text` (lower case) of one of `words` as a whole word.

    -1 without one.
    """
    place = -1
    for word in words:
        for found in re.finditer(rf"(?<!\w){re.escape(word.casefold())}(?!\w)", text):
            place = max(place, found.start())
    return place


@dataclass(frozen=True, slots=True)
class RightAnswer:
    """The right answer to a question: a number, yes or no, a word, or a series of numbers.

    `known` are the numbers of the question. `words` are spellings of the right word, and `others`
    are wrong words. `is_rough` accepts any usual rounding of the number.
    """

    reason: str
    task: str
    number: Fraction | None = None
    known: tuple[Fraction, ...] = ()
    is_yes: bool | None = None
    words: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    series: tuple[Fraction, ...] = ()
    is_rough: bool = False
    is_rounded: bool = False
    is_only: bool = False  # a short reply without the word is wrong
    exact_pi: Fraction | None = None  # the number as a multiple of π, which is accepted too
    is_first: bool = False  # the first of several words is the answer: 9.9 is larger than 9.11

    def verdict(self, reply: str, is_comma_decimal: bool = False) -> Verdict | None:
        """Compare a reply with this answer and return the verdict.

        None if the reply's answer is not clear. With `is_comma_decimal`, `1,500` in the reply is
        read as 1.5 first.
        """
        is_right = self._is_stated(reply, is_comma_decimal)
        return None if is_right is None else Verdict(is_right, self.reason, self.task)

    def _is_stated(self, reply: str, is_comma_decimal: bool) -> bool | None:
        """Return whether a reply states this answer; None if that is not clear.

        The first of `is_yes`, `words`, `series` and `number` that is set decides.
        """
        if self.is_yes is not None:
            is_stated = says_yes(reply)
            return None if is_stated is None else is_stated == self.is_yes
        if self.words:
            is_stated = states_word(reply, self.words, self.others)
            if is_stated is None and self.is_only and len(reply) <= SHORT:
                return _last_place(reply.casefold(), self.words) >= 0
            if is_stated is None and self.is_first:
                return _states_first(reply, self.words, self.others)
            return is_stated
        if self.series:
            return states_series(reply, self.series, self.known)
        if self.number is None:
            return None
        if self.exact_pi is not None and re.search(r"\d\s?\*?\s?(?:π|\\?pi\b)", reply[:MAX_TEXT]):
            pi_factors = re.findall(r"(\d[\d.,]*)\s?\*?\s?(?:π|\\?pi\b)", reply[:MAX_TEXT])
            return True if number_text(self.exact_pi) in pi_factors else None
        return states_number(
            reply,
            self.number,
            self.known,
            is_rough=self.is_rough,
            is_rounded=self.is_rounded,
            is_comma_decimal=is_comma_decimal,
        )


def states_series(
    reply: str, series: Sequence[Fraction], known: Iterable[Fraction] = ()
) -> bool | None:
    """Return whether a reply lists exactly these numbers in this order, such as `1, 4, 9`.

    Numbers of a list's items and those in `known` (of the question) are ignored. None if the reply
    has less than two numbers, very many others, or the whole series among other numbers.
    """
    text = re.sub(r"^\s*\d{1,3}[.)]\s+(?=\S)", "", reply[:MAX_TEXT], flags=re.MULTILINE)
    text = re.sub(r",(?=\S)", ", ", text)
    found = [number.value for number in numbers_in(text)]
    wanted = list(series)
    repeated = set(known) - set(wanted)
    fresh = [value for value in found if value not in repeated]
    if fresh == wanted or found == wanted:
        return True
    for at in range(len(found) - len(wanted) + 1):
        if found[at : at + len(wanted)] == wanted:
            around = {*found[:at], *found[at + len(wanted) :]}
            return True if around <= repeated else None if len(fresh) != len(found) else False
    if len(found) < 2 or len(fresh) > 3 * len(wanted) + 5:
        return None
    return False
