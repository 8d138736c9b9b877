"""The decision whether an error of SQLite is an error in every usual dialect of SQL."""

from __future__ import annotations

import re
from typing import Final

from calibrator.readers.evidence.computed.basics.word_lists import word_set

# Names that a dialect may accept as a value or an argument although no table has such a column.
_BUILT_IN: Final = word_set(
    "rownum rowid sysdate systimestamp getdate true false level user session_user current_user"
    " current_role current_date current_time current_timestamp localtime localtimestamp default"
    " date time datetime timestamp timestamptz interval value ctid oid xmin nextval connect_by_root"
    " microsecond millisecond second minute hour day dayofweek dayofyear weekday week isoweek month"
    " quarter year isoyear decade century epoch dow doy ss mi hh dd wk mm qq yy yyyy"
    " _partitiontime monday sunday _partitiondate _table_suffix"
    " minvalue maxvalue int integer string text float64"
)
_ROW_TABLES: Final = word_set("inserted deleted excluded new old values target source")
_SYSTEM: Final = re.compile(
    r"(?:dual|generate_series|sqlite_master|information_schema|pg_\w+|sys\w*|all_\w+|user_\w+"
    r"|inserted|deleted|excluded|new|old)",
    re.IGNORECASE,
)
_QUOTED: Final = re.compile(r"'(?:[^'\\]|''|\\.)*'|\"[^\"]*\"|`[^`]*`", re.DOTALL)
_OTHER_QUOTES: Final = re.compile(r"\\'|\$\$|\$\w+\$|\b[qr]'|\"\"\"", re.IGNORECASE)
_BROKEN: Final = re.compile(
    r"(?:\b(?:select|where|and|or|not|on|by|join|from|having|set|between|like|limit)|[=<>,+*/(])\s*\Z"
    r"|,\s*[,)]|\(\s*,|\bfrom\s+(?:from|where)\b|\bwhere\s+(?:where|and|or|group|order)\b"
    r"|\b(?:and|or)\s+(?:and|or)\b|\bjoin\s+(?:on|where)\b|\b(?:group|order)\s+by\s+(?:having|limit|,)"
    r"|\bselect\s+(?!distinct\b|all\b|top\b|sql_|straight_join\b)\w+\s+(?:avg|sum|count|min|max)\s*\(",
    re.IGNORECASE,
)
_STRUCTURE: Final = re.compile(
    r"[()]|\b(?:select|union|intersect|except|minus|when|where|group\s+by|having|order\s+by"
    r"|limit)\b",
    re.IGNORECASE,
)
_ORDER: Final = {"where": 1, "group": 2, "having": 3, "order": 4, "limit": 5}


def is_wrong_everywhere(query: str) -> bool:
    """Return whether a query breaks a rule of syntax that all usual dialects share.

    Such errors are brackets and quotation marks that are not closed, a clause without content, and
    clauses in a wrong order. True is certain; False only means that a dialect may accept the query.
    """
    if _OTHER_QUOTES.search(query) or "|>" in query:
        return False
    bare = _QUOTED.sub("''", query).strip()
    if bare.replace("''", "").count("'"):
        return True
    return _BROKEN.search(bare) is not None or not _has_order(bare)


def _has_order(bare: str) -> bool:
    """Return whether brackets are closed and the clauses of each query are in order."""
    ranks = [0]
    for found in _STRUCTURE.finditer(bare):
        word = found[0].split()[0].casefold()
        if word == "(":
            ranks.append(0)
        elif word == ")":
            ranks.pop()
            if not ranks:
                return False
        elif word in _ORDER:
            if _ORDER[word] < ranks[-1]:
                return False
            ranks[-1] = _ORDER[word]
        else:
            ranks[-1] = 0  # another query begins
    return len(ranks) == 1


def may_be_table(name: str, query: str) -> bool:
    """Return whether a name may be a table of the system or a function that returns rows."""
    if _SYSTEM.fullmatch(name):
        return True
    return re.search(rf"\b{re.escape(name)}\s*\(", query, re.IGNORECASE) is not None


def may_be_column(name: str, query: str, tables: dict[str, list[str]]) -> bool:
    """Return whether a dialect may know a name that is no column of the tables.

    It may be a unit of time, a typed literal such as DATE '2025-01-01', the name of a result that
    the query defines, or a part of a column that is a record.
    """
    parts = [part.strip('"`[] ').casefold() for part in name.split(".")]
    if len(parts) == 1:
        escaped = re.escape(parts[0])
        return parts[0] in _BUILT_IN or bool(
            re.search(rf"\b{escaped}\s+'|\bas\s+[\"`\[]?{escaped}\b", query, re.IGNORECASE)
        )
    columns = {column.casefold() for listed in tables.values() for column in listed}
    return len(parts) > 2 or parts[0] in _ROW_TABLES or parts[0] in columns
