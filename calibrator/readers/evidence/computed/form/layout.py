"""The wishes for exact words, lists, tables, lines and an order."""

from __future__ import annotations

import re
from typing import Final

from calibrator.readers.evidence.computed.basics.verdict import Verdict
from calibrator.readers.evidence.computed.form import counting
from calibrator.text.guarded import compile_guarded

_EXACT: Final = compile_guarded(
    r"^(?:(?:please )?(?:reply|respond|answer|say|write|print|output|type|return)\s+(?:only |just "
    r"|back )?(?:with )?(?:exactly|only|just|nothing but)\b\s*(?:the (?:word|words|text|phrase) "
    r"|with |this |the following )*:?\s*(?:[\"“'‘`](?P<q>[^\"”\n]{1,200}?)[\"”'’`]|"
    r"(?P<b>[A-Z]{2,12}))(?:\s*,?\s*(?:and nothing else|nothing else|only))?|(?:please )?(?:repeat"
    r"|copy)(?: after me| exactly| back| the following| this| verbatim| word for"
    r" word)*\s*:\s*[\"“'‘]?(?P<r>[^\n\"”]{2,200}?)[\"”'’]?)[.!]?\s*$",
    re.IGNORECASE,
)


def exact_verdict(instruction: str, reply: str) -> Verdict | None:
    """Judge a reply that must consist of given words, as in `Reply with exactly "done"`.

    Case, quotes and a final mark do not matter. None without such a wish.
    """
    found = _EXACT.match(" ".join(instruction.split()))
    if not found:
        return None
    wanted = (found["q"] or found["b"] or found["r"]).strip()
    text = reply.strip().strip("\"“”'‘’`*").strip()
    is_same = text.rstrip(".!").casefold() == wanted.rstrip(".!").casefold()
    return Verdict(is_same, f'the reply was to be "{wanted[:60]}"', "form")


_TIMES: Final = compile_guarded(
    r"^(?:please )?(?:write|say|repeat|print|type|output) (?:the (?:word|phrase|letter|sentence)"
    r" )?[\"“'‘`](?P<w>[^\"”\n]{1,60}?)[\"”'’`] (?:exactly )?(?P<n>\d{1,3}|twice|two|three|four"
    r"|five|six|seven|eight|nine|ten)(?: times)?[.!]?$",
    re.IGNORECASE,
)


def repeated_verdict(instruction: str, reply: str) -> Verdict | None:
    """Judge a reply that must repeat a word, as in `Say "hello" three times`.

    None without the wish.
    """
    found = _TIMES.match(" ".join(instruction.split()))
    if not found:
        return None
    written = found["n"].casefold()
    number = counting.value_of(written)
    word = re.escape(found["w"].casefold())
    count = len(re.findall(rf"(?<!\w){word}(?!\w)", reply.casefold()))
    return Verdict(
        count == number,
        f'"{found["w"]}" occurs {count} times, not {number}'
        if count != number
        else f'"{found["w"]}" occurs {count} times',
        "form",
    )


_TABLE: Final = compile_guarded(
    r"\b(?:in|as|into|make|create|draw|give|build|produce|format) "
    r"(?:me |it as |this as |them as )?(?:an? )(?:short |small |simple |markdown |\w+-column "
    r"|\d+x\d+ )*table\b(?! of contents|spoon|s\b|t\b| tennis)",
    re.IGNORECASE,
)
_NUMBERED: Final = compile_guarded(
    r"\b(?:as|in|use|with|using|make|give|into|write) (?:me )?"
    r"(?:an? )?(?:\w+ )?(?:numbered|ordered|enumerated) list\b|\bnumber (?:them|the items|each)\b"
    r"|\bnummerierte liste\b|\blista numerada\b|\bliste numérotée\b",
    re.IGNORECASE,
)
_BULLETED: Final = compile_guarded(
    r"\b(?:as|in|use|with|using|into) (?:an? )?(?:short |\w+ )?"
    r"(?:bullet(?:ed)?(?: point)? list|bullet points?|bullets)\b|\bbulleted list\b|\bals "
    r"(?:stichpunkte|aufzählung)\b|\ben (?:viñetas|puntos)\b|\bsous forme de (?:puces|liste à"
    r" puces)\b",
    re.IGNORECASE,
)
_COMMA: Final = compile_guarded(
    r"\b(?:comma[- ]separated|separated by commas|durch kommas?"
    r" getrennt|separad[oa]s por comas|séparée?s par des virgules)\b",
    re.IGNORECASE,
)
_ONE_LINE: Final = compile_guarded(
    r"\b(?:in|on|as) (?:a single|one|exactly one) line\b|\bno "
    r"(?:line breaks|newlines)\b|\bwithout (?:line breaks|newlines)\b|\bin einer zeile\b|\ben una "
    r"(?:sola )?línea\b|\bsur une (?:seule )?ligne\b",
    re.IGNORECASE,
)
_PER_LINE: Final = compile_guarded(
    r"\bone (?:item |word |name |entry |number |per |\w+ )?(?:per"
    r"|on each|a) line\b|\beach on (?:a|its own|a new|a separate) (?:new )?line\b|\bein\w* pro"
    r" zeile\b|\bun[ao] por línea\b|\bune? par ligne\b",
    re.IGNORECASE,
)
_NO_LIST: Final = compile_guarded(
    r"\b(?:no|without|avoid|not use|don't use|do not"
    r" use)\b[^.]{0,20}\b(?:bullet points?|bullets|lists?)\b",
    re.IGNORECASE,
)
_NO_MARKDOWN: Final = compile_guarded(
    r"\b(?:no|without|avoid|not use|don't use|do not"
    r" use)\b[^.]{0,20}\bmarkdown\b|\bplain text(?: only)?\b",
    re.IGNORECASE,
)
_CODE_BLOCK: Final = compile_guarded(
    r"\b(?:in|inside|within) (?:an? )?(?:single |fenced |markdown"
    r" )?code block\b",
    re.IGNORECASE,
)
_COLUMNS: Final = compile_guarded(
    r"\b(?P<n>\d|two|three|four|five|six) columns?\b|\b(?P<x>\d)[-"
    r" ]column\b",
    re.IGNORECASE,
)


