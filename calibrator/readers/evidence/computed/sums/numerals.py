"""Questions about Roman numerals and other bases."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from calibrator.readers.evidence.computed.basics.answers import RightAnswer
from calibrator.readers.evidence.computed.basics.word_lists import word_list

_INT: Final = r"(?P<n>\d{1,3}(?:,\d{3})+|\d{1,12})"


def _int(text: str) -> int:
    """Return a whole number with separators, such as `1,000`."""
    return int(re.sub(r"[,.\s]", "", text))


_ROMAN: Final = tuple(
    zip(
        (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1),
        word_list("M CM D CD C XC L XL X IX V IV I"),
        strict=True,
    )
)


def roman(number: int) -> str:
    """Return a number from 1 to 3999 in Roman numerals."""
    text = ""
    for value, sign in _ROMAN:
        while number >= value:
            text, number = text + sign, number - value
    return text


_TO_ROMAN: Final = re.compile(
    rf"(?:{_INT}(?: in| as| to| into|en)? (?:a )?(?:roman numerals?|römischen? (?:zahlen|ziffern)"
    r"|números romanos|chiffres romains))",
    re.IGNORECASE,
)
_FROM_ROMAN: Final = re.compile(
    r"\b(?:what (?:number )?(?:is|does)|convert|was ist|which number is|value of)\b.{0,40}?\b"
    r"(?P<r>[MDCLXVI]{2,15})\b"
)
_BASES: Final = {
    "binary": 2,
    "octal": 8,
    "hexadecimal": 16,
    "hex": 16,
    "decimal": 10,
    "base 2": 2,
    "base 8": 8,
    "base 16": 16,
    "base 10": 10,
    "binär": 2,
    "dezimal": 10,
    "binario": 2,
    "binaire": 2,
}
_BASE: Final = re.compile(
    r"^(?:what(?:'s| is)|convert|write|express|translate)?\s*(?:the )?(?P<from>binary|decimal|hex"
    r"(?:adecimal)?|octal)?\s*(?:number )?(?P<x>0x[0-9a-f]{1,12}|0b[01]{1,40}|[0-9][0-9a-f]{0,39}"
    r"|[a-f][0-9a-f]{1,12})\s*(?:\(?(?P<from2>binary|decimal|hex(?:adecimal)?|octal|base (?:2|8|10"
    r"|16))\)?\s*)?(?:in|to|into|as|from (?P<from3>binary|decimal|hex(?:adecimal)?|octal) to)\s+"
    r"(?:a )?(?P<to>binary|decimal|hex(?:adecimal)?|octal|base (?:2|8|10|16))(?: (?:number"
    r"|notation|form))?\s*[?.]*$",
    re.IGNORECASE,
)


def about_numerals(text: str) -> RightAnswer | None:
    """Answer `Write 14 in Roman numerals`, `what is the Roman XIV?` or `Convert 10 to binary`.

    None for another question.
    """
    found = _TO_ROMAN.search(text)
    if found and len(text) < 90:
        number = _int(found["n"])
        if 0 < number < 4000:
            right = roman(number)
            return RightAnswer(
                f"{number} is {right} in Roman numerals", "arithmetic", words=(right,), is_only=True
            )
    if re.search(r"roman|römisch", text, re.IGNORECASE) and len(text) < 90:
        found = _FROM_ROMAN.search(text)
        if found:
            for number in range(1, 4000):
                if roman(number) == found["r"]:
                    return RightAnswer(f"{found['r']} is {number}", "arithmetic", Fraction(number))
    return _other_base(text)


def _other_base(text: str) -> RightAnswer | None:
    """Answer `Convert 0x1f to decimal`, for bases 2, 8, 10 and 16; None for another question."""
    found = _BASE.match(text)
    if not found:
        return None
    written = found["x"].casefold()
    named = found["from"] or found["from2"] or found["from3"]
    target = _BASES[found["to"].casefold()]
    base = (
        16
        if written.startswith("0x")
        else 2
        if written.startswith("0b")
        else _BASES[named.casefold()]
        if named
        else (10 if target != 10 else 2)
    )
    try:
        value = int(written.removeprefix("0x").removeprefix("0b"), base)
    except ValueError:
        return None
    if target == 10:
        return RightAnswer(
            f"{found['x']} is {value} in decimal",
            "arithmetic",
            Fraction(value),
            tuple(Fraction(int(written)) for _ in range(written.isdigit())),
        )
    right = {2: f"{value:b}", 8: f"{value:o}", 16: f"{value:x}"}[target]
    others = [
        f"{other:b}" if target == 2 else f"{other:o}" if target == 8 else f"{other:x}"
        for other in range(max(0, value - 40), value + 40)
        if other != value
    ]
    forms = (
        (right, f"0b{right}", right.zfill(8), right.zfill(4))
        if target == 2
        else (right, f"0x{right}", f"0o{right}")
    )
    if right == written:
        return None
    return RightAnswer(
        f"{value} is {right} in {found['to']}",
        "arithmetic",
        words=forms,
        others=tuple(o for o in others if o != str(value) and o not in forms),
    )
