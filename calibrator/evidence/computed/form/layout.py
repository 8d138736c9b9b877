"""Wishes for the kind of a reply: yes or no, one word, a number, exact words, lists, tables, order."""

from __future__ import annotations

import re
from typing import Final

from calibrator.evidence.computed.form import counting
from calibrator.evidence.computed.verdict import Verdict

_ONLY: Final = r"(?:only|just|simply|solely|nothing but|nur|solo|sólo|únicamente|solamente|uniquement|seulement|strictly|exactly|a simple|exclusively)"
_YES_NO: Final = re.compile(
    rf"\b(?P<p1>{_ONLY}\s+)?(?:(?:answer|reply|respond|say|responses?|antworte|beantworte|responde|contesta|réponds|répondez)\b[^.?!\n]{{0,40}}?)?(?P<p2>\b{_ONLY}\s+)?(?:with |mit |con |par |using |a )*(?P<p3>{_ONLY}\s+)?(?:with |mit |con |par )*(?:either )?[\"'“‘]?(?:yes[\"'”’]?\s*(?:or|/|and)\s*[\"'“‘]?no|ja[\"'”’]?\s*(?:oder|/)\s*[\"'“‘]?nein|s[íi][\"'”’]?\s*(?:o|/)\s*[\"'“‘]?no|oui[\"'”’]?\s*(?:ou|/)\s*[\"'“‘]?non)[\"'”’]?(?P<p4>[,;]?\s*(?:only|and nothing else|nothing else|without|no explanation|no other|alone|\W*$))?",
    re.IGNORECASE,
)
_YES_OR_NO: Final = re.compile(r"^\W*(?:yes|no|ja|nein|s[íi]|oui|non)\W*$", re.IGNORECASE)
_ONE_WORD: Final = re.compile(
    r"\b(?:in|with|using|as|only|just|give|exactly) (?:exactly |only |just |a |me )*(?:one|single|1) word\b(?! or| for each|-)|\bone[- ]word (?:answer|reply|response)s?\b|\bsingle[- ]word (?:answer|reply|response)s?\b|\bone word only\b|\bmit (?:nur )?einem (?:einzigen )?wort\b|\ben una (?:sola )?palabra\b|\ben un (?:seul )?mot\b|\bcon una (?:sola )?palabra\b|^one word[:.]",
    re.IGNORECASE,
)
_NUMBER: Final = re.compile(
    rf"\b{_ONLY}\s+(?:give |return |reply |answer |respond |output |write |say )?(?:me |with )?(?:the |a |one |final |resulting |die |el |le |single )*(?:number|digits?|figure|integer|numeral|zahl|número|nombre|chiffre|numeric value|numerical value)\b(?! of| and)|\b(?:number|zahl|número|nombre) (?:only|alone)\b|\bnothing but the number\b",
    re.IGNORECASE,
)
_LETTER: Final = re.compile(
    rf"\b(?:{_ONLY}\s+(?:with )?(?:the |a |one )*(?:correct |right )?(?:option |answer |choice )?letter\b|(?:the )?letter (?:only|alone)\b|(?:answer|reply|respond) with (?:only )?(?:the|a) (?:single )?letter\b)",
    re.IGNORECASE,
)
_BARE: Final = re.compile(
    r"\b(?:nothing else|no (?:introduction|preamble|intro|extra text|other text|additional text|commentary|explanations?|comments?)|without (?:any )?(?:introduction|preamble|explanations?|commentary|comments)|(?:output|return|reply|respond|answer|give|write)\b[^.?!\n]{0,30}\b(?:only|just|solely|nothing but)\b|^(?:only|just)\s+(?:output|return|reply|respond|answer|give|write|provide)\b)",
    re.IGNORECASE,
)
_OPENING: Final = re.compile(
    r"^\W*(?:sure|certainly|of course|absolutely|okay|ok|great|here(?:'s| is| are)|gladly|happy to|no problem|as requested|the (?:translation|summary|answer|result|corrected|rewritten)\b[^.\n]{0,40}\bis\b|natürlich|gerne|hier (?:ist|sind)|claro|por supuesto|aquí|bien sûr|voici)\b",
    re.IGNORECASE,
)


