"""The check of requested JSON: whether it parses and has the prompt's keys, types and choices."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from calibrator.readers.evidence.computed.basics.verdict import (
    MAX_SOURCE,
    MAX_TEXT,
    Exchange,
    Verdict,
)
from calibrator.readers.evidence.computed.structured.json_days import fault_of_days
from calibrator.readers.evidence.computed.structured.json_key_faults import (
    fault_of_labels,
    fault_of_remarks,
)
from calibrator.readers.evidence.computed.structured.json_relations import fault_of_relations
from calibrator.readers.evidence.computed.structured.json_requests import (
    JsonRequest,
    read_request,
    split_data,
)
from calibrator.readers.evidence.computed.structured.json_shapes import keys_at_any_depth, plain_key
from calibrator.readers.evidence.computed.structured.json_sources import wants_writing
from calibrator.readers.evidence.computed.structured.json_values import (
    SourceText,
    fault_of_quotes,
    fault_of_values,
    leaves,
)

MAX_DEPTH: Final = 50
_WISH: Final = re.compile(
    r"\b(?:return|reply|respond|answer|output|extract|give|produce|convert|turn|format|provide"
    r"|generate|write|create|parse|make|present|put|list|represent|express|wrap|use|send|emit|pull"
    r"|transform|read|fill|encode|gib|antworte|extrahiere|erzeuge|wandle|devuelve|responde|extrae"
    r"|convierte|renvoie|réponds|extrais|donne|want|need|must be|should"
    r" be)\b[^.?!\n]{0,140}?\bjson\b"
    r"|\b(?:nur|only|just|solo|sólo|seulement|uniquement) "
    r"(?:the |das |ein |el |un |le |du |en |als )*json\b|\bausgabe\b[^.?!\n]{0,60}\bjson\b"
    r"|\b(?:compact|minified|plain|strict|pretty(?:-printed)?) json\b"
    r"|\b(?:as|in|into|to|als|en|como) (?:an? |valid |a valid |pure |raw |ein |un )*json\b|\bjson "
    r"(?:only|format|object|array|output|response|reply|schema)\b|^json\b|\bjson\s*:",
    re.IGNORECASE | re.MULTILINE,
)
_ABOUT: Final = re.compile(
    r"\b(?:what is|what's|what are|explain|difference|how (?:do|does|can|to|would|should)|why"
    r"|function|script|program|python|javascript|typescript|java|node|library|api|endpoint|schema"
    r" for|file|parser|parsing|sql|class|code that|regex|curl|debug|error|validate|fix|is this"
    r"|minify|pros and cons|compare|yaml)\b",
    re.IGNORECASE,
)
_ONLY: Final = re.compile(
    r"\b(?:only|just|nothing else|nothing but|solely|exclusively|no (?:other|extra|additional"
    r"|further) (?:text|words|output|commentary|content|characters?)"
    r"|parsed by (?:a|the|our) (?:program|machine|parser|script|code|tool|application)"
    r"|no (?:text|prose|explanation|explanations|commentary|comments|markdown|preamble)"
    r"|without (?:any )?(?:explanation|other text|additional text|markdown|commentary)"
    r"|(?:do not|don't) (?:add|include|write|output) (?:any|anything)"
    r"|nur|ausschließlich|solo|sólo|únicamente|uniquement|seulement|rien d'autre)\b",
    re.IGNORECASE,
)
_BARE: Final = re.compile(
    r"\b(?:no|without|not? use|avoid|omit|skip)\b[^.\n]{0,25}\b(?:markdown|code (?:fences?"
    r"|blocks?)|backticks|fences?)\b|\braw json\b",
    re.IGNORECASE,
)
_CODE: Final = re.compile(  # a program, which may mention JSON
    r"```[ \t]*(?!json)[a-z][\w+#]*[ \t]*\n|^(?:def|class|import|from|const|let|function|public"
    r"|func|package|use|#include|async) [\w{*<]",
    re.MULTILINE | re.IGNORECASE,
)
_CONDITIONAL: Final = re.compile(
    r"\b(?:if|when|whenever|unless)\b[^.\n]{0,80}\bjson\b"
    r"|\bjson\b[^.\n(]{0,60}\b(?:if|when|unless)\b",  # not in a remark on a key
    re.IGNORECASE,
)
_FENCED: Final = re.compile(
    r"```[ \t]*(?:json[c5]?)?[^\n]*\n(?P<code>.*?)(?:\n?[ \t]*```"
    r"|\Z)",
    re.DOTALL | re.IGNORECASE,
)

MAX_LEAVES: Final = 200
_TRANSLATES: Final = re.compile(
    r"\b(?:translat\w+|locali[sz]\w+|übersetz\w*|tradu[ciz]\w*)", re.IGNORECASE
)
_FIXED: Final = re.compile(
    r"\{\{?[\w. ]{0,40}\}?\}|\$\{\w{1,40}\}|%(?:\(\w{1,40}\))?[sdf@]|</?[a-zA-Z]\w{0,20}\s?/?>"
)


def verify_json(exchange: Exchange) -> Verdict | None:
    """Judge a reply that must be JSON; only a wrong one gives a verdict, else None."""
    rules = exchange.conversation.rules[:MAX_TEXT]
    request = exchange.request[:MAX_TEXT]
    if "json" not in exchange.folded_text:
        return _judge_unnamed(exchange, rules, request)
    if _CODE.search(exchange.reply[:MAX_TEXT]):
        return None
    is_in_rules = bool(_WISH.search(rules)) and not _CONDITIONAL.search(rules)
    own = _first_sentences(exchange.instruction[:MAX_TEXT], request)
    is_in_request = bool(_WISH.search(own)) and not _ABOUT.search(own)
    if not is_in_rules and not is_in_request:
        return _judge_unnamed(exchange, rules, request)
    return judge_json(exchange, rules if is_in_rules else "", is_in_request=is_in_request)


def _judge_unnamed(exchange: Exchange, rules: str, request: str) -> Verdict | None:
    """Judge a reply in JSON to a prompt that shows the keys without the word JSON.

    None if it is fine. None also unless the reply has half of the two or more keys that the prompt
    shows.
    """
    reply = exchange.reply.strip()
    if reply[:1] not in ("{", "[", "`") or ("{" not in exchange.folded_text and "(" not in request):
        return None
    value = value_of(reply)
    keys = keys_at_any_depth(value)
    wanted = read_request(rules, request)
    named = {plain_key(name) for shape in wanted.shapes for name, _ in shape.parts() if name}
    if len(named) < 2 or 2 * len(named & keys) < len(named):
        return None
    return judge_json(exchange, rules, is_in_request=True)


def _first_sentences(instruction: str, request: str) -> str:
    """Return the sentence of a request around its first `JSON`."""
    text = instruction if "json" in instruction.casefold() else request
    place = text.casefold().find("json")
    before = re.split(r"[.?!\n]\s", text[max(0, place - 300) : place])[-1]
    return before + re.split(r"[.?!:\n]", text[place : place + 300])[0]


def judge_json(exchange: Exchange, rules: str, *, is_in_request: bool) -> Verdict | None:
    """Return a wrong verdict for a reply that breaks the wish for JSON, or None.

    The wish is in `rules`, unless empty, or in the request (`is_in_request`). A refusal is no
    fault.
    """
    request = exchange.request[:MAX_TEXT]
    wish = f"{rules}\n{request}" if rules else request
    reply = exchange.reply.strip()
    if len(reply) > MAX_SOURCE:
        return None
    body, prose = body_of(reply)
    sentence = " ".join(_text_around_json(wish))
    if body is None:
        if not re.search(r"[{\[]", reply):
            if _is_refusal(reply) or (not is_in_request and _is_talk(exchange)):
                return None
            return Verdict(False, "the reply is not JSON", "json")
        body = reply
    value, fault = parse(body)
    if fault == "" and (lines := _json_lines(body)) is not None:
        ask, data = split_data(rules, request)
        wrong = _fault_by_text(lines, ask, data, JsonRequest(prompt=wish))
        return Verdict(False, wrong, "json") if wrong else None
    if fault is not None:
        return Verdict(False, f"not valid JSON: {fault}", "json") if fault else None
    if prose and _ONLY.search(sentence):
        return Verdict(False, "there is text beside the JSON", "json")
    if "```" in reply and _BARE.search(sentence):
        return Verdict(False, "the JSON is in a code block", "json")
    if not isinstance(value, dict | list):
        return Verdict(False, "the reply is no JSON object", "json")
    wanted = read_request(rules, request)
    wrong = wanted.fault(value)
    if wrong:
        return Verdict(False, wrong, "json")
    if len(exchange.source) > MAX_SOURCE:
        return None
    source = SourceText(exchange.source)
    ask, data = split_data(rules, request)
    wrong = fault_of_quotes(value, source, wanted) or _fault_by_text(value, ask, data, wanted)
    is_extraction = _is_extraction(wish, exchange.request)
    if not wrong and is_extraction and not wants_writing(ask):
        wrong = fault_of_values(value, source, wanted, wish)
    return Verdict(False, wrong, "json") if wrong else None


def _fault_by_text(value: Any, ask: str, data: str, wanted: JsonRequest) -> str | None:
    """Describe values that contradict each other, the text or a remark of the prompt; else None.

    `ask` is the request for JSON and `data` the text with the values.
    """
    wrong = None
    if wants_translation(ask):
        wrong = fault_of_translation(value, value_of(data[max(0, data.find("{")) :]))
    return (
        wrong
        or fault_of_relations(value, data, ask)
        or fault_of_remarks(value, ask)
        or fault_of_days(value, data, ask)
        or fault_of_labels(value, data, wanted)
    )


def _json_lines(body: str) -> list[Any] | None:
    """Return the objects of a text with one JSON object a line.

    None if a line is something else.
    """
    values = [parse(line) for line in body.splitlines() if line.strip()]
    is_whole = all(fault is None and isinstance(value, dict) for value, fault in values)
    return [value for value, _ in values] if is_whole else None


_EXTRACTS: Final = re.compile(
    r"\b(?:extract|parse|pull|convert|turn|transform|structure (?:this|the)|read|fill|slots?"
    r"|tag(?:s|ger)?|list every|identify|extrahiere|extrae|extrais|wandle|convierte|convertis"
    r"|receipt|invoice)\b",
    re.IGNORECASE,
)
_INVENTS: Final = re.compile(
    r"\b(?:invent|make up|fictional|fake|sample|dummy|mock|random|example (?:data|user|of)"
    r"|translate|summari[sz]e|rewrite|imagine|generate|compose|wrap|comput\w*|calculat\w*"
    r"|work out|split|add up|estimate|suggest|recommend|come up"
    r" with)\b",
    re.IGNORECASE,
)


def _is_extraction(wish: str, request: str) -> bool:
    """Return whether the reply's values must be taken from a text in the conversation."""
    if _INVENTS.search(wish):
        return False
    if _EXTRACTS.search(wish):
        return True
    has_text = "\n" in request.strip() or re.search(r":\s*\S.{15,}", request) is not None
    return has_text and bool(
        re.search(r"\b(?:fields?|keys?|from (?:the|this)|following)\b", wish, re.IGNORECASE)
    )


