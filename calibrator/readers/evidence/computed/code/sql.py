"""The check of SQL by a schema in the prompt: SQLite compiles it for an empty database.

The query is never executed. Where SQLite finds an error, the second half of the module decides
whether every usual dialect of SQL has that error.
"""

from __future__ import annotations

import re
import sqlite3
from typing import Final

from calibrator.readers.evidence.computed.basics.verdict import MAX_TEXT, Exchange, Verdict
from calibrator.readers.evidence.computed.basics.word_lists import word_set

MAX_TABLES: Final = 100
MAX_COLUMNS: Final = 300  # columns of one table
MAX_QUERY: Final = 10_000  # characters
_QUICK: Final = word_set(
    "sql sqlite query queries mysql postgres postgresql abfrage consulta requête"
)
_WANTED: Final = re.compile(
    r"\b(?:write|give|generate|create|return|provide|produce|need|show|formulate|build|output"
    r"|answer with|translate|convert|turn|what|which|schreibe|erstelle|escribe|écris"
    r"|rédige)\b[^.?!\n]{0,80}\b(?:sql|sqlite|postgres(?:ql)?|mysql|query|select statement|abfrage"
    r"|consulta|requête)\b"
    r"|\b(?:sql|sqlite)(?: query)?\s*(?::|to |for |that |which |-)|\btext[- ]to[- ]sql\b|\bin"
    r" sql\b|\b(?:reply|respond|answer) (?:only )?with (?:an? |the )?(?:sql|query)",
    re.IGNORECASE,
)
_NAME: Final = r"[\"`\[]?[A-Za-z_À-ÿ][\w$À-ÿ]*(?:\.[A-Za-z_][\w$]*)?[\"`\]]?"
_CREATE: Final = re.compile(
    r"\bcreate\s+(?:temp(?:orary)?\s+)?table\s+"
    rf"(?:if\s+not\s+exists\s+)?(?P<t>{_NAME})\s*\(",
    re.IGNORECASE,
)
_TABLE: Final = re.compile(
    rf"(?<![\w.])(?:table\s+|tabelle\s+|tabla\s+)?(?P<t>{_NAME})\s*\((?P<c>[^()\n]{{1,4000}}"
    rf"(?:\([^()\n]{{0,60}}\)[^()\n]{{0,400}}){{0,20}})\)",
    re.IGNORECASE,
)
_PROSE: Final = re.compile(
    rf"\btable\s+(?:called |named )?(?P<t>{_NAME})\s*(?:,?\s*(?:with|has|having|containing|which"
    r" has|that has)\s+(?:the )?(?:following )?(?:columns?|fields?|attributes)?|:)\s*:?\s*"
    rf"(?P<c>[A-Za-z_][^.;\n]{{1,1000}})",
    re.IGNORECASE,
)
_COLON: Final = re.compile(
    rf"^[\s*-]*(?:table\s+)?(?P<t>{_NAME})\s*(?::|->|—|–)\s*(?P<c>[A-Za-z_]\w*(?:\s*\([\w ,"
    rf"()]{{1,40}}\))?(?:\s*,\s*[A-Za-z_]\w*(?:\s*\([\w ,()]{{1,40}}\))?)+)\s*\.?$",
    re.IGNORECASE | re.MULTILINE,
)
_BULLETED: Final = re.compile(
    r"^[ \t]*(?:\*\*|#+ |table:? )?[`\"]?(?P<t>[A-Za-z_]\w*)[`\"]?(?:\*\*)?(?: table)?:?[ \t]*\n"
    r"(?P<c>(?:[ \t]*[-*•][ \t]+[^\n]{1,80}(?:\n|$)){2,60})",
    re.IGNORECASE | re.MULTILINE,
)
_TYPES: Final = re.compile(
    r"^(?:int(?:eger)?|bigint|smallint|text|varchar|char|nvarchar|string|date|datetime|timestamp"
    r"|time|bool(?:ean)?|float|real|double|decimal|numeric|number|money|serial|uuid|json|jsonb"
    r"|blob)\b",
    re.IGNORECASE,
)
_KEYWORDS: Final = word_set(
    "primary foreign unique check constraint key index select"
    " from where values count sum avg min max"
    " in and or not on using references with exists as e.g i.e insert into table columns"
)
_FENCE: Final = re.compile(r"```[ \t]*(?P<lang>\w*)[^\n]*\n(?P<code>.*?)(?:```|\Z)", re.DOTALL)
_STATEMENT: Final = re.compile(r"\b(?:select|with|insert|update|delete)\b", re.IGNORECASE)
_QUERY: Final = re.compile(
    r"\s*(?:select\b.{1,2000}?\bfrom\b|with\s+\w+\s+as\s*\(|delete\s+from\b|update\s+\w+\s+set\b)",
    re.IGNORECASE | re.DOTALL,
)
_FOREIGN: Final = re.compile(
    r"\b(?:ilike|interval|extract\s*\(|top\s*\(?\d|qualify|rollup|cube|grouping|lateral|unnest"
    r"|array|similar\s+to|regexp|rlike|fetch\s+(?:first|next)|date_trunc|pivot|generate_series"
    r"|minus\b|limit\s+all|for\s+update|straight_join|at\s+time\s+zone|within\s+group|any\s*\("
    r"|all\s*\(|some\s*\(|cast\s*\([^)]*\bas\s+\w+\s+\w|isnull|nolock|outer\s+apply|cross\s+apply"
    r"|convert\s*\(|separator|with\s+ties|tablesample|div\b|xor\b|position\s*\(|trim\s*\(\s*"
    r"(?:both|leading|trailing)|substring\s*\([^,)]*\bfrom)|::|:=|@\w|\$\d|\?|%s|:\w+|<[a-z_]+>"
    r"|\{\w*\}|#",
    re.IGNORECASE,
)

