"""The requirements of a request for its code: "case-insensitive", "standard library only" .."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from calibrator.readers.evidence.finding import Finding
from calibrator.text.guarded import GuardedPattern, compile_guarded

MAX_REQUEST: Final = 1_000  # characters; a longer request describes a problem in such words
_I: Final = re.IGNORECASE


@dataclass(frozen=True, slots=True)
class Requirement:
    """A wish of a request, and a pattern of code that fulfils it or, if `is_ban`, breaks it.

    `shift` is the finding's log-odds; `languages` are those that are checked, all if empty.
    """

    wish: GuardedPattern
    code: GuardedPattern
    reason: str
    shift: float
    languages: tuple[str, ...] = ()
    is_ban: bool = False


def _wish(text: str) -> GuardedPattern:
    """Return the guarded pattern of a wish in a request; only whole words match, in any case."""
    return compile_guarded(rf"(?<![\w-])(?:{text})(?![\w-])", _I)


def _code(text: str) -> GuardedPattern:
    """Return the guarded pattern of code; case is ignored, and `^` matches at each line."""
    return compile_guarded(text, _I | re.MULTILINE)


_REQUIREMENTS: Final = (
    Requirement(
        _wish(
            r"case[- ]?insensitiv\w*|ignor\w+ (?:the )?case|regardless of case|upper[/ -]+lower"
            r" ?case (?:doesn'?t|does not) matter|case (?:doesn'?t|does not) matter"
        ),
        _code(
            r"lower|upper|casefold|ignorecase|nocase|ilike|collate|/\w*i\w*\b|\(\?i|-\w*i|flags|fold"
        ),
        "the code tells upper from lower case",
        -1.5,
    ),
    Requirement(
        _wish(r"descending|(?:highest|largest|biggest|newest|latest|longest) (?:one |ones )?first"),
        _code(
            r"desc|reverse|\bb\b\S* - a\b|\by\b\S* - x\b|-r|-\w+\[|: ?-|-\(?len|nlargest|heap"
            r"|most_common|[a-z]2\S* - \w+1|>|localeCompare|right|second|next"
        ),
        "the order is not descending",
        -1.5,
    ),
    Requirement(
        _wish(r"(?:as |a |an |write |using )+generator(?: function)?"),
        _code(r"\byield\b|\bfor\b[^\n]*\bin\b[^\n]*\)|function\*"),
        "there is no generator",
        -2.5,
        ("python", "javascript"),
    ),
    Requirement(
        _wish(r"(?:with|using) (?:a )?list comprehensions?"),
        _code(r"\[[^\]]*\bfor\b"),
        "there is no list comprehension",
        -2.0,
        ("python",),
    ),
    Requirement(
        _wish(r"(?:add|with|include|using|use) (?:\w+ )?type (?:hints?|annotations?)"),
        _code(r"->|\w: ?\w"),
        "there are no type hints",
        -2.0,
        ("python",),
    ),
    Requirement(
        _wish(r"(?:add|with|include) (?:a )?docstrings?"),
        _code(r'"""|\'\'\''),
        "there is no docstring",
        -2.0,
        ("python",),
    ),
    Requirement(
        _wish(
            r"(?:only the )?standard library(?: only)?|std ?lib(?: only)?|no (?:external|third"
            r"[- ]party|extra|additional) (?:libraries|library|packages?|dependenc\w+|modules?)"
            r"|without (?:any )?(?:external|third[- ]party) \w+"
            r"|(?:no|nothing from) (?:pip|npm|pypi)(?: \w+)?"
            r"|nur (?:die )?standardbibliothek|solo (?:la )?biblioteca estándar"
            r"|sin (?:librerías|dependencias)(?: externas)?"
            r"|bibliothèque standard (?:uniquement|seule\w*)"
            r"|no libraries|keine (?:externen )?(?:bibliotheken|pakete)"
        ),
        _code(
            r"^[ \t]*(?:import|from) (?:numpy|pandas|requests|scipy|sklearn|torch|dateutil|pytz"
            r"|httpx|aiohttp|bs4|yaml|tqdm|pydantic)\b"
            r"|require\(['\"](?:lodash|axios|moment|underscore|node-fetch|express|dayjs|uuid|chalk)"
            r"|^[ \t]*import\b[^\n]*['\"](?:lodash|axios|moment|underscore|node-fetch|got|express"
            r"|dayjs|uuid|chalk|commander|yargs|date-fns|ramda|rxjs|superagent)\b[^'\"\n]*['\"]"
        ),
        "the code uses a library, which the request rules out",
        -2.5,
        is_ban=True,
    ),
    Requirement(
        _wish(r"without (?:using )?(?:a )?(?:loops?|for loops?)|no (?:for )?loops"),
        _code(r"^[ \t]*(?:for|while)\b"),
        "the code has a loop, which the request rules out",
        -2.0,
        ("python", "javascript"),
        is_ban=True,
    ),
    Requirement(
        _wish(r"without (?:using )?(?:regex\w*|regular expressions?|re module)|no regex\w*"),
        _code(r"\bimport re\b|\bre\.\w+\(|new RegExp|\.match\(/|\.replace\(/|\.test\("),
        "the code uses a regular expression, which the request rules out",
        -2.0,
        is_ban=True,
    ),
    Requirement(
        _wish(r"without (?:using )?(?:the )?(?:built-?in )?(?:sorted|sort|sorting functions?)"),
        _code(r"\bsorted\(|\.sort\("),
        "the code sorts with what the request rules out",
        -2.0,
        is_ban=True,
    ),
)
_NUMBERED: Final = compile_guarded(
    r"\b(?:from )?1 (?:to|through|up to|until|bis|a|à|-|–) (?P<n>\d{1,6})\b(?! ?%)", _I
)


