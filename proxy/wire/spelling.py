"""What a path may mean to whoever reads it next, however it is spelled.

Front proxies and upstreams decode a path once or twice, fold slashes, take a backslash for one, do
not tell cases apart, cut parameters, dots and blanks off a name. A policy decides by the meaning
that the most generous of them finds; what upstream gets stays as the client spelled it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from urllib.parse import unquote_to_bytes

from proxy.errors import BadRequestError

MOST_DECODINGS = 4  # a name that is encoded more often hides something
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_OVERLONG = re.compile(rb"[\xc0\xc1]|\xe0[\x80-\x9f]|\xf0[\x80-\x8f]")  # never in UTF-8
_ENCODED_UTF16 = re.compile(rb"%u[0-9a-f]{4}", re.IGNORECASE)
_SLASHES = re.compile(r"[/\\\u2044\u2215\u2216\u29f8\u29f9]+")  # and what is converted to one
_NOT_OF_NAME = re.compile(r"[^a-z0-9_-]")
_UNSEEN = re.compile("[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
_ALONE = frozenset({"complete", "completion", "edits", "chat", "generate", "infill"})
_BELOW = frozenset({"completions", "responses", "messages", "history", "output_items"})
_WITHOUT_ANSWERS = frozenset(  # first names of places where no model answers in words
    {
        *("audio", "batches", "containers", "conversations", "embeddings", "evals", "files"),
        *("fine_tuning", "images", "models", "moderations", "organization", "realtime", "rerank"),
        *("skills", "tokenize", "detokenize", "uploads", "usage", "vector_stores", "videos"),
        *("assistants", "chat", "completions", "messages", "responses"),  # kept and counted
    }
)
_MINTS = frozenset(  # what gives a client a credential of upstream's own
    {
        *(("realtime", "client_secrets"), ("realtime", "sessions"), ("realtime", "calls")),
        *(("realtime", "transcription_sessions"), ("realtime", "translations")),
        *(
            ("chatkit", "sessions"),
            ("organization", "admin_api_keys"),
            ("organization", "projects"),
        ),
    }
)
_CHATS = frozenset({("chat", "completions"), ("chat", "deferred-completion")})
_CUT_OFF = " ."
ANY_ID = "{id}"
_PLAIN = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")


def names_in(path: str) -> tuple[str, ...]:
    """The names in a path as it came over the wire, without the slashes between them.

    Raises BadRequestError for one that two readers could take for two places: with dot segments,
    control characters, or letters encoded as no letter is.
    """
    text = _decoded(path)
    text = re.split(r"[?#]", text, maxsplit=1)[0]
    names = [_named(segment) for segment in _SLASHES.split(text)]
    return tuple(name for name in names if name)


def means(names: Sequence[str], path: str) -> bool:
    """Whether names are those of this path, cases, signs that nobody sees and whatever is no name
    behind the last of them apart, as in `.json`."""
    wanted = path.strip("/").split("/")
    if len(names) != len(wanted):
        return False
    *folders, last = map(_folded, names)
    return [*folders, _NOT_OF_NAME.split(last, maxsplit=1)[0]] == wanted


def shows_answers(names: Sequence[str]) -> bool:
    """Whether a place that is not scored shows what models answered: that of a scored surface under
    another folder, as in `/v1/engines/{model}/completions`, or one of another API."""
    folded = [_folded(name) for name in names[1:]]
    if not folded or folded[:2] == ["chat", "completions"]:
        return False
    if folded[0] == "models":  # names of models have slashes
        return folded[-1].rpartition(":")[2].endswith("generatecontent")
    last = _NOT_OF_NAME.split(folded[-1], maxsplit=1)[0]
    if folded[0] == "responses" and last == "compact":
        return True
    is_alone = len(folded) == 1 and last in _ALONE
    is_below = len(folded) > 1 and last in _BELOW
    is_chat = not _CHATS.isdisjoint(pairwise(folded))
    return is_alone or is_below or is_chat or (folded[0] == "threads" and "runs" in folded)


def is_listed(names: Sequence[str]) -> bool:
    """Whether a path is of an API of which it is known that no model answers there in words."""
    first = _NOT_OF_NAME.split(_folded(names[1]), maxsplit=1)[0] if len(names) > 1 else ""
    return not first or first in _WITHOUT_ANSWERS


def mints_credentials(names: Sequence[str]) -> bool:
    """Whether upstream gives a client a key there, with which it goes past this proxy."""
    folded = [_NOT_OF_NAME.split(_folded(name), maxsplit=1)[0] for name in names[1:3]]
    return tuple(folded) in _MINTS


def id_at(names: Sequence[str], place: Sequence[str]) -> str | None:
    """The name that stands for ANY_ID in a place, as it was written; None for another place."""
    if len(names) != len(place):
        return None
    pairs = [*zip(names, place, strict=True)]
    if all(wanted == ANY_ID or name.casefold() == wanted for name, wanted in pairs):
        return next(name for name, wanted in pairs if wanted == ANY_ID)
    return None


def path_after_v1(path: str) -> str:
    """The path as upstream sees it; raises BadRequestError for one that could mean another place,
    above all dot segments, which would leave upstream's `/v1`."""
    if path in _PLAIN:
        return path[len("/v1") :]
    names_in(path)
    if not path.startswith("/v1"):
        raise BadRequestError("the path must begin with '/v1', not encoded", code="invalid_path")
    return path.removeprefix("/v1")


def _decoded(path: str) -> str:
    raw = path.encode("latin-1", "replace")
    for _ in range(MOST_DECODINGS):
        decoded = unquote_to_bytes(raw)
        if decoded == raw:
            break
        raw = decoded
    else:
        raise _refused("the path is encoded more than once")
    if _CONTROL.search(raw):
        raise _refused("the path may not have control characters")
    if _OVERLONG.search(raw) or _ENCODED_UTF16.search(raw):
        raise _refused("the path has letters that are not encoded as UTF-8")
    text = raw.decode("utf-8", "replace")
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def _named(segment: str) -> str:
    """A name without its parameters; raises BadRequestError for a dot segment."""
    name = segment.partition(";")[0]
    if name.strip() in (".", ".."):
        raise _refused("the path may not have '.' or '..' segments")
    return name.strip().rstrip(_CUT_OFF)


def _folded(name: str) -> str:
    """A name as readers take it that do not tell cases apart, without signs that nobody sees."""
    return (name if name.isascii() else _UNSEEN.sub("", name)).casefold()


def _refused(message: str) -> BadRequestError:
    return BadRequestError(message, code="invalid_path")
