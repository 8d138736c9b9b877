"""Labelled rows (B02): the one JSON lines format of training, judging and scoring.

    {"id", "question_id", "benchmark", "domain", "question" | "messages", "response", "model",
     "correct": 0|1, "gold", "verbalized_confidence"}

`examples/labelled/README.md` explains each field. `others`, replies of other models to the
same question, is a list of responses: text, messages, or `{"response", "model"}`. `judged` is
P(correct) by the model `judge`; `logprobs` are the mean and the lowest of the reply's tokens.
Images are in `messages` as a client sends them, or beside `question` in a list of data URLs,
`images`. A row with `prompt` and `image`, a data URL, instead of question and response asks
whether the image depicts the prompt (paper R01).
A file may be gzipped. A bad row is an error with its line number and does not end the run.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import os
import re
import stat
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, cast

import numpy as np

from calibrator.errors import NotScorableError, RowError
from calibrator.metrics.metrics import Ints
from calibrator.rows.files import missing_field
from calibrator.scorer import NO_SIGNALS, Item, OtherReply, Signals, ToolUse
from calibrator.text.images import local_images
from calibrator.text.replies import other_reply, response_message
from calibrator.text.transcript import Question, depiction, message_text, read_question

MAX_LINE_BYTES = 16 * 2**20
_GZIP = b"\x1f\x8b"
_pipes_read: set[int] = set()
_FIELDS = frozenset(
    {b"question", b"response", b"messages", b"correct", b"confidence", b"answer", b"question_id"}
)
_OTHER_FORMS: Final = {  # by the beginning of the file, in lower case
    b"pk\x03\x04": "a zip archive or a spreadsheet",
    b"\xfd7zxz": "an xz file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"bzh": "a bzip2 file",
    b"arrow1": "an Arrow file",
    b"sqlite format 3": "an SQLite database",
}
_PANDAS = (
    "rows are JSON lines, one object a line. With pandas: pd.{}(FILE)"
    '.to_json("rows.jsonl", orient="records", lines=True)'
)
OTHER_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")  # byte order marks of UTF-16 and UTF-32

# The names that a scorer sees are the model alone (a server of completions knows no benchmark),
# both, or none (paper K10).
Tags = Literal["served", "all", "none"]

# A row whose question has images becomes an error (most calibrators read only text), a row with
# their bytes, or a row with the text alone and `lacks_images`.
ImageUse = Literal["refuse", "read", "ignore"]


_JUDGED = (  # the fields that a score depends on
    *("question", "messages", "tools", "images", "prompt", "image", "response"),
    *("model", "benchmark", "domain"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One labelled or unlabelled reply to a question; `raw` is the row as it was read."""

    question: str
    answer: str
    model: str | None
    benchmark: str | None
    domain: str | None
    question_id: str
    correct: int | None
    verbalized_confidence: float | None
    raw: dict[str, Any]
    images: tuple[bytes, ...] = ()  # encoded files
    tool_use: ToolUse | None = None  # set where the reply calls tools, or tools were available
    others: tuple[OtherReply, ...] = ()  # replies to the same question
    signals: Signals = NO_SIGNALS
    messages: Sequence[Any] = field(default=(), compare=False)  # before the reply, as in `raw`
    lacks_images: bool = False  # images of its question were ignored
    source: str = field(default="", compare=False)  # the file that it was read from
    line: int = field(default=0, compare=False)  # 1-based

    @property
    def id(self) -> str | int | float:
        """The row's key in a file of scores: its own `id`, else a digest of the fields judged.

        An `id` that is no text and no number is given as JSON; a digest is `sha256:` and 24 digits.
        """
        own = self.raw.get("id")
        if own is not None:
            return own if isinstance(own, str | int | float) else json.dumps(own)
        judged = {key: self.raw[key] for key in _JUDGED if self.raw.get(key) is not None}
        text = json.dumps(judged, sort_keys=True, default=str)
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:24]}"

    def error(self, message: str) -> RowError:
        """Return an error with this message about the row, with its file and line."""
        return RowError(self.source, self.line, message)

    def item(self, tags: Tags = "all") -> Item:
        """Return the item for a scorer, with the names that `tags` allows.

        `all` keeps the model and the benchmark, `served` the model alone, `none` neither. The
        scorer itself ignores names that it does not know.
        """
        model = None if tags == "none" else self.model
        benchmark = self.benchmark if tags == "all" else None
        named = (model, benchmark, self.domain)
        contents = self.images, self.tool_use, self.others
        messages = self.messages if self.tool_use is None else self.tool_use.messages
        return Item(
            self.question, self.answer, *named, *contents, signals=self.signals, messages=messages
        )


