"""Questions that convert a quantity to another unit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Final

from calibrator.readers.evidence.computed.basics.answers import RightAnswer, is_comma_language
from calibrator.readers.evidence.computed.basics.numbers import (
    Number,
    digits_for_words,
    number_text,
    numbers_in,
)
from calibrator.readers.evidence.computed.basics.verdict import MAX_TEXT, Exchange, Verdict
from calibrator.readers.evidence.computed.sums.unit_table import MeasureUnit, units
from calibrator.text.guarded import compile_guarded

MAX_QUESTION: Final = 250  # characters
_QUICK: Final = compile_guarded(
    r"\b(?:than|which|convert|conversion|how (?:many|much|long|tall|far|heavy|fast|hot|cold|big)"
    r"|what(?:'s|"
    r" is| are)|in|to|into|wie ?viele?|cu[aá]nt[oa]s?"
    r"|combien|express|rechne|umrechnen|konvertiere|convierte|convertis|convertir|was (?:ist|sind)"
    r"|equals?|=)\b|=",
    re.IGNORECASE,
)

SIGNIFICANT: Final = Fraction(6, 1000)  # a rough figure may differ by this share
OFF: Final = Fraction(2, 100)  # a figure that differs by more than this share is wrong


@dataclass(frozen=True, slots=True)
class Conversion:
    """A quantity (`value` in `unit`) that a question wants in the unit `target`."""

    value: Fraction
    unit: MeasureUnit
    target: MeasureUnit

    @property
    def result(self) -> Fraction:
        """The quantity in the wanted unit."""
        return self.target.from_base(self.unit.to_base(self.value))


@cache
def _unit_pattern() -> str:
    """Return a regular expression, without group, of the name of any unit."""
    names = sorted(units(), key=len, reverse=True)
    return (
        "(?:"
        + "|".join(re.escape(name).replace("\\ ", r"\s") for name in names)
        + r")(?![\w°²³^/])"
    )


@cache
def _forms() -> tuple[re.Pattern[str], ...]:
    """Return the patterns of questions such as `How many km are in 5 miles?`; compiled once."""
    unit, number = (
        _unit_pattern(),
        (
            r"(?P<n>(?:an?|-?\d[\d.,]*(?:\s?/\s?\d+|\s\d/\d)?|½|¼|¾)(?:\s"
            r"(?:million|thousand|billion))?)"
        ),
    )
    quantity = rf"{number}\s?-?(?P<u>{unit})"
    more = rf"(?:\s?(?:,|and|\s)?\s*(?P<n2>\d[\d.,]*)\s?(?P<u2>{unit}))?"
    ask = (
        r"(?:what(?:'s| is| are| would be)?|how (?:much|long|tall|far"
        r"|fast|heavy|hot|cold|big) is|express|give|write|was (?:ist|sind)|wie ?viel (?:ist|sind))"
    )
    convert = (
        r"(?:convert|change|turn|transform|konvertiere|rechne|wandle"
        r"|convierte|convertis(?:sez)?|convertir|express)"
    )
    patterns = (
        # how many T are (there) in N U
        rf"(?:how (?:many|much)|wie ?viele?|cu[aá]nt[oa]s|combien (?:de |d'))\s*(?P<t>{unit})\s*"
        r"(?:(?:of \w+ )?(?:are|is|do|does|make|makes|equals?|sind|ist|hay|son|hat|haben|tiene"
        r"|fait|font|y a-t-il|il y a|in|en)\s*)*(?:there )?(?:in |you get from |en |dans "
        rf"|contained in |make up )?{quantity}{more}(?: (?:have|contain|equal|equals))?",
        # how many T does N U have
        rf"(?:how many|wie ?viele?|cu[aá]nt[oa]s|combien (?:de |d'))\s*(?P<t>{unit})\s*(?:does|do"
        rf"|hat|tiene|a)\s+{quantity}{more}\s*(?:have|contain|equal|correspond to)?",
        # convert N U to T; what is N U in T; N U in T
        rf"(?:(?:{ask}|{convert})\s*:?\s+)?(?:the (?:speed|temperature|distance|weight|length) "
        rf"(?:of )?)?{quantity}{more}\s*(?:is how many|equals how many|are how many|to|into|in|as"
        rf"|expressed in|=|en|nach|zu|auf|à|a)\s*(?:\?\s*)?(?P<t>{unit})(?:\s(?:um|umrechnen))?",
    )
    return tuple(
        re.compile(rf"^[¿¡\s]*{pattern}\s*[?.!=]*$", re.IGNORECASE) for pattern in patterns
    )


_PRECISION: Final = compile_guarded(
    r"[\s,;.!?–-]+(?:\(?(?:round(?:ed)?|to|give|answer|reply|respond|just|only|use"
    r"|approximately|please)\b[^?]{0,80}(?:decimals?|decimal places?|number|digits?|whole"
    r" number|integer|tenth|hundredth|figures?|place)\b[^?]{0,30}\)?)[.?!]*$",
    re.IGNORECASE,
)
_ABOUT: Final = compile_guarded(
    r"\b(?:roughly|approximately|about|exactly|etwa|ungefähr|aproximadamente|environ)\s",
    re.IGNORECASE,
)
_DIGIT: Final = re.compile(r"\d")
_HOW_MANY_IN: Final = compile_guarded(
    r"^(how many [\w ]+ (?:are |is )?(?:there )?(?:in|make|does|equal)) (an?|one)\b", re.IGNORECASE
)
_HALF: Final = compile_guarded(r"\b(?:half an?|1/2 an?)\b", re.IGNORECASE)
_ONE: Final = compile_guarded(r"\b(?:an?|one|eine?[mnr]?|une?|una) (?=\w)", re.IGNORECASE)


def read_conversion(question: str, is_comma_decimal: bool = False) -> Conversion | None:
    """Read a question such as `How many metres are in 5 miles?`; None for another question."""
    text = _ABOUT.sub("", _PRECISION.sub("", question).strip())
    if not _DIGIT.search(text):
        text = _HOW_MANY_IN.sub(r"\1 1", text)
    text = digits_for_words(_ONE.sub("1 ", _HALF.sub("0.5", text)))
    for form in _forms():
        found = form.match(text)
        if found:
            conversion = _conversion(found, is_comma_decimal)
            if conversion is not None:
                return conversion
    return None


def _unit(name: str) -> MeasureUnit | None:
    """Return the unit of this name in any case; None for an unknown one."""
    return units().get(" ".join(name.casefold().split()))


def _conversion(found: re.Match[str], is_comma: bool) -> Conversion | None:
    """Return the conversion of a match of `_forms`; None for unknown or equal units.

    None also for units of different dimensions.
    """
    unit, target = _unit(found["u"]), _unit(found["t"])
    if unit is None or target is None or unit.dimension != target.dimension or unit == target:
        return None
    number = found["n"].casefold()
    numbers = numbers_in(number, is_comma)
    if number in ("a", "an"):
        value = Fraction(1)
    elif len(numbers) == 1:
        value = numbers[0].value
    else:
        return None
    if found["n2"]:
        unit2 = _unit(found["u2"])
        more = numbers_in(found["n2"], is_comma)
        if unit2 is None or unit2.dimension != unit.dimension or unit.zero or len(more) != 1:
            return None
        value += more[0].value * unit2.size / unit.size
    return Conversion(value, unit, target)


def verify_units(exchange: Exchange) -> Verdict | None:
    """Judge a reply to a question for a conversion or comparison of quantities.

    None for others.
    """
    question = exchange.question
    if not question or len(question) > MAX_QUESTION or not _QUICK.search(question):
        return None
    is_comma = is_comma_language(question)
    conversion = read_conversion(question, is_comma) or read_statement(question, is_comma)
    if conversion is not None:
        return judge_conversion(conversion, exchange.reply, is_comma)
    answer = compare_quantities(question, is_comma)
    return None if answer is None else answer.verdict(exchange.reply, is_comma)


@cache
def _statement() -> re.Pattern[str]:
    """Return the pattern of a statement with a question such as `How many km is that?`.

    Compiled once.
    """
    unit = _unit_pattern()
    return re.compile(
        rf"^(?P<before>[^.?!]{{3,120}}?\d[^?!]{{0,60}}?)(?:[.;,!]|\s[–—-])\s+(?:so )?(?:how "
        r"(?:many|much)|what(?:'s| is)(?: that| it| this)?(?: in)?|in)\s+"
        rf"(?P<t>{unit})(?:\s(?:is|are|does|do|would)\s(?:that|it|this|i|he|she|they)(?: weigh| be"
        r"| have| run)?)?\s*\?*$",
        re.IGNORECASE,
    )


def read_statement(question: str, is_comma_decimal: bool = False) -> Conversion | None:
    """Read `I ran 5 miles. How many km is that?`; None for another text."""
    found = _statement().match(question)
    if found is None:
        return None
    quantities = [each for each in _quantities(found["before"], is_comma_decimal) if each[1]]
    target = _unit(found["t"])
    if len(quantities) != 1 or target is None or len(numbers_in(found["before"])) > 2:
        return None
    number, unit = quantities[0]
    if unit is None or unit.dimension != target.dimension or unit == target:
        return None
    return Conversion(number.value, unit, target)


@cache
def _comparison() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of `Which is longer, a or b?` and `Is a longer than b?`.

    Compiled once.
    """
    quantity = rf"\d[\d.,]*\s?{_unit_pattern()}"
    more = (
        r"(?P<k>longer|more|heavier|larger|bigger|greater|farther"
        r"|further|faster|warmer|hotter|higher|shorter|less|lighter|smaller|slower|colder|cooler"
        r"|lower)"
    )
    return (
        re.compile(
            r"^(?:which|what) (?:one |distance |weight |temperature |amount |speed )?is (?:the"
            rf" )?{more}(?: one)?\s*[:,-]?\s*(?P<a>{quantity})\s*(?:,\s*)?(?:or|and)\s+"
            rf"(?P<b>{quantity})\s*\?*$",
            re.IGNORECASE,
        ),
        re.compile(
            rf"^(?:is|are) (?P<a>{quantity}) {more} than "
            rf"(?P<b>{quantity})\s*\?+$",
            re.IGNORECASE,
        ),
    )