def _text_around_json(wish: str) -> Iterator[str]:
    """Yield the text around each of the first five mentions of JSON."""
    for found in list(re.finditer(r"json", wish, re.IGNORECASE))[:5]:
        yield wish[max(0, found.start() - 150) : found.end() + 200]


def _is_refusal(reply: str) -> bool:
    """Return whether a reply apologises, refuses or asks back, as in `Please provide the text`."""
    return bool(
        re.search(
            r"\b(?:sorry|cannot|can't|unable|could you|please (?:provide"
            r"|share|paste|send))\b|\?\s*$",
            reply,
            re.IGNORECASE,
        )
    )


def _is_talk(exchange: Exchange) -> bool:
    """Return whether the last message has under four words and so is no data, such as `thanks`."""
    return len(exchange.request.split()) < 4


def value_of(reply: str) -> Any:
    """Return the JSON object or list in a reply, also of a fence or JSON lines.

    None without one.
    """
    body, _ = body_of(reply.strip())
    value, fault = parse(body) if body is not None and len(body) <= MAX_SOURCE else (None, "")
    if body is not None and fault == "":
        return _json_lines(body)
    return value if fault is None and isinstance(value, dict | list) else None


def body_of(reply: str) -> tuple[str | None, str]:
    """Return (the JSON of a reply, the text around it); the JSON is None if there is none."""
    if reply[:1] in "{[" and reply[-1:] in "}]":
        return reply, ""
    found = _FENCED.search(reply)
    if found and found["code"].strip()[:1] in ("{", "["):
        prose = (reply[: found.start()] + reply[found.end() :]).strip()
        return found["code"].strip(), prose
    if found:
        return None, ""
    starts = [place for place in (reply.find("{"), reply.find("[")) if place >= 0]
    if not starts:
        return None, ""
    start = min(starts)
    closing = "}" if reply[start] == "{" else "]"
    end = reply.rfind(closing)
    if end <= start:
        return reply[start:], reply[:start].strip()
    rest = (reply[:start] + reply[end + 1 :]).strip()
    return reply[start : end + 1], rest