def _text_or_none(raw: dict[str, Any], key: str) -> str | None:
    """Return the text under a key; None where it is missing, null or empty.

    Raises ValueError for a value that is no text.
    """
    value = raw.get(key)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise ValueError(f"{key!r} must be a string, not {type(value).__name__}")
    return value


def _question_id(raw: dict[str, Any]) -> str | None:
    """Return the question's id as a text, also a whole number's, or None if it is missing.

    Raises ValueError for a value that is neither.
    """
    value = raw.get("question_id")
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # as pandas writes a column with a missing value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return _text_or_none(raw, "question_id")


def _label(raw: dict[str, Any]) -> int | None:
    """Return a row's label, 0 or 1, or None where it is missing; True and False are allowed.

    Raises ValueError for any other value.
    """
    value = raw.get("correct")
    if value is None:
        return None
    if value not in (0, 1):  # True and False equal 1 and 0
        is_quoted = value in ("0", "1", "true", "false", "True", "False")
        hint = ", without quotes" if is_quoted else ""
        raise ValueError(f"'correct' must be 0 or 1{hint}, not {value!r}")
    return int(value)


def _probability_or_none(raw: dict[str, Any], key: str) -> float | None:
    """Return the number under a key; None where it is missing or null.

    Raises ValueError for a value that is no number from 0 to 1.
    """
    value = raw.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{key!r} must be a number from 0 to 1, not {value!r}")
    return float(value)


def parse_row(raw: Any, images: ImageUse = "refuse") -> Row:
    """Check a decoded row and return it as a `Row`.

    `images` is `refuse` (an image is an error), `read` or `ignore`. Raises ValueError with its
    fault, or NotScorableError for content that cannot be scored.
    """
    if not isinstance(raw, dict):
        raise ValueError(f"a row must be a JSON object, not {type(raw).__name__}")
    question, answer, tool_use = _question_and_answer(raw)
    others = raw.get("others") or ()
    if not isinstance(others, list | tuple):
        raise ValueError(f"'others' must be a list of replies, not {type(others).__name__}")
    if question.images and images == "refuse":
        raise NotScorableError(
            "image", "the question has an image; this calibrator reads text only"
        )
    return Row(
        question=question.text,
        answer=answer,
        model=_text_or_none(raw, "model"),
        benchmark=_text_or_none(raw, "benchmark"),
        domain=_text_or_none(raw, "domain"),
        question_id=_question_id(raw) or question.text,
        correct=_label(raw),
        verbalized_confidence=_probability_or_none(raw, "verbalized_confidence"),
        raw=raw,
        images=local_images(question.images) if images == "read" else (),
        tool_use=tool_use,
        others=tuple(other_reply(question, each) for each in others),
        signals=_signals(raw),
        messages=question.all_messages(),
        lacks_images=bool(question.images) and images == "ignore",
    )


def _signals(raw: dict[str, Any]) -> Signals:
    """Return a row's signals: a judge's probability and log-probabilities of tokens.

    Raises ValueError for wrong ones, and for a probability without the judge's name or the reverse.
    """
    judged, judge = _probability_or_none(raw, "judged"), _text_or_none(raw, "judge")
    if (judged is None) != (judge is None):
        raise ValueError("'judged' is P(correct), and 'judge' the model that said so: give both")
    logprobs = raw.get("logprobs")
    if logprobs is None:
        return Signals(judged, judge or "") if judge else NO_SIGNALS
    is_list = isinstance(logprobs, list) and len(logprobs) == 2
    if not is_list or not all(type(each) in (int, float) and each <= 0 for each in logprobs):
        raise ValueError("'logprobs' must be the mean and the lowest of the tokens, each at most 0")
    return Signals(judged, judge or "", (float(logprobs[0]), float(logprobs[1])))