_LESS: Final = ("shorter", "less", "lighter", "smaller", "slower", "colder", "cooler", "lower")


def compare_quantities(question: str, is_comma_decimal: bool = False) -> RightAnswer | None:
    """Answer `Which is longer, 3 miles or 5 km?` or `Is 3 miles longer than 5 km?`; else None."""
    if " than " not in question and not re.match(r"^(?:which|what)\b", question, re.IGNORECASE):
        return None
    choice, statement = _comparison()
    found = choice.match(question) or statement.match(question)
    if found is None:
        return None
    quantities = [_quantities(found[key], is_comma_decimal) for key in ("a", "b")]
    if any(len(each) != 1 for each in quantities):
        return None
    (first, unit), (second, other) = (each[0] for each in quantities)
    if unit is None or other is None or unit.dimension != other.dimension:
        return None
    sizes = unit.to_base(first.value), other.to_base(second.value)
    if sizes[0] == sizes[1]:
        return None
    is_first = (sizes[0] < sizes[1]) == (found["k"].casefold() in _LESS)
    if found.re is statement:
        reason = f"{found['a']} is {'' if is_first else 'not '}{found['k']} than {found['b']}"
        return RightAnswer(reason, "units", is_yes=is_first)
    right, wrong = (found["a"], found["b"]) if is_first else (found["b"], found["a"])
    reason = f"{right} is {found['k']} than {wrong}"
    return RightAnswer(reason, "units", words=(right,), others=(wrong,), is_first=True)


