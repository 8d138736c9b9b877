"""Bugs of SQL that show without a schema, in view of the request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from calibrator.readers.evidence.finding import MAX_SHIFT, Finding
from calibrator.readers.evidence.number_words import NUMBER_WORDS

_FLAGS: Final = re.IGNORECASE | re.DOTALL
_COMMENT: Final = re.compile(r"--[^\n]*|/\*.{0,1000}?\*/", re.DOTALL)
_TEXT: Final = re.compile(r"'(?:[^']|'')*'")
_CLAUSE: Final = re.compile(
    r"\b(?:where|group\s+by|having|order\s+by|limit|union|intersect|except|window|returning"
    r"|qualify|offset|fetch)\b|;|\Z",
    _FLAGS,
)
_AGGREGATE: Final = re.compile(r"\b(?:sum|avg|count|min|max)\s*\(", _FLAGS)
_NULL: Final = re.compile(r"(?:[^<>!:]=|!=|<>)\s*null\b", _FLAGS)
_SETS: Final = re.compile(r"\bset\b[^;]{0,1000}?(?=\bwhere\b|;|\Z)", _FLAGS)
_UNLIMITED: Final = re.compile(
    r"^\s*(?P<v>delete\s+from|update)\s+[\w.\"`\[\]]+(?P<rest>.*)", _FLAGS
)
_ALL_ROWS: Final = re.compile(r"\b(?:all|every|each|entire|whole|empty|clear|truncate)\b", _FLAGS)
_LIMITS: Final = re.compile(
    r"\b(?:where|whose|who|that|which|with|older|newer|before|after|only|named|id|if|than|from"
    r"|without|inactive|expired)\b|\d",
    _FLAGS,
)
_EVEN_WITHOUT: Final = re.compile(
    r"\b(?:includ\w+|also|even|too|as well|keep|show\w*|list\w*|and|auch|incl\.?)\b[^.?!\n]{0,60}\b"
    r"(?:without|with no|who (?:have )?never|that (?:have )?never|which (?:have )?never"
    r"|that have no|who have no|with (?:zero|0)|with none|ohne|have(?:n't| not)|don't have"
    r"|do not have|no \w+ (?:yet|at all))\b|\b0 if none\b|\bzero if\b|\beven if\b",
    _FLAGS,
)
_LEFT_JOIN: Final = re.compile(
    r"\bleft\s+(?:outer\s+)?join\s+(?P<t>\w+)(?:\s+(?:as\s+)?(?!on\b|using\b)(?P<a>\w+))?", _FLAGS
)
_EITHER: Final = re.compile(
    r"\bwhere\b[^;()]{0,300}?(?:\b\w{1,64}\.)?(?P<a>\b\w{1,64})\s*(?:[<>=]{1,2}|\blike\b)"
    r"\s*\S{1,80}\s+or\s+(?:\w{1,64}\.)?(?P<b>\w{1,64})\s*(?:[<>=]|\blike\b)",
    _FLAGS,
)
_ALL_OF: Final = re.compile(
    r"\band\b[^.?!\n]{0,40}\b(?:only|also|that|which|who|whose|with|cost|are|is|have|has)\b|\bboth\b"
    r"|\bonly\b[^.?!\n]{0,60}\band\b|\bund\b[^.?!\n]{0,40}\b(?:nur|die|der|das|mit|deren)\b"
    r"|\by (?:solo|que|con)\b|\bet (?:seulement|qui|dont|avec)\b",
    _FLAGS,
)
_ANY_OF: Final = re.compile(
    r"\b(?:or|either|any|oder|o|ou|as well as|at least one|nor|except|unless|not|all)\b", _FLAGS
)
_DAYS_BETWEEN: Final = re.compile(
    r"(?<![\w.])(?P<c>[\w.]{1,128})\s+between\s+'\d{4}-\d\d-\d\d'\s+and\s+"
    r"'(?P<e>\d{4}-\d\d-\d\d)'",
    _FLAGS,
)
_OUTER: Final = re.compile(
    r"\b(?:left|right|full|outer)\b|\bnot\s+exists\b|\bunion\b|\bapply\b|\(\s*select\b", _FLAGS
)
_JOIN: Final = re.compile(r"\bjoin\b", _FLAGS)
_EACH: Final = re.compile(r"\b(?:for each|each|per|every|for every|by|pro|je|jede\w*)\b", _FLAGS)
_WINDOW: Final = re.compile(
    r"\b(?:row_number|rank|dense_rank)\s*\(\s*\)\s*over\s*\((?P<w>[^()]*)\)", _FLAGS
)
_FIRST: Final = re.compile(r"\b\w+\s*=\s*1\b", _FLAGS)
_HIGHEST: Final = re.compile(
    r"\b(?:highest|largest|biggest|latest|newest|most recent|most expensive|greatest|longest"
    r"|oldest first|descending|most)\b(?:[^.?!\n]{0,40}\bfirst\b)?",
    _FLAGS,
)
_LOWEST: Final = re.compile(
    r"\b(?:lowest|smallest|earliest|oldest|cheapest|shortest|least|fewest|ascending|first"
    r"|alphabetical\w*)\b",
    _FLAGS,
)
_ORDER: Final = re.compile(r"\border\s+by\s+(?P<o>[^;()]{0,300}?)(?=\blimit\b|\)|;|\Z)", _FLAGS)
_TOP: Final = re.compile(
    r"\b(?:top|first|last|latest|highest|biggest|largest|best|only)\s+(?P<n>\d{1,3}|three|five|ten)"
    r"\b|\b(?P<m>\d{1,3}|three|five|ten)\s+(?:most|highest|latest|biggest|largest|best|newest"
    r"|cheapest|lowest|oldest)\b",
    _FLAGS,
)
_LIMIT: Final = re.compile(
    r"\blimit\s+(?P<n>\d+)|\bfirst\s+(?P<f>\d+)\s+rows|\btop\s*\(?(?P<t>\d+)", _FLAGS
)
_ITEM: Final = re.compile(r",(?![^()]*\))")
_SELECT: Final = re.compile(
    r"^\s*select\s+(?:distinct\s+)?(?P<s>[^;]*?)\bfrom\b(?P<rest>.*)", _FLAGS
)
_GROUP: Final = re.compile(
    r"\bgroup\s+by\s+(?P<g>[^;]{0,300}?)(?=\bhaving\b|\border\b|\blimit\b|;|\Z)", _FLAGS
)


def query_bugs(code: str, request: str) -> Iterator[Finding]:
    """Yield the findings against the SQL of a reply, at most 20 statements.

    The request decides some.
    """
    text = _TEXT.sub("''", _COMMENT.sub(" ", code))
    for query in [part.strip() for part in text.split(";")][:20]:
        if query:
            yield from _conditions(query)
            yield from _find_unlimited(query, request)
            yield from _lost_rows(query, request)
            yield from _windows(query, request)
            yield from _order(query, request)
            yield from _find_ungrouped(query)
            yield from _loose(query, request)
    yield from _short_month(_COMMENT.sub(" ", code), request)


def _certain_bug(reason: str) -> Finding:
    """Return a finding that proves the reply wrong, for this reason."""
    return Finding(False, -MAX_SHIFT, reason)


def _conditions(query: str) -> Iterator[Finding]:
    """Find an aggregate in WHERE (`WHERE count(*) > 3`) and a comparison such as `x = NULL`."""
    for found in list(re.finditer(r"\bwhere\b", query, re.IGNORECASE))[:10]:
        end = _CLAUSE.search(query, found.end())
        clause = query[found.end() : end.start() if end else len(query)]
        bare = clause.partition("(select")[0] if "(select" in clause.lower() else clause
        if "(select" not in clause.lower() and "( select" not in clause.lower():
            aggregate = _AGGREGATE.search(bare)
            if aggregate and _depth(query, found.start()) <= _depth(query, aggregate.start()):
                yield _certain_bug("an aggregate is in WHERE; it belongs in HAVING")
                break
    without_set = _SETS.sub(" ", query) if query[:6].lower() == "update" else query
    if _NULL.search(without_set) and not re.match(
        r"\s*(?:declare|set|create|alter)\b", query, _FLAGS
    ):
        yield _certain_bug("a comparison with NULL by = is never true")


def _depth(text: str, at: int) -> int:
    """Return the number of parentheses that are open at a position."""
    return text.count("(", 0, at) - text.count(")", 0, at)


def _find_unlimited(query: str, request: str) -> Iterator[Finding]:
    """Find a DELETE or UPDATE without WHERE.

    It is a certain bug if the request limits the rows, as in `users older than 30`.
    """
    found = _UNLIMITED.match(query)
    if found is None or re.search(r"\bwhere\b|\bjoin\b|\bfrom\b|\blimit\b", found["rest"], _FLAGS):
        return
    verb = found["v"].split()[0].upper()
    if not _ALL_ROWS.search(request) and _LIMITS.search(request):
        yield _certain_bug(f"{verb} without WHERE changes all rows")
    else:
        yield Finding(None, -0.5, f"{verb} without WHERE changes all rows")


def _lost_rows(query: str, request: str) -> Iterator[Finding]:
    """Find joins that lose rows without a partner although the request wants them too.

    An example is an inner JOIN for `all customers, also those without orders`.
    """
    if not _EVEN_WITHOUT.search(request) or not _JOIN.search(query):
        return
    if not _OUTER.search(query):
        yield _certain_bug("the inner join leaves out rows without a partner")
        return
    joined = list(_LEFT_JOIN.finditer(query))
    where = re.search(r"\bwhere\b", query, re.IGNORECASE)
    if len(joined) == 1 and where is not None and where.start() > joined[0].end():
        end = _CLAUSE.search(query, where.end())
        clause = query[where.end() : end.start() if end else len(query)]
        alias = re.escape(joined[0]["a"] or joined[0]["t"])
        if (
            re.search(rf"\b{alias}\.\w+\s*(?:[<>=]|!=|\blike\b|\bbetween\b|\bin\b)", clause, _FLAGS)
            and not re.search(rf"\b{alias}\.\w+\s+is\s+null\b", clause, _FLAGS)
            and "(select" not in query.lower()
        ):
            yield _certain_bug(f"WHERE leaves out rows without a partner in {joined[0]['t']}")
            return
    if (
        re.search(r"\bleft\b", query, _FLAGS)
        and re.search(r"\bcount\s*\(\s*\*\s*\)", query, _FLAGS)
        and not re.search(r"\(\s*select\b|\bwith\b", query, _FLAGS)
    ):
        yield Finding(None, -2.0, "COUNT(*) counts rows without a partner as one")


def _loose(query: str, request: str) -> Iterator[Finding]:
    """Find `WHERE a = 1 OR b = 2` although the request wants rows that fulfil both conditions."""
    found = _EITHER.search(query)
    request = re.split(r"\bcreate\s+table\b|```", request, maxsplit=1, flags=_FLAGS)[0]
    if found is None or found["a"].lower() == found["b"].lower() or len(request) > 600:
        return
    if _ALL_OF.search(request) and not _ANY_OF.search(request):
        yield _certain_bug("the conditions are joined by OR; the request wants all of them")


def _short_month(code: str, request: str) -> Iterator[Finding]:
    """Find `BETWEEN '2024-01-01' AND '2024-01-31'` for a column of times: it loses the last day.

    Only if the request gives the column's type.
    """
    found = _DAYS_BETWEEN.search(code)
    if found is None or re.search(r"\bdate\s*\(|::\s*date|cast\s*\(", code, _FLAGS):
        return
    column = found["c"].rpartition(".")[2]
    is_time = rf"\b{re.escape(column)}\W{{1,3}}(?:datetime|timestamp)"
    if re.search(is_time, request, _FLAGS) and "00" not in found["e"]:
        yield _certain_bug(f"BETWEEN ends at the first second of {found['e']}")


def _windows(query: str, request: str) -> Iterator[Finding]:
    """Find a first rank over all rows, without PARTITION, although each group has its own."""
    for found in list(_WINDOW.finditer(query))[:5]:
        if (
            "partition" not in found["w"].lower()
            and _EACH.search(request)
            and _FIRST.search(query[found.end() :])
        ):
            yield _certain_bug("the rank is over all rows and not for each group")


def _order(query: str, request: str) -> Iterator[Finding]:
    """Find a limit or an order other than the one requested.

    Examples are `LIMIT 5` for the top 3, and ascending order for the highest.
    """
    wanted = _TOP.search(request)
    limit = _LIMIT.search(query)
    if wanted and limit:
        name = (wanted["n"] or wanted["m"]).lower()
        number = NUMBER_WORDS.get(name) or int(name)
        rows = int(limit["n"] or limit["f"] or limit["t"])
        if rows != number and len(re.findall(r"\blimit\b", query, _FLAGS)) == 1:
            yield Finding(None, -1.5, f"the query is limited to {rows} rows, not {number}")
    order = list(_ORDER.finditer(query))
    is_first_only = limit or (_FIRST.search(query) and _WINDOW.search(query))
    if not order or not is_first_only or "," in order[0]["o"] or "(" in request[:0]:
        return
    is_descending = bool(re.search(r"\bdesc\b", order[0]["o"], _FLAGS))
    is_high, is_low = bool(_HIGHEST.search(request)), bool(_LOWEST.search(request))
    if is_high != is_low and is_high != is_descending and len(order) == 1:
        yield Finding(None, -1.5, "the order is the reverse of the one requested")


def _find_ungrouped(query: str) -> Iterator[Finding]:
    """Find a plain column beside an aggregate without GROUP BY: `SELECT name, sum(x) FROM t`."""
    found = _SELECT.match(query)
    if (
        found is None
        or len(query) > 4_000
        or re.search(r"\bover\s*\(|\bselect\b", query[7:], _FLAGS)
    ):
        return
    items = [each.strip() for each in _ITEM.split(found["s"])]
    plain = [each for each in items if re.fullmatch(r"[\w.\"`]+(?:\s+as\s+\w+)?", each, _FLAGS)]
    if not any(_AGGREGATE.match(each) for each in items) or not plain:
        return
    group = _GROUP.search(found["rest"])
    if group is None:
        yield Finding(None, -1.0, f"{plain[0]} is neither grouped nor aggregated")