_TYPED: Final = re.compile(
    r"\b(?:date|time|timestamp)\s+(?=')", re.IGNORECASE
)  # the type of a literal

_ALLOWED: Final = frozenset(
    (
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_INSERT,
        sqlite3.SQLITE_UPDATE,
        sqlite3.SQLITE_DELETE,
        sqlite3.SQLITE_RECURSIVE,
    )
)
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


def verify_sql(exchange: Exchange) -> Verdict | None:
    """Judge whether the SQL of a reply fits the schema in the conversation.

    None unless it does not. None also if the reply has no single query, or the conversation
    describes no tables.
    """
    reply = exchange.reply[:MAX_TEXT]
    is_query = "```sql" in reply or _QUERY.match(reply) is not None
    if not is_query:
        if not _QUICK & exchange.vocabulary:
            return None
        if not any(map(_WANTED.search, (exchange.wishes[:MAX_TEXT], exchange.request[:2000]))):
            return None
    query = query_of(reply)
    if query is None or len(query) > MAX_QUERY:
        return None
    tables = schema_of(exchange.source[:MAX_TEXT])
    if not tables:
        return None
    fault = fault_of(query, tables, is_sqlite="sqlite" in exchange.folded_text)
    return Verdict(False, fault, "sql") if fault else None


def query_of(reply: str) -> str | None:
    """Return the SQL statement of a reply without comments; None unless there is exactly one."""
    blocks = [
        found["code"]
        for found in _FENCE.finditer(reply)
        if found["lang"].casefold() in ("", "sql", "sqlite", "postgresql", "mysql", "postgres")
    ]
    text = next((block for block in blocks if _STATEMENT.search(block)), None)
    if text is None:
        if "```" in reply:
            return None
        found = re.search(
            r"(?:^|\n|:\s+|`)\s*((?:select|with\s+\w+\s+as|insert\s+into"
            r"|update\s+\w|delete\s+from)\b.*)",
            reply,
            re.IGNORECASE | re.DOTALL,
        )
        if found is None:
            return None
        is_quoted = reply[: found.start(1)].endswith("`")
        end = r";|\n\s*\n|`" if is_quoted else r";|\n\s*\n"
        text = re.split(end, found[1], maxsplit=1)[0]
    text = re.sub(r"--[^\n]*", " ", text)
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    statements = [part for part in text.split(";") if part.strip()]
    if not statements or not _STATEMENT.match(statements[0].strip()):
        return None
    return statements[0].strip() if len(statements) == 1 else None