def judge_conversion(
    conversion: Conversion, reply: str, is_comma_decimal: bool = False
) -> Verdict | None:
    """Judge whether a reply states a conversion's result, in any unit that it names.

    None if it states no quantity, or right and wrong ones.
    """
    quantities = _quantities(reply[:MAX_TEXT], is_comma_decimal)
    wanted = conversion.result
    reason = (
        f"{number_text(conversion.value)} {conversion.unit.name} are"
        f" {number_text(wanted)} {conversion.target.name}"
    )
    judged: list[bool | None] = []
    for number, unit in quantities:
        if unit is not None and unit.dimension != conversion.target.dimension:
            continue
        is_repeated = number.value == conversion.value != wanted
        if is_repeated and unit in (None, conversion.unit):
            continue  # the quantity of the question
        judged.append(_states(number, unit or conversion.target, conversion))
    if not judged:
        return None
    if True in judged and (judged[-1] is True or judged[0] is True):
        return Verdict(True, reason, "units")
    if all(each is False for each in judged) and len(judged) <= 4:
        return Verdict(False, reason, "units")
    return None


def _states(number: Number, unit: MeasureUnit, conversion: Conversion) -> bool | None:
    """Return whether a quantity is the result, to its own precision; None if it is only close."""
    base = conversion.unit.to_base(conversion.value)
    wanted = unit.from_base(base)
    if number.is_close(wanted):
        return True
    step = Fraction(1, 10**number.decimals)
    is_scale = unit.dimension == "temperature"
    near = [abs(value - wanted) for value in number.values]
    if wanted.denominator != 1 or unit != conversion.target:
        if min(near) <= step and number.is_within(wanted, OFF):
            return True
        if number.is_within(wanted, SIGNIFICANT):
            return True
        if is_scale:
            return None if min(near) <= 1 else False
        if min(near) <= step * Fraction(3, 2) or number.is_within(wanted, OFF):
            return None
    return False