def kind_fault(sentences: list[str], instruction: str, reply: str) -> str | None:
    """Return how a reply breaks a wish for yes or no, one word, a number or a letter; or None."""
    text = counting.plain(reply)
    count = len(counting.words(text))
    for sentence in sentences:
        found = _YES_NO.search(sentence)
        if found and not re.search(
            r"\b(?:questions?|and then|explain|why|because|reason|followed|justif\w*|sentence|begründ\w*|then)\b",
            instruction,
            re.IGNORECASE,
        ):
            is_only = any(found[key] for key in ("p1", "p2", "p3")) or bool(
                (found["p4"] or "").strip(" .,;?!)")
            )
            if is_only and not _YES_OR_NO.match(text):
                return "the reply is not only yes or no"
            if not is_only and re.search(
                r"\b(?:answer|reply|respond|antworte|responde|réponds|yes or no[.?:]?\s*$|ja oder nein[.?]?\s*$|s[íi] o no[.?]?\s*$|oui ou non[.?]?\s*$)",
                sentence.strip(),
                re.IGNORECASE,
            ):
                if not re.search(
                    r"\b(?:yes|no|not|ja|nein|s[íi]|oui|non|true|false|correct|yep|nope)\b",
                    " ".join(text.split()[:12]),
                    re.IGNORECASE,
                ):
                    return "the reply is neither yes nor no"
        if _ONE_WORD.search(sentence) and not re.search(
            r"\b(?:each|every|per|or two|or a|substitut\w+|replace|synonym)\b",
            sentence,
            re.IGNORECASE,
        ):
            parts = text.split()
            if count > 2 or (
                count == 2
                and len(parts) > 1
                and not (parts[0][:1].isupper() and parts[1][:1].isupper())
            ):
                return f"the reply has {count} words, not one"
        if _NUMBER.search(sentence) and not re.search(r"\beach\b", sentence, re.IGNORECASE):
            if count > 3 or (not re.search(r"\d", text) and count > 1):
                return "the reply is not only a number"
        if _LETTER.search(sentence) and count > 2:
            return "the reply is not only a letter"
        if _BARE.search(sentence) and _OPENING.match(text) and count > 3:
            return "there is text beside what was asked"
    return None


_EXACT: Final = re.compile(
    r"^(?:(?:please )?(?:reply|respond|answer|say|write|print|output|type|return)\s+(?:only |just |back )?(?:with )?(?:exactly|only|just|nothing but)\b\s*(?:the (?:word|words|text|phrase) |with |this |the following )*:?\s*(?:[\"“'‘`](?P<q>[^\"”\n]{1,200}?)[\"”'’`]|(?P<b>[A-Z]{2,12}))(?:\s*,?\s*(?:and nothing else|nothing else|only))?|(?:please )?(?:repeat|copy)(?: after me| exactly| back| the following| this| verbatim| word for word)*\s*:\s*[\"“'‘]?(?P<r>[^\n\"”]{2,200}?)[\"”'’]?)[.!]?\s*$",
    re.IGNORECASE,
)


def exact_verdict(instruction: str, reply: str) -> Verdict | None:
    """Judge a reply that was to be given words and nothing else."""
    found = _EXACT.match(" ".join(instruction.split()))
    if not found:
        return None
    wanted = (found["q"] or found["b"] or found["r"]).strip()
    said = reply.strip().strip("\"“”'‘’`*").strip()
    is_same = said.rstrip(".!").casefold() == wanted.rstrip(".!").casefold()
    return Verdict(is_same, f'the reply was to be "{wanted[:60]}"', "form")


_TIMES: Final = re.compile(
    r"^(?:please )?(?:write|say|repeat|print|type|output) (?:the (?:word|phrase|letter|sentence) )?[\"“'‘`](?P<w>[^\"”\n]{1,60}?)[\"”'’`] (?:exactly )?(?P<n>\d{1,3}|twice|two|three|four|five|six|seven|eight|nine|ten)(?: times)?[.!]?$",
    re.IGNORECASE,
)
_TIMES_WORDS: Final = {
    "twice": 2,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
}


def repeated_verdict(instruction: str, reply: str) -> Verdict | None:
    """Judge a reply that was to say a word a number of times."""
    found = _TIMES.match(" ".join(instruction.split()))
    if not found:
        return None
    written = found["n"].casefold()
    number = int(written) if written.isdigit() else _TIMES_WORDS[written]
    word = re.escape(found["w"].casefold())
    count = len(re.findall(rf"(?<!\w){word}(?!\w)", reply.casefold()))
    return Verdict(
        count == number,
        f'"{found["w"]}" occurs {count} times, not {number}'
        if count != number
        else f'"{found["w"]}" occurs {count} times',
        "form",
    )


