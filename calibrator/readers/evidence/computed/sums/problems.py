"""Short questions about amounts in words: discounts, tips, change, shares, speed, proportion."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Final

from calibrator.readers.evidence.computed.basics.answers import RightAnswer
from calibrator.readers.evidence.computed.basics.numbers import (
    digits_for_words,
    number_text,
    readings,
)

_N: Final = r"[$€£]?\s?\d[\d,]*(?:\.\d+)?"
_MONEY: Final = r"(?:\s?(?:dollars?|euros?|pounds?|bucks|usd|eur|gbp|€|\$|£))?"
_PC: Final = r"\s?-?(?:%|percent|per cent)"


def _value(text: str) -> Fraction:
    """Return the number in a text such as `$1,200`."""
    plain = re.sub(r"[^\d.,]", "", text).strip(".,")
    return readings(plain)[0][0]


_PRICE_OFF: Final = re.compile(
    rf"^(?:if )?(?:an? |the |my )?[\w' -]{{1,40}}? (?:costs?|is|was|is priced at|sells for"
    rf"|normally costs|originally costs?|has a price of|priced at) (?P<a>{_N}){_MONEY}"
    r"(?:,? (?:and|but|with|,)?\s*(?:it )?(?:is|it's|gets?|has|at|on sale for|on sale at|is on"
    r" sale for|is reduced by|is discounted by|was reduced by|discounted by|reduced by|there is"
    r"|with)?\s*(?:now )?|\.\s*(?:it is |it's |it gets |there is |with )?(?:now )?(?:discounted"
    rf" by |reduced by |on sale for |on sale at )?)(?:an? )?(?P<p>\d[\d.]*){_PC}\s*(?P<kind>off"
    r"|discount(?:ed)?|cheaper|reduction|less|more|increase|tax|vat|sales tax)?"
    r"[.,;]?\s*(?:what(?:'s| is) (?:the|its) (?:new |final |sale |discounted |total |reduced )?"
    r"(?:price|cost)(?: now| after (?:the )?discount)?|how much (?:does it|is it|do i pay|will i"
    r" pay|would i pay|do you pay|is the (?:final )?price)(?: cost)?(?: now| in total)?|what do i"
    r" pay|what does it cost(?: now)?)\s*\?*$",
    re.IGNORECASE,
)
_TIP: Final = re.compile(
    r"^(?:what(?:'s| is)|how much is|calculate|what would be|how much(?: should i (?:tip|leave)"
    rf"(?: for)?)?)\s*(?:the |an? )?(?P<p>\d[\d.]*){_PC} (?P<kind>tip|gratuity|tax|sales tax|vat"
    r"|discount|commission|deposit|service charge)? ?(?:on|of|for|from) (?:an? |my )?(?:bill "
    rf"(?:of|for) |order of |meal of |total of )?(?P<a>{_N}){_MONEY}(?: (?:bill|meal|dinner|order"
    r"|tab|check|purchase|item|price))?\s*\?*\.?$",
    re.IGNORECASE,
)
_TOTAL: Final = re.compile(
    r"^(?:my |the |our )?(?:bill|meal|dinner|order|lunch|check|item|purchase)?\s*(?:is|was|costs?"
    rf"|comes to|of)\s*(?P<a>{_N}){_MONEY}[.,]?\s*(?:and )?(?:if )?(?:i |we )?(?:want to |would"
    r" like to |will |plus |with |add(?:ing)? |leave |give |tip |plus )*(?:an? )?"
    rf"(?P<p>\d[\d.]*){_PC}\s*(?P<kind>tip|tax|gratuity|vat|sales tax)?[.,]?\s*(?P<ask>(?:what"
    r"(?:'s| is)|how much (?:is|do i pay|do we pay|will i pay|in total)|what do i pay).*?"
    r"(?P<total>total|altogether|pay|overall|in all|final|tip)?.*?)\s*\?*$",
    re.IGNORECASE,
)


def _prices(text: str) -> RightAnswer | None:
    """Answer a question for a price after a discount, a tax or a tip; None for others.

    An example is `A shirt costs $50 and is 20 % off. What is the sale price?`.
    """
    found = _PRICE_OFF.match(text)
    if found:
        price, share = _value(found["a"]), _value(found["p"])
        is_more = (found["kind"] or "").casefold() in (
            "more",
            "increase",
            "tax",
            "vat",
            "sales tax",
        )
        if not found["kind"] and not re.search(r"discount|reduced|sale", text, re.IGNORECASE):
            return None
        value = price * (100 + (share if is_more else -share)) / 100
        sign = "plus" if is_more else "minus"
        reason = f"{number_text(price)} {sign} {number_text(share)} % is {number_text(value)}"
        return RightAnswer(reason, "arithmetic", value, (price, share, abs(price - value)))
    found = _TIP.match(text)
    if found:
        price, share = _value(found["a"]), _value(found["p"])
        value = price * share / 100
        reason = f"{number_text(share)} % of {number_text(price)} is {number_text(value)}"
        known = (price, share, price + value)
        return RightAnswer(reason, "arithmetic", value, known)
    found = _TOTAL.match(text)
    if found and found["kind"]:
        price, share = _value(found["a"]), _value(found["p"])
        added = price * share / 100
        question = found["ask"].casefold()
        is_total = bool(re.search(r"total|altogether|pay|overall|in all|final", question))
        if is_total == bool(re.search(r"\b(?:the|my) (?:tip|tax)\b", question)):
            return None
        value = price + added if is_total else added
        reason = f"{number_text(price)} with {number_text(share)} % is {number_text(value)}"
        return RightAnswer(reason, "arithmetic", value, (price, share, price + added, added))
    return None


_SPLIT: Final = re.compile(
    r"^(?:(?:if )?(?:we |you |i )?(?:split|divide|share)|how much (?:does|will) each (?:person "
    rf"|of them )?(?:pay|get) if) (?:a (?:bill|sum|total) of |the bill of )?(?P<a>{_N}){_MONEY}(?:"
    r" \w+)?(?: is (?:split|divided|shared))?(?: equally| evenly)? (?:among|between|by|amongst) "
    rf"(?P<n>\d{{1,4}}) ?(?:people|friends|persons|kids|children|of us|ways)?(?: equally| evenly)?"
    rf"(?:[,.]?\s*(?:how much|what|how many) .{{0,50}})?\s*\?*\.?$",
    re.IGNORECASE,
)
_CHANGE: Final = re.compile(
    rf"^(?:if )?(?:i|you|she|he|someone|a customer) (?:pays? (?:with )?(?:a )?(?P<a>{_N}){_MONEY}"
    rf"(?: bill| note)? for (?:something|an? [\w ]{{1,30}}|items?) (?:that costs?|costing|worth|at"
    rf"|priced at) (?P<b>{_N}){_MONEY}|buys? (?:something|an? [\w ]{{1,30}}) for "
    rf"(?P<b2>{_N}){_MONEY} and pays? (?:with )?(?:a )?(?P<a2>{_N}){_MONEY}(?: bill|"
    rf" note)?)[,.]?\s*(?:how much|what)(?: is (?:the|my|your))? change.{{0,30}}\?*$",
    re.IGNORECASE,
)
_SPEED: Final = re.compile(
    r"^(?:if )?(?:an? |the |my )?(?:car|train|bus|cyclist|bike|plane|runner|boat|truck|person"
    r"|hiker|driver|i|ship|walker)\s?(?:is )?(?:driv(?:es?|ing)|travel(?:s|ing|ling|led)?|go(?:es"
    r"|ing)|mov(?:es?|ing)|run(?:s|ning)?|walk(?:s|ing)?|fl(?:ies|y|ying)|rid(?:es?|ing)|cycl"
    r"(?:es?|ing))(?: at)?(?: a (?:constant )?speed of)? (?:at )?(?P<v>\d[\d.]*) ?(?:km/h|kph|mph"
    r"|miles per hour|kilomet(?:er|re)s (?:per|an) hour|km per hour|miles an hour|m/s|met(?:er"
    r"|re)s per second)(?: for|,? how far .{0,40}? in) (?P<t>\d[\d.]*) ?(?P<u>hours?|h|minutes?"
    r"|min|seconds?)[,.]?\s*(?:how far|what distance|how many (?:km|kilomet(?:er|re)s|miles|met"
    r"(?:er|re)s))?.{0,60}\?*$",
    re.IGNORECASE,
)
_TAKES: Final = re.compile(
    r"^how long (?:does|will|would) it take (?:a \w+ )?to (?:drive|travel|cover|go|walk|cycle|fly)"
    r" (?P<d>\d[\d.,]*) ?(?P<du>km|kilomet(?:er|re)s|miles|mi) (?:at|with)(?: a(?: constant|"
    r" steady)? speed of)? (?P<v>\d[\d.]*) ?(?P<vu>km/h|kph|mph|miles per hour|kilomet(?:er|re)s"
    r" per hour|km per hour)\s*\?*$",
    re.IGNORECASE,
)
_EACH: Final = re.compile(
    rf"^if (?P<n>\d{{1,6}}) (?P<what>[a-z]{{2,20}}) costs? (?P<a>{_N}){_MONEY},? (?:how much (?:do"
    r"|does|will|would|are|is)|what (?:do|does|will|would)|what is the (?:cost|price) of) "
    rf"(?P<m>\d{{1,6}}|one|1)(?: of them| [a-z]{{2,20}})?(?: cost| be)?\s*\?*$",
    re.IGNORECASE,
)
_TIMES: Final = re.compile(
    r"^(?:what(?:'s| is) the (?:total )?(?:cost|price) of|how much (?:do|does|are|is|will|would)"
    rf"|what do) (?P<n>\d{{1,6}}) (?P<what>[a-z]{{2,20}}(?: [a-z]{{2,20}})?) (?:cost )?(?:at|for"
    r"|if (?:one|each|a \w+) (?:costs?|is)|if they (?:cost|are)|that cost|costing|priced at) "
    rf"(?P<a>{_N}){_MONEY}(?: each| apiece| a piece| per \w+)?(?: cost)?(?: in total)?\s*\?*$",
    re.IGNORECASE,
)
_LEFT: Final = re.compile(
    r"^(?:if )?(?P<who>[Ii]|[A-Z][a-z]+|she|he|you|there (?:are|were)) (?:have|has|had|are"
    r"|were)?\s*(?P<a>\d{1,6}) (?P<what>[a-z]{2,20})(?:[.,]| and)\s*(?:and )?(?:i |she |he |you "
    r"|then )?(?P<verb>give away|gives away|give|gives|gave away|gave|eat|eats|ate|lose|loses|lost"
    r"|sell|sells|sold|use|used|spend|spends|spent|buy|buys|bought|find|finds|found|get|gets|got"
    r"|receive|received) (?P<b>\d{1,6})(?: more)?(?: of them| away| \w+)?[,.]?\s*[Hh]ow many "
    r"(?:\w+ )?(?:do|does|are|did)?\s?.{0,30}?(?:left|have|has|now|remain)\s?.{0,15}\?*$",
)


def _solve_everyday(text: str) -> RightAnswer | None:
    """Answer a question for equal shares, change, prices of several things, or a changed number.

    Such as `Split 90 euros among 3 people`; None for others. A share that is not whole is rough.
    """
    found = _SPLIT.match(text)
    if found and int(found["n"]):
        total, count = _value(found["a"]), int(found["n"])
        value = total / count
        return RightAnswer(
            f"{number_text(total)} / {count} = {number_text(value)}",
            "arithmetic",
            value,
            (total, Fraction(count)),
            is_rough=value.denominator != 1,
        )
    found = _CHANGE.match(text)
    if found:
        paid, price = _value(found["a"] or found["a2"]), _value(found["b"] or found["b2"])
        return RightAnswer(
            f"{number_text(paid)} - {number_text(price)} = {number_text(paid - price)}",
            "arithmetic",
            paid - price,
            (paid, price),
        )
    found = _EACH.match(text)
    if found and int(found["n"]):
        count, price = int(found["n"]), _value(found["a"])
        many = 1 if found["m"].casefold() == "one" else int(found["m"])
        value = price * many / count
        return RightAnswer(
            f"{many} cost {number_text(value)}",
            "arithmetic",
            value,
            (Fraction(count), price, Fraction(many), price / count),
        )
    found = _TIMES.match(text)
    if found:
        count, price = int(found["n"]), _value(found["a"])
        value = price * count
        return RightAnswer(
            f"{count} * {number_text(price)} = {number_text(value)}",
            "arithmetic",
            value,
            (Fraction(count), price),
        )
    found = _LEFT.match(text)
    if found:
        first, second = int(found["a"]), int(found["b"])
        is_more = found["verb"].startswith(("b", "f", "got", "get", "rec"))
        if " more" not in text and is_more and found["verb"].startswith("get"):
            return None
        value = Fraction(first + second if is_more else first - second)
        return RightAnswer(
            f"{first} {'+' if is_more else '-'} {second} = {number_text(value)}",
            "arithmetic",
            value,
            (Fraction(first), Fraction(second)),
        )
    return None


def _motion(text: str) -> RightAnswer | None:
    """Answer `A car drives at 60 km/h for 2 hours. How far does it go?`; None for others.

    Also in how many hours a distance is covered, if that is a whole number.
    """
    found = _SPEED.match(text)
    if found and re.search(r"how far|what distance|how many", text, re.IGNORECASE):
        speed, time = _value(found["v"]), _value(found["t"])
        unit = found["u"].casefold()
        is_second = "m/s" in text or "per second" in text
        if is_second != unit.startswith("s"):
            if is_second or not unit.startswith("min"):
                return None
            time /= 60
        value = speed * time
        return RightAnswer(
            f"the distance is {number_text(value)}",
            "arithmetic",
            value,
            (speed, _value(found["t"])),
        )
    found = _TAKES.match(text)
    if found:
        is_miles = found["du"].casefold().startswith("mi")
        if is_miles != found["vu"].casefold().startswith("m"):
            return None
        speed = _value(found["v"])
        if not speed:
            return None
        value = _value(found["d"]) / speed
        if value.denominator != 1:
            return None  # may be written in hours and minutes
        return RightAnswer(
            f"it takes {number_text(value)} hours", "arithmetic", value, (speed, _value(found["d"]))
        )
    return None


_BOUGHT: Final = re.compile(
    r"^(?:if )?(?:i|you|we|she|he|someone|[A-Z]\w+) (?:bought|buys?|purchased?|ordered|orders?) "
    rf"(?P<n>\d{{1,5}}) (?P<what>[\w ]{{2,30}}?)"
    rf" (?:at|for|that cost|which cost|costing|priced at) (?P<a>{_N}){_MONEY} (?:each|apiece|a"
    r" piece|per \w+)[.,]? *"
    r"(?:how much|what)\b.{0,60}\?*$",
    re.IGNORECASE,
)
_RECIPE: Final = re.compile(
    r"^(?:a|the|my|if a) (?:recipe|dish|cake|batch) (?:for|that serves|serves|serving) "
    r"(?P<n>\d{1,3})(?: \w+)? (?:needs?|requires?|uses?|calls for|takes?) "
    r"(?P<a>\d[\d.]*) ?(?P<u>\w+)? ?(?:of )?(?P<what>\w+)?[.,]? *how (?:much|many) .{0,60}?(?:for"
    r"|serve) (?P<m>\d{1,3})(?: \w+)?\s*\?*$",
    re.IGNORECASE,
)
_AGE: Final = re.compile(
    r"^(?:if )?(?P<a>[A-Z]\w+) is (?P<n>\d{1,2}) years? (?P<k>older|younger) than (?P<b>[A-Z]\w+)"
    r"(?:[.,]| and) *(?:and )?(?P<c>[A-Z]\w+) is (?P<m>\d{1,3})(?: years old)?[.,]? *[Hh]ow old is"
    r" (?P<d>[A-Z]\w+)\s*\?*$"
)
_PART: Final = re.compile(
    r"^(?:there (?:are|were)|a (?:class|bus|group|team) (?:has|of)) (?P<a>\d{1,6}) (?P<what>\w+)"
    r"(?: in [\w ]{1,30}?)?(?:,? and|,|\.) *(?P<b>\d{1,6}) (?:of them |\w+ )?(?:are|were|is) "
    r"(?P<k>absent|missing|ill|sick|sold|broken|gone|empty|taken|boys|girls|red|blue|green|men"
    r"|women)[.,]? *how many (?:\w+ )?(?:are|were|remain|is)\b(?P<ask>.{0,40}?)\?*$",
    re.IGNORECASE,
)


def _solve_story(text: str) -> RightAnswer | None:
    """Answer a short story about a purchase, a recipe, an age or a rest.

    None for another question.
    """
    found = _BOUGHT.match(text)
    if found:
        count, price = int(found["n"]), _value(found["a"])
        reason = f"{count} * {number_text(price)} = {number_text(count * price)}"
        return RightAnswer(reason, "arithmetic", count * price, (Fraction(count), price))
    found = _RECIPE.match(text)
    if found and int(found["n"]):
        amount, people, wanted = _value(found["a"]), int(found["n"]), int(found["m"])
        value = amount * wanted / people
        known = (amount, Fraction(people), Fraction(wanted), amount / people)
        return RightAnswer(
            f"for {wanted} it takes {number_text(value)}", "arithmetic", value, known
        )
    found = _AGE.match(text)
    if found and found["c"] in (found["a"], found["b"]) and found["d"] in (found["a"], found["b"]):
        if found["c"] == found["d"]:
            return None
        step = (
            int(found["n"])
            if (found["k"] == "older") == (found["d"] == found["a"])
            else -int(found["n"])
        )
        value = Fraction(int(found["m"]) + step)
        return RightAnswer(
            f"{found['d']} is {value}",
            "arithmetic",
            value,
            (Fraction(found["n"]), Fraction(found["m"])),
        )
    found = _PART.match(text)
    if found and found["k"].casefold() not in found["ask"].casefold():
        first, second = Fraction(found["a"]), Fraction(found["b"])
        return RightAnswer(
            f"{first} - {second} = {first - second}", "arithmetic", first - second, (first, second)
        )
    return None


_FORMS: Final[tuple[Callable[[str], RightAnswer | None], ...]] = (
    _prices,
    _solve_everyday,
    _motion,
    _solve_story,
)


def about_amounts(text: str, is_comma_decimal: bool = False) -> RightAnswer | None:
    """Return the answer to a short question about amounts in words; None for others.

    None also without a digit or with decimal commas.
    """
    if is_comma_decimal or not any(character.isdigit() for character in text):
        return None
    text = digits_for_words(text) if len(text) < 200 else text
    for form in _FORMS:
        answer = form(text)
        if answer is not None:
            return answer
    return None
