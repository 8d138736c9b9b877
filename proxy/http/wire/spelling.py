"""The possible meanings of a path to its next reader, however it is spelled.

Front proxies and upstreams decode a path once or twice, fold slashes, accept a backslash as one,
ignore case, and cut parameters, dots and blanks off a name. A policy decides by the meaning that
the most lenient of them finds; upstream still gets the client's spelling.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from urllib.parse import unquote_to_bytes

from proxy.errors import BadRequestError

MOST_DECODINGS = 4  # a name that is encoded more often is suspicious
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_OVERLONG = re.compile(rb"[\xc0\xc1]|\xe0[\x80-\x9f]|\xf0[\x80-\x8f]")  # never in UTF-8
_ENCODED_UTF16 = re.compile(rb"%u[0-9a-f]{4}", re.IGNORECASE)
_SLASHES = re.compile(r"[/\\\u2044\u2215\u2216\u29f8\u29f9]+")  # and signs that resemble one
_NOT_OF_NAME = re.compile(r"[^a-z0-9_-]")
_UNSEEN = re.compile("[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
_ALONE = frozenset({"complete", "completion", "edits", "chat", "generate", "infill"})
_BELOW = frozenset({"completions", "responses", "messages", "history", "output_items"})
_WITHOUT_ANSWERS = frozenset(  # first names of paths where no model answers in words
    {
        *("audio", "batches", "containers", "conversations", "embeddings", "evals", "files"),
        *("fine_tuning", "images", "models", "moderations", "organization", "realtime", "rerank"),
        *("skills", "tokenize", "detokenize", "uploads", "usage", "vector_stores", "videos"),
        *("assistants", "chat", "completions", "messages", "responses"),  # stored objects, counts
    }
)
_MINTS = frozenset(  # paths that give a client a credential for upstream itself
    {
        *(("realtime", "client_secrets"), ("realtime", "sessions"), ("realtime", "calls")),
        *(("realtime", "transcription_sessions"), ("realtime", "translations")),
        ("realtimeapi", "sessions"),
        *(
            ("chatkit", "sessions"),
            ("organization", "admin_api_keys"),
            ("organization", "projects"),
        ),
    }
)
_CREDENTIALS = frozenset(  # names of what such paths give, at whatever server
    {
        *("client_secrets", "client_secret", "ephemeral_keys", "ephemeral_tokens", "auth_tokens"),
        *("api_keys", "admin_api_keys", "access_tokens", "keys", "single-use-token", "grant"),
    }
)
_CHATS = frozenset({("chat", "completions"), ("chat", "deferred-completion")})
_CUT_OFF = " ."
ANY_ID = "{id}"
_PLAIN = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")


def names_in(path: str) -> tuple[str, ...]:
    """Return the names in a path as it was sent, decoded and without the slashes.

    Raises BadRequestError for a path that two readers could understand differently: one with dot
    segments, control characters, or letters in an invalid encoding.
    """
    text = _decode_path(path)
    text = re.split(r"[?#]", text, maxsplit=1)[0]
    names = [_read_segment(segment) for segment in _SLASHES.split(text)]
    return tuple(name for name in names if name)


def means(names: Sequence[str], path: str) -> bool:
    """Return whether the names are those of this path.

    Case, invisible characters and a suffix of the last name, such as `.json`, are ignored.
    """
    wanted = path.strip("/").split("/")
    if len(names) != len(wanted):
        return False
    *folders, last = map(_fold_name, names)
    return [*folders, _NOT_OF_NAME.split(last, maxsplit=1)[0]] == wanted


def shows_answers(names: Sequence[str]) -> bool:
    """Return whether a path that is not scored shows a model's answers.

    `names` are those of the path, such as `["v1", "engines", "m", "completions"]`. Such a path is a
    scored one below another folder, or belongs to another API, such as
    `/v1/models/x:generateContent`.
    """
    folded = [_fold_name(name) for name in names[1:]]
    if not folded or folded[:2] == ["chat", "completions"]:
        return False
    if folded[0] == "models":  # model names may contain slashes
        return folded[-1].rpartition(":")[2].endswith("generatecontent")
    last = _NOT_OF_NAME.split(folded[-1], maxsplit=1)[0]
    if folded[0] == "responses" and last == "compact":
        return True
    is_alone = len(folded) == 1 and last in _ALONE
    is_below = len(folded) > 1 and last in _BELOW
    is_chat = not _CHATS.isdisjoint(pairwise(folded))
    return is_alone or is_below or is_chat or (folded[0] == "threads" and "runs" in folded)


def is_listed(names: Sequence[str]) -> bool:
    """Return whether a path's first name below `/v1` is one where no model answers in words.

    Examples are `files` and `embeddings`; also True for `/v1` itself.
    """
    first = _NOT_OF_NAME.split(_fold_name(names[1]), maxsplit=1)[0] if len(names) > 1 else ""
    return not first or first in _WITHOUT_ANSWERS


def mints_credentials(names: Sequence[str]) -> bool:
    """Return whether a path gives a client a key for upstream itself, which bypasses the proxy.

    An example is `/v1/realtime/client_secrets`.
    """
    folded = [_NOT_OF_NAME.split(_fold_name(name), maxsplit=1)[0] for name in names[1:]]
    if tuple(folded[:2]) in _MINTS:
        return True
    is_of_models = folded[:1] == ["models"]  # whose names are anybody's choice
    return not is_of_models and not _CREDENTIALS.isdisjoint(folded)


def id_at(parts: Sequence[str], place: Sequence[str]) -> str | None:
    """Return the id in a path, given by its parts, of the form `place`; None for another path.

    With `place` `("v1", "responses", ANY_ID)`, `/v1/responses/resp_1` gives `resp_1`. Case is
    ignored and an empty id is given as it is. `place` must have ANY_ID, or StopIteration is raised.
    """
    if len(parts) != len(place):
        return None
    pairs = [*zip(parts, place, strict=True)]
    if all(wanted == ANY_ID or name.casefold() == wanted for name, wanted in pairs):
        return next(name for name, wanted in pairs if wanted == ANY_ID)
    return None


def path_after_v1(path: str) -> str:
    """Return the path without `/v1`, as upstream gets it.

    Raises BadRequestError for a path that is ambiguous (see `names_in`) or does not begin with
    `/v1`. Dot segments above all would leave upstream's `/v1`.
    """
    if path in _PLAIN:
        return path[len("/v1") :]
    names_in(path)
    if not path.startswith("/v1"):
        raise BadRequestError("the path must begin with '/v1', not encoded", code="invalid_path")
    return path.removeprefix("/v1")


def _decode_path(path: str) -> str:
    """Decode a path fully and normalize its letters; raises BadRequestError as `names_in` does."""
    raw = path.encode("latin-1", "replace")
    for _ in range(MOST_DECODINGS):
        decoded = unquote_to_bytes(raw)
        if decoded == raw:
            break
        raw = decoded
    else:
        raise _path_error("the path is encoded more than once")
    if _CONTROL.search(raw):
        raise _path_error("the path may not have control characters")
    if _OVERLONG.search(raw) or _ENCODED_UTF16.search(raw):
        raise _path_error("the path has letters that are not encoded as UTF-8")
    text = raw.decode("utf-8", "replace")
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def _read_segment(segment: str) -> str:
    """Return a name without its parameters; raises BadRequestError for a dot segment."""
    name = segment.partition(";")[0]
    if name.strip() in (".", ".."):
        raise _path_error("the path may not have '.' or '..' segments")
    return name.strip().rstrip(_CUT_OFF)


def _fold_name(name: str) -> str:
    """Return a name in one case and without invisible characters."""
    return (name if name.isascii() else _UNSEEN.sub("", name)).casefold()


def _path_error(message: str) -> BadRequestError:
    return BadRequestError(message, code="invalid_path")