_TABLE: Final = re.compile(
    r"\b(?:in|as|into|make|create|draw|give|build|produce|format) (?:me |it as |this as |them as )?(?:an? )(?:short |small |simple |markdown |\w+-column |\d+x\d+ )*table\b(?! of contents|spoon|s\b|t\b| tennis)",
    re.IGNORECASE,
)
_NUMBERED: Final = re.compile(
    r"\b(?:as|in|use|with|using|make|give|into|write) (?:me )?(?:an? )?(?:\w+ )?(?:numbered|ordered|enumerated) list\b|\bnumber (?:them|the items|each)\b|\bnummerierte liste\b|\blista numerada\b|\bliste numérotée\b",
    re.IGNORECASE,
)
_BULLETED: Final = re.compile(
    r"\b(?:as|in|use|with|using|into) (?:an? )?(?:short |\w+ )?(?:bullet(?:ed)?(?: point)? list|bullet points?|bullets)\b|\bbulleted list\b|\bals (?:stichpunkte|aufzählung)\b|\ben (?:viñetas|puntos)\b|\bsous forme de (?:puces|liste à puces)\b",
    re.IGNORECASE,
)
_COMMA: Final = re.compile(
    r"\b(?:comma[- ]separated|separated by commas|durch kommas? getrennt|separad[oa]s por comas|séparée?s par des virgules)\b",
    re.IGNORECASE,
)
_ONE_LINE: Final = re.compile(
    r"\b(?:in|on|as) (?:a single|one|exactly one) line\b|\bno (?:line breaks|newlines)\b|\bwithout (?:line breaks|newlines)\b|\bin einer zeile\b|\ben una (?:sola )?línea\b|\bsur une (?:seule )?ligne\b",
    re.IGNORECASE,
)
_PER_LINE: Final = re.compile(
    r"\bone (?:item |word |name |entry |number |per |\w+ )?(?:per|on each|a) line\b|\beach on (?:a|its own|a new|a separate) (?:new )?line\b|\bein\w* pro zeile\b|\bun[ao] por línea\b|\bune? par ligne\b",
    re.IGNORECASE,
)
_NO_LIST: Final = re.compile(
    r"\b(?:no|without|avoid|not use|don't use|do not use)\b[^.]{0,20}\b(?:bullet points?|bullets|lists?)\b",
    re.IGNORECASE,
)
_NO_MARKDOWN: Final = re.compile(
    r"\b(?:no|without|avoid|not use|don't use|do not use)\b[^.]{0,20}\bmarkdown\b|\bplain text(?: only)?\b",
    re.IGNORECASE,
)
_CODE_BLOCK: Final = re.compile(
    r"\b(?:in|inside|within) (?:an? )?(?:single |fenced |markdown )?code block\b", re.IGNORECASE
)
_COLUMNS: Final = re.compile(
    r"\b(?P<n>\d|two|three|four|five|six) columns?\b|\b(?P<x>\d)[- ]column\b", re.IGNORECASE
)
_SMALL: Final = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6}


def layout_fault(sentences: list[str], reply: str) -> str | None:
    """Return how a reply breaks a wish for a list, a table or lines, or None."""
    text = reply.strip()
    rows = counting.lines(re.sub(r"```[^\n]*", "", text))
    for sentence in sentences:
        if _TABLE.search(sentence) and re.search(
            r"\b(?:markdown|columns?|rows?|as an? (?:\w+ )?table|in an? (?:\w+ )?table)\b",
            sentence,
            re.IGNORECASE,
        ):
            if not re.search(
                r"\b(?:html|latex|csv|sql|reserve|book|dinner|kitchen|create table|drop|join|database|which|data|given|below|above|following)\b",
                sentence,
                re.IGNORECASE,
            ):
                fault = _table_fault(text, sentence)
                if fault:
                    return fault
        if _NUMBERED.search(sentence) and not re.search(
            r"^\W{0,4}\d{1,3}[.):]", text, re.MULTILINE
        ):
            return "the reply is no numbered list"
        if _BULLETED.search(sentence) and not re.search(
            r"^[ \t]*[-*•+–·◦]\s*\S|^[ \t]*\d{1,3}[.)]", text, re.MULTILINE
        ):
            return "the reply has no bullet points"
        if (
            _COMMA.search(sentence)
            and not re.search(
                r"\b(?:csv|file|values in|numbers? (?:are|is)|given|following|input)\b",
                sentence,
                re.IGNORECASE,
            )
            and len(rows) > 2
            and sum("," in row for row in rows) * 3 < len(rows)
        ):
            return "the reply is not separated by commas"
        if _ONE_LINE.search(sentence) and len(rows) > 1:
            return f"the reply has {len(rows)} lines, not one"
        if (
            _PER_LINE.search(sentence)
            and len(rows) == 1
            and len(counting.comma_items(text) or ()) > 2
        ):
            return "the items are not one a line"
        if _NO_LIST.search(sentence) and re.search(
            r"^[ \t]*(?:[-*•]|\d{1,2}[.)])[ \t]+\S.*\n+[ \t]*(?:[-*•]|\d{1,2}[.)])[ \t]+\S",
            text,
            re.MULTILINE,
        ):
            return "the reply is a list"
        if _NO_MARKDOWN.search(sentence) and re.search(
            r"\*\*[^*\n]+\*\*|^#{1,4} \S|^```", text, re.MULTILINE
        ):
            return "the reply has Markdown"
        if (
            _CODE_BLOCK.search(sentence)
            and "```" not in text
            and not re.search(r"^(?: {4}|\t)\S", text, re.MULTILINE)
        ):
            return "the reply has no code block"
    return None


