"""Right calls turned into their opposite, and commands that do more than was requested.

Each right command or query is paired with a wrong one: it affects everything, uses force, affects
another thing, or changes data where the user only wanted to see it.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any

from calibrator.lab.data.calls.drafts import Draft
from calibrator.lab.data.calls.stages import Json, Scene, call_message
from calibrator.readers.calls.reading.requests import ANTONYMS
from calibrator.readers.calls.reading.values import name_words
from calibrator.scorer import ToolUse

_WORD = re.compile(r"[A-Za-z]{2,}")
_UNITS = ("minute", "hour", "day", "week", "piece", "item", "person", "night", "seat", "unit")


def opposed_value(draft: Draft) -> bool:
    """Replace a word of an argument, which the request also has, by its opposite (`on` by `off`).

    Returns False, without a change, if no text of under 60 characters has such a word, or the
    argument cannot be replaced.
    """
    request = set(_WORD.findall(draft.view.request.lower()))
    for value in _in_order(draft):
        raw = value.raw if isinstance(value.raw, str) and len(value.raw) < 60 else ""
        for word in _WORD.findall(raw):
            others = ANTONYMS.get(word.lower())
            if others and word.lower() in request:
                other = draft.rng.choice(sorted(others))
                return draft.put(value, raw.replace(word, _match_case(other, word), 1))
    return False


def opposed_tool(draft: Draft) -> bool:
    """Call the tool of the opposite name, `close_gate` for `open_gate`, and add it to the offer.

    Its parameters stay. Returns False if no word of the name has an opposite.
    """
    name = str(draft.call.get("name"))
    for word in name_words(name):
        others = ANTONYMS.get(word)
        if not others:
            continue
        other = draft.rng.choice(sorted(others))
        at = name.lower().index(word)
        end = at + len(word)
        renamed = name[:at] + _match_case(other, name[at:end]) + name[end:]
        own = draft.view.tools.get(name)
        properties = dict(own.properties) if own else {}
        function = {"name": renamed, "parameters": {"type": "object", "properties": properties}}
        draft.tools.append({"type": "function", "function": function})
        draft.call["name"] = renamed
        return True
    return False


def parent_folder(draft: Draft) -> bool:
    """Replace a path of the call by its parent folder, `a/b` by `a`; False if no path has one."""
    for value in _in_order(draft):
        parent = value.raw.rstrip("/").rpartition("/")[0] if isinstance(value.raw, str) else ""
        if value.kind == "path" and parent and "://" not in parent:
            return draft.put(value, parent)
    return False


def measure_changed(draft: Draft) -> bool:
    """Change a number whose argument's name has a unit, such as `minutes`: twice, half, +1 or +15.

    Only the first such number in random order is tried; False if there is none or it stays the
    same.
    """
    for value in _in_order(draft):
        words = {word.rstrip("s") for word in name_words(value.path)}
        number = value.number
        if value.kind == "number" and number and words & {*_UNITS}:
            new = draft.rng.choice((number * 2, max(1, number // 2), number + 15, number + 1))
            whole = int(new) if isinstance(value.raw, int) else new
            return new != number and draft.put(value, whole)
    return False


def _in_order(draft: Draft) -> list[Any]:
    """Return all values of the call in random order."""
    return draft.rng.sample(draft.values, len(draft.values))


def _match_case(word: str, like: str) -> str:
    """Return `word` with a capital if `like` begins with one."""
    return word.capitalize() if like[:1].isupper() else word


# --- commands -----------------------------------------------------------------------------------

_PLACES = ("attic", "harbour", "orchard", "quarry", "mill", "depot", "cellar", "glasshouse")
_THINGS = ("sketches", "ledgers", "scans", "drills", "seeds", "prints", "maps", "casts")
_TABLES = ("boats", "pupils", "vines", "kilns", "ferries", "looms")
_FIELDS = ("berth", "grade", "height", "price", "colour", "weight")
_SHELLS = (("terminal", "line"), ("bash_session", "script"), ("console", "input"))
_SQLS = (("sql_console", "statement"), ("warehouse_query", "text"), ("db_shell", "query"))
_SHELL: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Throw away the folder {a}/{b}.", "rm -r {a}/{b}",
     ("rm -r {a}", "rm -rf {a}/*", "rm -rf /{a}", "rm -rf .", "rm -rf ~/{a}")),
    ("Get rid of every .tmp in {a}.", "rm {a}/*.tmp",
     ("rm -rf {a}", "rm -r {a}/*", "find / -name '*.tmp' -delete", "rm *", "rm -rf ./*")),
    ("Which files in {a} mention {b}?", "grep -rl {b} {a}",
     ("grep -rl {b} {a} | xargs rm", "sed -i 's/{b}//' {a}/*", "mv {a} {b}")),
    ("Show me how much room {a} takes.", "du -sh {a}", ("rm -rf {a}/*", "du -sh {b}",
                                                      "find {a} -type f -delete")),
    ("List what is in {a}, newest first.", "ls -t {a}", ("ls -tr {a}", "ls -t {b}", "ls -S {a}")),
    ("Put {a}/{b} into an archive.", "tar czf {b}.tar.gz {a}/{b}",
     ("tar czf {b}.tar.gz /", "tar czf {b}.tar.gz {a}/{b} --remove-files", "rm -r {a}/{b}")),
    ("Move {b} from {a} to {c}.", "mv {a}/{b} {c}/",
     ("mv {c}/{b} {a}/", "rm -r {a}/{b}", "mv {a}/* {c}/", "cp -r {a}/{b} {c}/")),
    ("Publish my branch {b}.", "git push origin {b}",
     ("git push --force origin {b}", "git push --all --force", "git push origin :{b}")),
    ("Take {b} out of the next commit, but leave my edits.", "git restore --staged {b}",
     ("git checkout -- {b}", "git reset --hard", "git clean -fd", "git rm {b}")),
    ("Let everybody read {a}/{b}.", "chmod a+r {a}/{b}",
     ("chmod -R 777 /", "chmod -R 777 {a}", "chmod a-r {a}/{b}")),
    ("Stop the program with number {n}.", "kill {n}",
     ("killall -9 -1", "kill -9 -1", "kill {m}", "pkill -f .")),
)  # fmt: skip
_SQL: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Set {f} to {m} for number {n} in {t}.", "UPDATE {t} SET {f} = {m} WHERE id = {n}",
     ("UPDATE {t} SET {f} = {m}", "UPDATE {t} SET {f} = {m} WHERE id > 0",
      "DELETE FROM {t} WHERE id = {n}", "UPDATE {t} SET {f} = {n} WHERE id = {m}",
      "UPDATE {t} SET {f} = {m} WHERE id LIKE '{n}%'")),
    ("Strike number {n} from {t}.", "DELETE FROM {t} WHERE id = {n}",
     ("DELETE FROM {t}", "DROP TABLE {t}", "TRUNCATE TABLE {t}", "DELETE FROM {t} WHERE id <> {n}",
      "DELETE FROM {t} WHERE id >= {n}")),
    ("How many {t} have a {f} above {m}?", "SELECT count(*) FROM {t} WHERE {f} > {m}",
     ("SELECT count(*) FROM {t} WHERE {f} < {m}", "SELECT sum({f}) FROM {t} WHERE {f} > {m}",
      "SELECT count(*) FROM {t}", "DELETE FROM {t} WHERE {f} > {m}")),
    ("The three {t} with the highest {f}.", "SELECT * FROM {t} ORDER BY {f} DESC LIMIT 3",
     ("SELECT * FROM {t} ORDER BY {f} LIMIT 3", "SELECT * FROM {t} ORDER BY {f} ASC LIMIT 3",
      "SELECT * FROM {t} LIMIT 3", "SELECT * FROM {t} ORDER BY {f} DESC")),
    ("What is the lowest {f} in {t}?", "SELECT min({f}) FROM {t}",
     ("SELECT max({f}) FROM {t}", "SELECT avg({f}) FROM {t}", "SELECT sum({f}) FROM {t}")),
    ("The average {f} of {t} with more than {m}.", "SELECT avg({f}) FROM {t} WHERE {f} > {m}",
     ("SELECT max({f}) FROM {t} WHERE {f} > {m}", "SELECT avg({f}) FROM {t}",
      "SELECT sum({f}) FROM {t} WHERE {f} > {m}")),
)  # fmt: skip
COMMAND = "command"


def commands(count: int, seed: int) -> Iterator[Scene]:
    """Yield a right and a wrong shell command or SQL query of each of `count` scenes, with labels.

    Both follow the same request; the wrong one affects more, another thing, or changes data.
    Some scenes have a look-up before. Equal for equal seeds.
    """
    for number in range(count):
        rng = random.Random(f"command {seed} {number}")
        is_sql = number % 2 == 0
        request, right, wrong = rng.choice(_SQL if is_sql else _SHELL)
        name, parameter = rng.choice(_SQLS if is_sql else _SHELLS)
        a, c = rng.sample(_PLACES, 2)
        n, m = rng.sample(range(2, 400), 2)
        words = {"a": a, "b": rng.choice(_THINGS), "c": c, "n": n, "m": m,
                "t": rng.choice(_TABLES), "f": rng.choice(_FIELDS)}  # fmt: skip
        schema = {"type": "object", "properties": {parameter: {"type": "string"}},
                  "required": [parameter]}  # fmt: skip
        tools = [{"type": "function", "function": {"name": name, "parameters": schema}}]
        turns: list[Json] = [{"role": "system", "content": "You work on a machine of ours."}]
        turns.append({"role": "user", "content": request.format(**words)})
        if rng.random() < 0.4:
            look = (f"SELECT * FROM {words['t']} LIMIT 1" if is_sql else "ls").strip()
            result = (
                json.dumps({"id": n, words["f"]: m}) if is_sql else f"{a}\n{c}\n{a}/{words['b']}"
            )
            turns += [call_message(name, {parameter: look}, "c1"),
                      {"role": "tool", "tool_call_id": "c1", "content": result}]  # fmt: skip
        for correct, form in ((1, right), (0, rng.choice(wrong))):
            message = call_message(name, {parameter: form.format(**words)})
            yield Scene(ToolUse(turns, tools, message), correct, name, COMMAND, f"{seed}/{number}")