def _question_and_answer(raw: dict[str, Any]) -> tuple[Question, str, ToolUse | None]:
    """Return a row's question, the answer's text, and the reply with its tools or None.

    A row with `prompt` and `image` becomes the question whether the image depicts the prompt.
    Raises ValueError for missing or wrong fields.
    """
    if "response" not in raw:
        if (prompt := _text_or_none(raw, "prompt")) is None or "image" not in raw:
            raise ValueError(missing_field("response", raw))
        text, answer = depiction(prompt)
        return Question(text, [{"image_url": raw["image"]}]), answer, None
    response, question = raw["response"], _question_of(raw)
    if isinstance(response, str):
        return question, response, question.tool_use({"role": "assistant", "content": response})
    message = response_message(response)
    return question, message_text(message), question.tool_use(message)


def _question_of(raw: dict[str, Any]) -> Question:
    """Return a row's question, from `question` or else from `messages`.

    Raises ValueError without either, for `images` that are no list, and as `read_question`.
    """
    question = _text_or_none(raw, "question")
    if question is None:
        if raw.get("messages") is None:
            raise ValueError(missing_field("question", raw))
        return read_question(raw["messages"], raw.get("tools"))
    images = raw.get("images") or []
    if not isinstance(images, list):
        raise ValueError(f"'images' must be a list of data URLs, not {type(images).__name__}")
    messages = raw.get("messages")  # may accompany the text, for replies with tools
    read = messages if isinstance(messages, list) else ()
    return Question(question, [{"image_url": each} for each in images], read, raw.get("tools"))


def open_lines(path: Path) -> BinaryIO:
    """Open a file once and return its bytes as a stream, unpacked if it is gzip.

    Its first two bytes identify gzip, not its name. A pipe (`<(..)`, `/dev/stdin`, a FIFO) is read
    like a file, but only once. Raises OSError for one that was read before, and for unreadable
    files.
    """
    stream = path.open("rb")
    try:
        _refuse_second_reading(stream)
        head = stream.read(len(_GZIP))
        whole = cast(BinaryIO, io.BufferedReader(_ResumedStream(head, stream)))
    except BaseException:
        stream.close()
        raise
    if head == _GZIP:
        return cast(BinaryIO, _UnpackedStream(whole))
    return whole


class _ResumedStream(io.RawIOBase):
    """A stream whose first bytes have already been read."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        super().__init__()
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with the first bytes, or else from the stream; return their number."""
        found, self._head = self._head[: len(buffer)], self._head[len(buffer) :]
        found = found or self._rest.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def close(self) -> None:
        self._rest.close()
        super().close()


class _UnpackedStream(gzip.GzipFile):
    """A gzip stream that also closes the packed stream."""

    def __init__(self, packed: BinaryIO) -> None:
        super().__init__(fileobj=packed, mode="rb")
        self._packed = packed

    def close(self) -> None:
        super().close()
        self._packed.close()


def _refuse_second_reading(stream: BinaryIO) -> None:
    """Raise OSError for an unnamed pipe that was read before, which would seem empty.

    Otherwise such a pipe is remembered as read. Files and named pipes are allowed.
    """
    found = os.fstat(stream.fileno())
    if not stat.S_ISFIFO(found.st_mode) or found.st_dev != _device_of_pipes():
        return  # a file, or a FIFO, whose reader waits for another writer
    if found.st_ino in _pipes_read:
        raise OSError(errno.ESPIPE, "a pipe can be read once; save it in a file and name that")
    _pipes_read.add(found.st_ino)


@cache
def _device_of_pipes() -> int:
    """Return the number of the device to which all unnamed pipes belong."""
    ends = os.pipe()
    try:
        return os.fstat(ends[0]).st_dev
    finally:
        for each in ends:
            os.close(each)