def layout_fault(sentences: list[str], reply: str) -> str | None:
    """Describe how a reply breaks a wish for its layout, or return None.

    Examples of wishes are `as a table`, `one item per line` and `no Markdown`.
    """
    text = reply.strip()
    rows = counting.lines(re.sub(r"```[^\n]*", "", text))
    for sentence in sentences:
        fault = (
            _wanted_table_fault(sentence, text)
            or _list_fault(sentence, text)
            or _line_fault(sentence, text, rows)
            or _mark_fault(sentence, text)
        )
        if fault:
            return fault
    return None


_IN_TABLE: Final = compile_guarded(
    r"\b(?:markdown|columns?|rows?|(?:as|in) an? (?:\w+ )?table)\b", re.IGNORECASE
)
_OTHER_TABLE: Final = compile_guarded(
    r"\b(?:html|latex|csv|sql|reserve|book|dinner|kitchen|create table|drop|join|database|which"
    r"|data"
    r"|given|below|above|following)\b",
    re.IGNORECASE,
)


def _wanted_table_fault(sentence: str, text: str) -> str | None:
    """Describe what is wrong with the table that a sentence asks for.

    None if nothing or no table is.
    """
    is_wanted = _TABLE.search(sentence) and _IN_TABLE.search(sentence)
    if not is_wanted or _OTHER_TABLE.search(sentence):
        return None
    return _table_fault(text, sentence)


def _list_fault(sentence: str, text: str) -> str | None:
    """Describe how a text breaks `as a numbered list`, `use bullet points` or `no lists`.

    Else None.
    """
    if _NUMBERED.search(sentence) and not re.search(r"^\W{0,4}\d{1,3}[.):]", text, re.MULTILINE):
        return "the reply is no numbered list"
    is_list = re.search(r"^[ \t]*[-*•+–·◦]\s*\S|^[ \t]*\d{1,3}[.)]", text, re.MULTILINE)
    if _BULLETED.search(sentence) and not is_list:
        return "the reply has no bullet points"
    if _NO_LIST.search(sentence) and len(counting.BULLET.findall(text)) > 1:
        return "the reply is a list"
    return None


_OTHER_COMMAS: Final = compile_guarded(
    r"\b(?:csv|file|values in|numbers? (?:are|is)|given|following|input)\b", re.IGNORECASE
)


def _line_fault(sentence: str, text: str, rows: list[str]) -> str | None:
    """Describe how a text breaks `separated by commas`, `on one line` or `one per line`.

    Else None. `rows` are the lines of the text that are not empty.
    """
    is_separated = len(rows) <= 2 or sum("," in row for row in rows) * 3 >= len(rows)
    if not is_separated and _COMMA.search(sentence) and not _OTHER_COMMAS.search(sentence):
        return "the reply is not separated by commas"
    if _ONE_LINE.search(sentence) and len(rows) > 1:
        return f"the reply has {len(rows)} lines, not one"
    is_one = len(rows) == 1 and len(counting.comma_items(text) or ()) > 2
    if is_one and _PER_LINE.search(sentence):
        return "the items are not one a line"
    return None


def _mark_fault(sentence: str, text: str) -> str | None:
    """Describe how a text breaks `no Markdown` or `in a code block`, or return None."""
    has_marks = re.search(r"\*\*[^*\n]+\*\*|^#{1,4} \S|^```", text, re.MULTILINE)
    if _NO_MARKDOWN.search(sentence) and has_marks:
        return "the reply has Markdown"
    is_code = "```" in text or re.search(r"^(?: {4}|\t)\S", text, re.MULTILINE) is not None
    if not is_code and _CODE_BLOCK.search(sentence):
        return "the reply has no code block"
    return None