def schema_of(text: str) -> dict[str, list[str]]:
    """Return the columns of each table that a text describes; empty if it describes none.

    It reads CREATE TABLE, else `users(id, name)`, `users: id, name`, prose and bullets.
    """
    tables: dict[str, list[str]] = {}
    for found in _CREATE.finditer(text):
        columns = _created_columns(text, found.end())
        if columns:
            tables[_bare_name(found["t"])] = columns
    if tables:
        return tables
    for pattern in (_TABLE, _COLON, _PROSE):
        for found in pattern.finditer(text):
            name, columns = _bare_name(found["t"]), _listed_columns(found["c"])
            if columns and name.casefold() not in _KEYWORDS and name not in tables:
                tables[name] = columns
            if len(tables) >= MAX_TABLES:
                return tables
    for found in _BULLETED.finditer(text):
        listed = ", ".join(
            re.sub(r"^[ \t]*[-*•][ \t]+", "", line) for line in found["c"].splitlines()
        )
        columns = _listed_columns(listed)
        if columns:
            tables.setdefault(found["t"], columns)
    return tables


def _bare_name(name: str) -> str:
    """Return a table's name without its schema and quotes: `users` for `"public.users"`."""
    return name.split(".")[-1].strip('"`[] ')


def _created_columns(text: str, start: int) -> list[str]:
    """Return the columns of a CREATE TABLE whose parenthesis opens before `start`.

    Keys and constraints are left out; at most 8,000 characters are read.
    """
    depth, part, parts = 1, start, []
    for at in range(start, min(len(text), start + 8000)):
        character = text[at]
        if character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
        if depth == 0 or (depth == 1 and character == ","):
            parts.append(text[part:at])
            part = at + 1
        if depth == 0:
            break
    names = []
    for piece in parts[:MAX_COLUMNS]:
        plain = re.sub(r"--[^\n]*", " ", piece).strip()
        found = re.match(r"([\"`\[])(?P<q>[^\"`\]]+)[\"`\]]|(?P<n>[\w$]+)", plain)
        name = (found["q"] or found["n"]) if found else ""
        if name and name.casefold() not in _KEYWORDS:
            names.append(name)
    return names


def _listed_columns(text: str) -> list[str]:
    """Return the columns of a list such as `id, name TEXT, price (number)`.

    Empty if a piece is no column, or if only one word without an underscore is named.
    """
    text = re.sub(r"\([^()]*\)", " ", text)
    names: list[str] = []
    for piece in re.split(r",|;|\band\b|\bund\b|\by\b|\bet\b", text):
        words = piece.strip().strip("`\"'[]*").split()
        if not words:
            continue
        name = words[0].strip("`\"'[]:*")
        rest = " ".join(words[1:]).lstrip(":- ")
        if not re.fullmatch(r"[\w$]+", name) or (rest and not _is_remark(rest)):
            return []
        names.append(name)
    return names if len(names) > 1 or (names and "_" in names[0]) else []


def _is_remark(text: str) -> bool:
    """Return whether the text after a column's name is a type, a key or a description."""
    return bool(
        _TYPES.match(text)
        or re.match(
            r"(?:primary|foreign|unique|not null|pk\b|fk\b|references|->|→"
            r"|is\b|as\b|in\b)",
            text,
            re.IGNORECASE,
        )
    )