def read_rows(path: Path, images: ImageUse = "refuse") -> Iterator[tuple[int, Row | RowError]]:
    """Yield each row with its line number, or its error.

    `images` is as in `parse_row`. Blank lines are skipped. A file that breaks off (truncated gzip)
    or is in another form ends with an error. Raises OSError where the file cannot be opened.
    """
    for number, line in read_lines(path):
        if isinstance(line, RowError):
            yield number, line
        elif line.strip():
            yield number, read_row(str(path), number, line, images)


def read_lines(path: Path) -> Iterator[tuple[int, bytes | RowError]]:
    """Yield each line unchanged with its number, from 1; an error, if any, comes last.

    Errors are a file that breaks off, one in another form, and a line over `MAX_LINE_BYTES`. Raises
    OSError where the file cannot be opened.
    """
    source, number = str(path), 0
    with open_lines(path) as stream:
        while True:
            number += 1
            try:
                line = stream.readline(MAX_LINE_BYTES + 1)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                yield number, RowError(source, number, f"the file breaks off: {error}")
                return
            if not line:
                return
            if number == 1 and (line.startswith(OTHER_MARKS) or b"\0" in line[:4]):  # RFC 4627, 3
                sentence = "the file begins as UTF-16 or UTF-32 does; save it as UTF-8"
                yield number, RowError(source, number, sentence)
                return
            if number == 1 and (other := _other_form(line)):
                yield number, RowError(source, number, other)
                return
            if len(line) > MAX_LINE_BYTES:
                too_long = f"longer than {MAX_LINE_BYTES} bytes; the file is read no further"
                yield number, RowError(source, number, too_long)
                return
            yield number, line


def _other_form(line: bytes) -> str | None:
    """Return a sentence on a file that is no JSON lines, by its first line, or None.

    It names the form, such as Parquet, and a way to convert it. Only clear cases are recognized: a
    CSV file needs a header that names fields of rows.
    """
    start = line.strip().lower()
    if start.startswith(b"par1"):
        return f"this is a Parquet file; {_PANDAS.format('read_parquet')}"
    for beginning, form in _OTHER_FORMS.items():
        if start.startswith(beginning):
            return f"this is {form}; save its rows as JSON lines, plain or gzipped"
    if start == b"[" or (start.startswith(b"[") and b"{" in start[:20]):
        return f"this is one JSON array; {_PANDAS.format('read_json')}"
    header = {cell.strip(b" \"'\xef\xbb\xbf") for cell in re.split(rb"[,;\t]", start)}
    if len(header) > 1 and not start.startswith(b"{") and header & _FIELDS:
        return f"this looks like a CSV file; {_PANDAS.format('read_csv')}"
    return None


def read_row(source: str, number: int, line: bytes, images: ImageUse = "refuse") -> Row | RowError:
    """Return the row of one line of a file, or its error; nothing is raised.

    `source` is the file's name and `number` the line's; `images` is as in `parse_row`.
    """
    try:
        return replace(parse_row(json.loads(line), images), source=source, line=number)
    except UnicodeDecodeError as error:
        return RowError(source, number, f"not UTF-8: {error.reason} at byte {error.start}")
    except json.JSONDecodeError as error:
        fault = error.msg.removesuffix(" at")  # some messages of json expect a position next
        return RowError(source, number, f"not JSON: {fault} at column {error.colno}")
    except RecursionError:
        return RowError(source, number, "nested too deeply")
    except (ValueError, NotScorableError) as error:
        return RowError(source, number, str(error))


def labels_of(rows: Sequence[Row]) -> Ints:
    """Return the labels of rows, (n,); a missing label is 0."""
    return np.array([row.correct or 0 for row in rows], dtype=np.int64)


def question_numbers(rows: Sequence[Row]) -> Ints:
    """Return the number of each row's question, (n,), counted from 0 in order of appearance."""
    found: dict[str, int] = {}
    return np.array([found.setdefault(row.question_id, len(found)) for row in rows])