_NAMED_COLUMNS: Final = compile_guarded(
    r"\b(?:columns?|spalten|columnas|colonnes)\s*:?\s+(?:(?:named|called|for) )?"
    r"(?P<c>[\w *`\"'()/-]{2,40}(?:(?:\s*[|,]\s*|\s+(?:and|und|y"
    r"|et)\s+)[\w *`\"'()/-]{2,40}?){1,8})"
    r"(?=[.;:,]|\s*$|\s+(?:with|and (?:no|nothing|\d)|for each)\b)",
    re.IGNORECASE,
)


def _cell(text: str) -> str:
    """Return a table's cell in lower case, without emphasis and quotes."""
    return re.sub(r"[*`\"']", "", text).strip().casefold()


def _table_fault(text: str, sentence: str) -> str | None:
    """Describe a missing table, unequal rows, or columns other than the sentence names.

    Else None.
    """
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
    named = _NAMED_COLUMNS.search(sentence)
    if named:
        wanted = [
            _cell(each) for each in re.split(r"\||,|\band\b|\bund\b|\by\b|\bet\b", named["c"])
        ]
        head = [_cell(each) for each in rows[0].strip("|").split("|")]
        missing = [each for each in wanted if each and each not in head]
        if len(wanted) > 1 and missing:
            return f'the table has no column "{missing[0]}"'
    columns = _COLUMNS.search(sentence)
    if columns:
        written = (columns["n"] or columns["x"]).casefold()
        number = counting.value_of(written)
        if widths[0] != number and re.search(
            r"\b(?:with|exactly|has|have|having)\b[^.]{0,20}columns?"
            r"|\bcolumn table\b",
            sentence,
            re.IGNORECASE,
        ):
            return f"the table has {widths[0]} columns, not {number}"
    return None


_ALPHABETICAL: Final = compile_guarded(
    r"\b(?:in )?(?:(?P<rev>reverse|reversed|descending) )?(?:alphabetical(?:ly)?|alphabetic)(?:"
    r" order)?\b|\balphabetisch\w*\b|\b(?:en )?orden alfabético\b|\balfabéticamente\b|\b(?:par"
    r" )?ordre alphabétique\b|\balphabétiquement\b",
    re.IGNORECASE,
)
_BY_LAST: Final = compile_guarded(
    r"\b(?:by|according to|on)(?: (?:the|their|his|her))? (?:last|family|sur)[- ]?names?\b"
    r"|\bnach (?:dem )?(?:nach|familien)namen\b|\bpor (?:el )?apellidos?\b|\bpar nom de famille\b",
    re.IGNORECASE,
)
_ITEM_LIST: Final = compile_guarded(
    r":\s*(?P<l>[^:\n]{3,400})\s*$|\bthe (?:words|names) "
    r"(?P<m>[^.?!:\n]{3,200}?) (?:in|into) alphabetical",
    re.IGNORECASE,
)


def order_verdict(instruction: str, reply: str) -> Verdict | None:
    """Judge the alphabetical order of a list; right only if it also has all items of a given list.

    An example is `Sort alphabetically: pear, fig, apple`. None without such a wish, for another
    kind of order, and for an ordered list without given items.
    """
    line = " ".join(instruction.split())
    found = _ALPHABETICAL.search(line)
    if (
        not found
        or len(line) > 700
        or re.search(
            r"\b(?:by (?:the )?(?:second|author|title)|letters (?:in|of)|function|python|code|sql"
            r"|explain|what is|why|how)\b",
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
    by_last = bool(_BY_LAST.search(line))
    if not by_last and re.search(r"\b(?:last|family) names?\b|\bsurnames?\b", line, re.IGNORECASE):
        return None
    keys = [_sort_key(item, by_last) for item in listed]
    is_reversed = bool(found["rev"])
    is_sorted = keys == sorted(keys, reverse=is_reversed)
    is_loosely = [key.removeprefix("the ") for key in keys] == sorted(
        (key.removeprefix("the ") for key in keys), reverse=is_reversed
    )
    item_list = _ITEM_LIST.search(line)
    items = counting.comma_items((item_list["l"] or item_list["m"]).strip()) if item_list else None
    if not is_sorted and not is_loosely:
        return Verdict(False, "the items are not in alphabetical order", "form")
    if items is None or len(items) < 3 or (not is_sorted and not is_loosely):
        return None
    wanted = sorted(_sort_key(item, by_last) for item in items)
    if sorted(keys) != wanted:
        missing = [item for item in items if _sort_key(item, by_last) not in keys]
        return Verdict(
            False, f'"{missing[0]}" is missing' if missing else "the list has other items", "form"
        )
    return Verdict(True, "the items are in alphabetical order", "form")


def _sort_key(item: str, by_last: bool = False) -> str:
    """Return the key by which an item is sorted: its words in lower case before a colon or dash.

    With `by_last`, the last word comes first, as for surnames.
    """
    head = re.split(r"\s*(?::|\s[-–—]\s|\()", item)[0]
    words = re.sub(r"[^\w\s]", "", head.casefold()).split()
    if by_last and words and "," not in head:
        words = [words[-1], *words[:-1]]
    return " ".join(words)