def parse(text: str) -> tuple[Any, str | None]:
    """Parse JSON and return (value, fault); the value is None where there is a fault.

    The fault is None for valid JSON, else a phrase such as `extra text at character 9`. An empty
    phrase means that it is undecided: if the text is too deeply nested or another object or list
    follows the first value. Of a repeated key the last value counts.
    """
    depth = deepest = 0
    for character in text:
        if character in "{[":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "}]":
            depth -= 1
    if deepest > MAX_DEPTH:
        return None, ""
    try:
        return json.loads(text, parse_constant=_no_constant, parse_int=_int), None
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            rest = text[error.pos :].strip()
            if rest.startswith(("{", "[")):
                return None, ""  # several values, one in each line
            return None, f"extra text at character {error.pos}"
        where = f"line {error.lineno}" if error.lineno > 1 else f"character {error.pos}"
        return None, f"{error.msg[:1].lower()}{error.msg[1:]} ({where})"
    except ValueError as error:
        return None, str(error)
    except RecursionError:
        return None, ""


def _no_constant(name: str) -> float:
    """Raise ValueError: JSON has no NaN and no Infinity."""
    raise ValueError(f"{name} is no JSON value")


def _int(text: str) -> int | float:
    """Return a whole number; as a float from 50 digits on."""
    return int(text) if len(text) < 50 else float(text[:300])


