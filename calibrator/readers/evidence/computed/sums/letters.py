"""Questions about the letters of a word, Roman numerals and numbers in other bases."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from calibrator.readers.evidence.computed.basics.answers import RightAnswer
from calibrator.readers.evidence.computed.basics.verdict import Exchange, Verdict
from calibrator.readers.evidence.computed.basics.word_lists import word_list
from calibrator.text.guarded import compile_guarded

MAX_QUESTION: Final = 300  # characters
_QUICK: Final = compile_guarded(
    r"how many|count|wie viele|cuántas|combien|backwards?|revers|palindrome|rückwärts|letter"
    r"|uppercase"
    r"|upper case|lowercase|lower case|spell",
    re.IGNORECASE,
)
_Q: Final = r"[\"'“”‘’«»„`*]*"
_WORD: Final = rf"{_Q}(?P<w>[^\W\d_]{{2,40}}){_Q}"
_COUNT: Final = re.compile(
    rf"^(?:how many (?:times (?:does|do) )?(?:the )?(?:letters? )?{_Q}(?P<c>[a-z]){_Q}(?:'?s|es)?"
    r"(?: letters?)? ?(?:are |is |do |does |appears? |occurs? |you see |can you find |there )*"
    r"(?:in|have)"
    rf"|how often does (?:the )?(?:letter )?{_Q}(?P<c2>[a-z]){_Q} (?:appear|occur) in|count the "
    rf"(?:number of )?(?:letter )?{_Q}(?P<c3>[a-z]){_Q}(?:'?s)? in|wie viele {_Q}(?P<c4>[a-z]){_Q}"
    r"(?:'?s)? (?:sind |hat |gibt es )?(?:in|im)?)"
    rf" (?:the |das |dem )?(?:word |wort )?{_WORD}\s*[?.]*$",
    re.IGNORECASE,
)
_KIND: Final = re.compile(
    r"^how many (?P<kind>letters|characters|vowels|consonants|syllables) (?:are |is )?(?:there )?"
    rf"(?:in|does|make up) (?:the )?(?:word )?{_WORD}(?: have| contain)?\s*[?.]*$",
    re.IGNORECASE,
)
_BACK: Final = re.compile(
    r"^(?:(?:spell|write|say|reverse|what is|what's|type|give me|schreibe|print|flip)\s+)?(?:the"
    rf" )?(?:letters (?:of|in) )?(?:word |string |wort )?(?:the word )?{_WORD}(?P<tail> "
    r"(?:backwards?|in reverse(?: order)?|reversed|rückwärts|spelled backwards|al revés|à"
    r" l'envers))?\s*[?.!]*$",
    re.IGNORECASE,
)
_PALINDROME: Final = re.compile(rf"^is (?:the word )?{_WORD} an? palindrome\s*\?+$", re.IGNORECASE)
_WORDS_IN: Final = re.compile(
    r"^(?:how many words (?:are )?(?:there )?in|count the (?:number of )?words in) (?:the |this )?"
    r"(?:following )?(?:sentence|phrase"
    r"|text)?\s*:?\s*[\"“'‘«](?P<t>[^\"”“»]{3,200})[\"”'’»]\s*[?.]*$",
    re.IGNORECASE,
)
_WORDS_OF: Final = re.compile(
    r"^(?:how many words (?:are )?(?:there )?in|count the (?:number of )?words in) (?:the |this )"
    r"(?:following )?(?:sentence|phrase|text)\s*:\s*(?P<t>[^\"“]{3,300})$",
    re.IGNORECASE,
)
_NTH: Final = re.compile(
    rf"^(?:what is|what's|which is) the (?P<n>first|second|third|fourth|fifth|sixth|last|\d{{1,2}}"
    rf"(?:st|nd|rd|th)) (?P<what>letter|character) (?:of|in) (?:the word )?{_WORD}\s*[?.]*$",
    re.IGNORECASE,
)

_ORDINALS: Final = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6}

WHOLE_NUMBER: Final = r"(?P<n>\d{1,3}(?:,\d{3})+|\d{1,12})"
_ROMAN: Final = tuple(
    zip(
        (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1),
        word_list("M CM D CD C XC L XL X IX V IV I"),
        strict=True,
    )
)
_TO_ROMAN: Final = re.compile(
    rf"(?:{WHOLE_NUMBER}(?: in| as| to| into|en)? (?:a )?"
    r"(?:roman numerals?|römischen? (?:zahlen|ziffern)"
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


def verify_letters(exchange: Exchange) -> Verdict | None:
    """Judge a reply to a question about letters, such as `How many r in "berry"?`.

    None for others.
    """
    question = exchange.question
    if not question or len(question) > MAX_QUESTION or not _QUICK.search(question):
        return None
    answer = about_letters(question)
    return None if answer is None else answer.verdict(exchange.reply)


def about_letters(question: str) -> RightAnswer | None:
    """Return the answer to a question about a word's letters or a sentence's words; else None."""
    found = _COUNT.match(question)
    if found:
        letter = next(found[key] for key in ("c", "c2", "c3", "c4") if found[key]).casefold()
        count = found["w"].casefold().count(letter)
        reason = f'"{found["w"]}" has {count} "{letter}"'
        return RightAnswer(reason, "letters", Fraction(count))
    found = _KIND.match(question)
    if found and found["kind"].casefold() != "syllables":
        word, kind = found["w"].casefold(), found["kind"].casefold()
        vowels = sum(character in "aeiou" for character in word)
        if "y" in word and kind in ("vowels", "consonants"):
            return None
        count = {"vowels": vowels, "consonants": len(word) - vowels}.get(kind, len(word))
        return RightAnswer(f'"{found["w"]}" has {count} {kind}', "letters", Fraction(count))
    found = _WORDS_IN.match(question) or _WORDS_OF.match(question)
    if found:
        count = len(found["t"].split())
        return RightAnswer(f"the sentence has {count} words", "letters", Fraction(count))
    return _spell(question)


def _spell(question: str) -> RightAnswer | None:
    """Answer `Is "level" a palindrome?`, `What is the 3rd letter of ..?` or `Reverse ..`.

    Else None.
    """
    found = _PALINDROME.match(question)
    if found:
        word = found["w"].casefold()
        is_same = word == word[::-1]
        return RightAnswer(
            f'"{word}" is {"" if is_same else "not "}a palindrome', "letters", is_yes=is_same
        )
    found = _NTH.match(question)
    if found:
        word, place = found["w"], found["n"].casefold()
        at = -1 if place == "last" else _ORDINALS.get(place) or int(re.sub(r"\D", "", place))
        if at > len(word) or at == 0:
            return None
        letter = word[at if at < 0 else at - 1].casefold()
        others = tuple(set("abcdefghijklmnopqrstuvwxyz") - {letter, "a", "i", "s"})
        return RightAnswer(f'it is "{letter}"', "letters", words=(letter,), others=others)
    found = _BACK.match(question)
    if found and (found["tail"] or re.match(r"^(?:reverse|flip)\b", question, re.IGNORECASE)):
        word = found["w"].casefold()
        return RightAnswer(
            f'"{word}" backwards is "{word[::-1]}"', "letters", words=(word[::-1],), is_only=True
        )
    return None


def whole_number(text: str) -> int:
    """Return a whole number with separators, such as `1,000`."""
    return int(re.sub(r"[,.\s]", "", text))


def roman(number: int) -> str:
    """Return a number from 1 to 3999 in Roman numerals."""
    text = ""
    for value, sign in _ROMAN:
        while number >= value:
            text, number = text + sign, number - value
    return text


def about_numerals(text: str) -> RightAnswer | None:
    """Answer `Write 14 in Roman numerals`, `what is the Roman XIV?` or `Convert 10 to binary`.

    None for another question.
    """
    found = _TO_ROMAN.search(text)
    if found and len(text) < 90:
        number = whole_number(found["n"])
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