def _table_fault(text: str, sentence: str) -> str | None:
    rows = [line.strip() for line in text.splitlines() if line.strip().count("|") >= 2]
    if len(rows) < 2:
        return (
            None
            if "\t" in text or "<table" in text or "│" in text or "+--" in text
            else "the reply has no table"
        )
    widths = [len(row.strip("|").split("|")) for row in rows]
    if len(set(widths)) > 1 and not any("\\|" in row for row in rows):
        return "the rows of the table differ in their number of columns"
    columns = _COLUMNS.search(sentence)
    if columns:
        written = (columns["n"] or columns["x"]).casefold()
        number = int(written) if written.isdigit() else _SMALL[written]
        if widths[0] != number and re.search(
            r"\b(?:with|exactly|has|have|having)\b[^.]{0,20}columns?|\bcolumn table\b",
            sentence,
            re.IGNORECASE,
        ):
            return f"the table has {widths[0]} columns, not {number}"
    return None


_ALPHABETICAL: Final = re.compile(
    r"\b(?:in )?(?:(?P<rev>reverse|reversed|descending) )?(?:alphabetical(?:ly)?|alphabetic)(?: order)?\b|\balphabetisch\w*\b|\b(?:en )?orden alfabético\b|\balfabéticamente\b|\b(?:par )?ordre alphabétique\b|\balphabétiquement\b",
    re.IGNORECASE,
)
_GIVEN: Final = re.compile(
    r":\s*(?P<l>[^:\n]{3,400})\s*$|\bthe (?:words|names) (?P<m>[^.?!:\n]{3,200}?) (?:in|into) alphabetical",
    re.IGNORECASE,
)


def order_verdict(instruction: str, reply: str) -> Verdict | None:
    """Judge whether a list is in alphabetical order and, if it was given, has all its items."""
    line = " ".join(instruction.split())
    found = _ALPHABETICAL.search(line)
    if (
        not found
        or len(line) > 700
        or re.search(
            r"\b(?:last name|surname|by (?:the )?(?:second|last|author|title)|letters (?:in|of)|function|python|code|sql|explain|what is|why|how)\b",
            line,
            re.IGNORECASE,
        )
    ):
        return None
    listed = counting.items(
        re.sub(r"^[^\n:]{0,120}:\s*", "", reply.strip(), count=1)
    ) or counting.items(reply)
    if listed is None or len(listed) < 2:
        return None
    keys = [_sort_key(item) for item in listed]
    is_reversed = bool(found["rev"])
    is_sorted = keys == sorted(keys, reverse=is_reversed)
    is_loosely = [key.removeprefix("the ") for key in keys] == sorted(
        (key.removeprefix("the ") for key in keys), reverse=is_reversed
    )
    given = _GIVEN.search(line)
    items = counting.comma_items((given["l"] or given["m"]).strip()) if given else None
    if not is_sorted and not is_loosely:
        return Verdict(False, "the items are not in alphabetical order", "form")
    if items is None or len(items) < 3 or (not is_sorted and not is_loosely):
        return None
    wanted = sorted(map(_sort_key, items))
    if sorted(keys) != wanted:
        missing = [item for item in items if _sort_key(item) not in keys]
        return Verdict(
            False, f'"{missing[0]}" is missing' if missing else "the list has other items", "form"
        )
    return Verdict(True, "the items are in alphabetical order", "form")


def _sort_key(item: str) -> str:
    head = re.split(r"\s*(?::|\s[-–—]\s|\()", item)[0]
    return " ".join(re.sub(r"[^\w\s]", "", head.casefold()).split())