def fault_of(query: str, tables: dict[str, list[str]], *, is_sqlite: bool = False) -> str | None:
    """Describe why a query does not compile against `tables`, such as `there is no table users`.

    None if it compiles or if that is not clear. Unless SQLite was requested, only errors in every
    usual dialect are faults. `tables` has the columns of each table.
    """
    connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000_000)
        connection.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 100)
        connection.setlimit(sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 30)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.setlimit(sqlite3.SQLITE_LIMIT_VDBE_OP, 50_000)
        for name, columns in tables.items():
            unique = list({column.casefold(): column for column in columns}.values())
            listed = ", ".join(f'"{column}"' for column in unique[:MAX_COLUMNS])
            try:
                connection.execute(f'CREATE TABLE "{name}" ({listed})')
            except (sqlite3.Error, ValueError):  # a name may have half a surrogate pair
                return None
        connection.set_authorizer(_only_reads)
        try:
            connection.execute(f"EXPLAIN {query if is_sqlite else _TYPED.sub('', query)}")
        except sqlite3.Error as error:
            return _reason(str(error), query, tables, is_sqlite=is_sqlite)
        except (ValueError, sqlite3.Warning, MemoryError):
            return None
        return None
    finally:
        connection.close()


def _only_reads(action: int, *_: str | None) -> int:
    """Return whether SQLite may compile an action: SQLITE_OK or SQLITE_DENY.

    Denied are changes of the schema, attached files and options.
    """
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _reason(error: str, query: str, tables: dict[str, list[str]], *, is_sqlite: bool) -> str | None:
    """Describe SQLite's message `error` as a fault.

    None if another dialect may accept the query.
    """
    table = re.match(r"no such table: (?:\w+\.)?(.+)", error)
    if table:
        return None if may_be_table(table[1], query) else f"there is no table {table[1]}"
    is_foreign = _FOREIGN.search(query) is not None
    column = re.match(r"(?:no such column: |table \w+ has no column named )(.+)", error)
    if column:
        if is_foreign or may_be_column(column[1], query, tables):
            return None
        parts = column[1].strip('"').split(".")
        owner = _owner(parts[0], query, tables) if len(parts) > 1 else None
        known = list(tables) if owner is None else [owner]
        where = known[0] if len(known) == 1 else "any of the tables"
        return f"there is no column {parts[-1]} in {where}"
    if any(each in error for each in ("syntax error", "incomplete input", "unrecognized token")):
        if is_wrong_everywhere(query) or (is_sqlite and not is_foreign):
            return f"the SQL does not compile: {error}"
        return None
    if is_foreign:
        return None
    if error.startswith("ambiguous column name"):
        return f"the column {error.rpartition(' ')[2]} is ambiguous"
    if error.startswith("misuse of aggregate"):
        return f"the SQL does not compile: {error}"
    return None


def _owner(alias: str, query: str, tables: dict[str, list[str]]) -> str | None:
    """Return the table that has this name or, in the query, this alias; None without one."""
    for name in tables:
        if name.casefold() == alias.casefold():
            return name
        if re.search(
            rf"\b{re.escape(name)}[\"`\]]?\s+(?:as\s+)?{re.escape(alias)}\b", query, re.IGNORECASE
        ):
            return name
    return None


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
    """Return whether brackets are closed and clauses in order, such as WHERE before GROUP BY.

    `bare` is a query whose quoted parts are empty.
    """
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
    """Return whether a name may be a system table such as `pg_class` or a function of the query."""
    if _SYSTEM.fullmatch(name):
        return True
    return re.search(rf"\b{re.escape(name)}\s*\(", query, re.IGNORECASE) is not None


def may_be_column(name: str, query: str, tables: dict[str, list[str]]) -> bool:
    """Return whether a dialect may know a name that is no column of the tables.

    It may be a built-in word such as `rownum`, a typed literal as in `date '2025-01-01'`, a name
    that the query gives by AS, or a part of a record. `tables` has the columns of each table.
    """
    parts = [part.strip('"`[] ').casefold() for part in name.split(".")]
    if len(parts) == 1:
        escaped = re.escape(parts[0])
        return parts[0] in _BUILT_IN or bool(
            re.search(rf"\b{escaped}\s+'|\bas\s+[\"`\[]?{escaped}\b", query, re.IGNORECASE)
        )
    columns = {column.casefold() for listed in tables.values() for column in listed}
    return len(parts) > 2 or parts[0] in _ROW_TABLES or parts[0] in columns