def unmet_requirements(
    code: str, language: str, request: str, earlier: str = ""
) -> Iterator[Finding]:
    """Yield a finding for each wish of the request that its code does not fulfil.

    Examples are `standard library only` with `import numpy`, and `print 1 to 10` with `range(1,
    10)`. `earlier` are the user's earlier messages; what they ruled out stays ruled out. Requests
    above MAX_REQUEST characters are skipped, but for loops.
    """
    for each in _REQUIREMENTS if earlier and len(earlier) <= MAX_REQUEST else ():
        is_ban = each.is_ban and language in (each.languages or (language,))
        if is_ban and each.wish.search(earlier) and each.code.search(code):
            yield Finding(None, each.shift, each.reason)
    for each in _REQUIREMENTS if len(request) <= MAX_REQUEST else ():
        if each.languages and language not in each.languages:
            continue
        if each.wish.search(request) and bool(each.code.search(code)) == each.is_ban:
            yield Finding(None, each.shift, each.reason)
    found = _NUMBERED.search(request)
    if found and language in ("python", "javascript"):
        last = found["n"]
        short = rf"\brange\(\s*1\s*,\s*{last}\s*\)|= ?1; *(?P<i>\w+) < {last}\b;"
        if re.search(short, code) and not re.search(rf"\b{int(last) + 1}\b", code):
            yield Finding(False, -3.0, f"the loop ends before {last}")
    limit = _INCLUSIVE.search(request)
    if limit and language in ("python", "javascript"):
        n = re.escape(limit["n"] or limit["m"])
        short = rf"\brange\((?:[^(),\n]+,\s*)?{n}\s*(?:,[^()\n]+)?\)|= ?\w+; *(?P<i>\w+) < {n}\b;"
        if re.search(short, code) and not re.search(rf"\b{n} ?\+ ?1\b|<= ?{n}\b|\b{n}\]", code):
            yield Finding(False, -3.0, f"the loop ends before {n}")


_INCLUSIVE: Final = compile_guarded(
    r"\b(?:up to and including|(?:up )?to|through|bis einschließlich|hasta|jusqu'à)\s+`?"
    r"(?P<n>[a-z]\w{0,12})`?[ ,(]{1,2}(?:inclusive(?:ly)?|included|inklusive|incluido|inclus)\b"
    r"|\b(?:up to and including|bis einschließlich)\s+`?(?P<m>[a-z]\w{0,12})`?(?=[ ,.;)]|$)",
    _I,
)


_REGEX: Final = compile_guarded(
    r"\bre\.(?:match|search|compile|findall)\(\s*r?(?P<q>[\"'])(?P<p>[^\n]{2,300}?)(?P=q)\s*[,)]"
    r"|(?<![\w/])/(?P<j>[^/\n\s][^/\n]{2,200})/[gimsuy]*\.test\("
    r"|\b(?:const|let|var) \w+ = /(?P<k>[^/\n\s][^/\n]{2,200})/[gimsuy]*;?\s*$",
    re.MULTILINE,
)
_WHOLE: Final = compile_guarded(
    r"\b(?:fully|entire|whole|complete(?:ly)?|exactly|nothing else|only|valid(?:ate|ates|ation)?"
    r"|ganze[rsn]?|genau|nur)\b",
    _I,
)


_IS_ON_PATTERNS: Final = compile_guarded(r"\bregex|regular expression|\bpattern\b", _I)


def regex_bugs(reply: str, request: str) -> Iterator[Finding]:
    r"""Yield a finding if a pattern for a whole text lacks its end: `re.match(r"\d+", s)`.

    Only for requests of patterns that validate or match exactly.
    """
    if not _IS_ON_PATTERNS.search(request):
        return
    found = _REGEX.search(reply)
    if found and _WHOLE.search(request) and "fullmatch" not in reply:
        pattern = found["p"] or found["j"] or found["k"]
        if not pattern.rstrip(")").endswith(("$", r"\Z", r"\z")):
            yield Finding(None, -2.0, "the pattern also matches texts that go on behind it")


_INSIDE: Final = compile_guarded(
    r"\b(?:container|inside|nginx|app|image)\b[^.;\n]{0,40}?\b(?:listens?|listening|runs?|port|exposes?"
    r"|serves?)\b[^.;\n\d]{0,20}(?P<n>\d{2,5})\b|\bcontainer port (?P<m>\d{2,5})\b",
    _I,
)
_OUTSIDE: Final = compile_guarded(
    r"\b(?:my (?:machine|host|computer|laptop)|the host|localhost|host port"
    r"|outside)\b[^.;\n\d]{0,30}"
    r"(?P<n>\d{2,5})\b",
    _I,
)
_MAPPED: Final = re.compile(r"(?<![\d.:])(?P<a>\d{2,5}):(?P<b>\d{2,5})(?![\d:])")


def port_bugs(reply: str, request: str) -> Iterator[Finding]:
    """Yield a finding if a container's ports are reversed: `-p 80:8080` for port 80 inside.

    Only if the request names both the inner and the outer port.
    """
    inside, outside = _INSIDE.search(request), _OUTSIDE.search(request)
    if inside is None or outside is None or len(request) > MAX_REQUEST:
        return
    wanted = (outside["n"], inside["n"] or inside["m"])
    mapped = {(found["a"], found["b"]) for found in _MAPPED.finditer(reply)}
    if wanted[0] != wanted[1] and wanted not in mapped and wanted[::-1] in mapped:
        yield Finding(False, -3.0, f"the ports are reversed; it is {wanted[0]}:{wanted[1]}")
