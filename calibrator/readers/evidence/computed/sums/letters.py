"""Questions about the letters of a word or a short text: counts, spelling, order."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from calibrator.readers.evidence.computed.basics.answers import RightAnswer
from calibrator.readers.evidence.computed.basics.verdict import Exchange, Verdict
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
        shown = f'"{found["w"]}" has {count} "{letter}"'
        return RightAnswer(shown, "letters", Fraction(count))
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