def wants_translation(ask: str) -> bool:
    """Return whether a request for JSON wants its texts translated: `Translate the values`."""
    return _TRANSLATES.search(ask) is not None


def fault_of_translation(value: Any, source: Any) -> str | None:
    """Describe a text that lost a placeholder, such as `{name}`, or a key of the source.

    Else None. None also if the source is no object or the translation has another form.
    """
    if not isinstance(source, dict):
        return None
    translated = dict(zip(range(MAX_LEAVES), leaves(value), strict=False)).values()
    texts = {path: leaf for path, leaf in translated if isinstance(leaf, str)}
    source_texts = [(path, leaf) for path, leaf in leaves(source) if isinstance(leaf, str)][
        :MAX_LEAVES
    ]
    if not any(path in texts for path, _ in source_texts):
        return None  # the translation has another form
    for path, leaf in source_texts:
        if path not in texts:
            return f'the key "{".".join(path)[:60]}" is missing'
        wanted, found = Counter(_FIXED.findall(leaf)), Counter(_FIXED.findall(texts[path]))
        if lost := [*(wanted - found)]:
            return f'"{path[-1]}" lacks {lost[0]}'
        if more := [*(found - wanted)]:
            return f'"{path[-1]}" has {more[0]}, which the source lacks'
    return None