def _quantities(text: str, is_comma: bool) -> list[tuple[Number, MeasureUnit | None]]:
    """Return (number, unit or None) of a text in order; `5 feet 11 inches` is one quantity."""
    return [(number, unit) for number, unit, _ in quantities_in(text, is_comma)]


def quantities_in(
    text: str, is_comma: bool = False
) -> list[tuple[Number, MeasureUnit | None, int]]:
    """Return (number, unit or None, end) of a text in order.

    `5 feet 11 inches` is one quantity.
    """
    pattern = _unit_after()
    found: list[tuple[Number, MeasureUnit | None, int]] = []
    end = -10
    for number in numbers_in(text, is_comma):
        after = pattern.match(text, number.end)
        unit = _unit(after[1]) if after else None
        last = found[-1][:2] if found else None
        joined = _join_quantities(last, number, unit, text[end : number.start]) if last else None
        end = after.end() if after else number.end
        if joined is not None:
            found[-1] = (*joined, end)
        else:
            found.append((number, unit, end))
    return found


@cache
def _unit_after() -> re.Pattern[str]:
    """Return the pattern of a unit after a number, with Markdown or LaTeX between.

    Compiled once.
    """
    return re.compile(rf"\s?\*{{0,2}}\s?-?\\?(?:text\{{)?\s?({_unit_pattern()})", re.IGNORECASE)


def _join_quantities(
    last: tuple[Number, MeasureUnit | None], number: Number, unit: MeasureUnit | None, between: str
) -> tuple[Number, MeasureUnit] | None:
    """Return the sum of two adjacent quantities as (number, larger unit), or None.

    The second has a smaller unit, and only a space, a comma or `and` is between.
    """
    first, larger = last
    if unit is None or larger is None or unit.zero or unit.dimension != larger.dimension:
        return None
    if larger.size <= unit.size or not re.fullmatch(
        r"[\s,*]{0,4}(?:and|und|y|et)?\s{0,2}", between
    ):
        return None
    share = unit.size / larger.size
    values = tuple(one + other * share for one in first.values for other in number.values)
    return Number(values, 2, first.start, number.end), larger
