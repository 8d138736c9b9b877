"""Labelled rows: parsing, and the line and sentence of each mistake (paper B02, D03)."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from calibrator import Item, NotScorableError, RowError, ToolUse
from calibrator.rows.rows import MAX_LINE_BYTES, ImageUse, Row, parse_row, read_rows
from tests.builders.pictures import PNG, data_url

Json = dict[str, Any]

GOOD: Json = {
    "id": "gpqa/1/kimi",
    "question_id": "gpqa/1",
    "benchmark": "gpqa",
    "domain": "science",
    "question": "2 + 2?",
    "response": "4",
    "model": "kimi-3",
    "correct": 1,
    "gold": "4",
    "verbalized_confidence": 0.9,
}
LINE = json.dumps(GOOD).encode() + b"\n"


def read(path: Path, content: bytes) -> list[tuple[int, Row | RowError]]:
    path.write_bytes(content)
    return list(read_rows(path))


def sentence(path: Path, content: bytes) -> str:
    ((_, error),) = read(path, content)
    assert isinstance(error, RowError)
    return str(error).removeprefix(f"{path}:")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.jsonl"


# --- good rows ----------------------------------------------------------------------------------


def test_a_row_is_question_answer_tags_and_label(path: Path) -> None:
    """A row has question, answer, tags and label, and keeps the fields as read (B02)."""
    ((line, row),) = read(path, LINE)
    assert line == 1
    assert row == Row("2 + 2?", "4", "kimi-3", "gpqa", "science", "gpqa/1", 1, 0.9, GOOD)
    assert row.item() == Item("2 + 2?", "4", "kimi-3", "gpqa", "science")
    assert row.item("served") == Item("2 + 2?", "4", "kimi-3", None, "science")
    assert row.item("none") == Item("2 + 2?", "4", None, None, "science")


def test_only_question_and_response_are_needed() -> None:
    """Only question and response are needed; rows of one question text share its id (D04)."""
    row = parse_row({"question": "q", "response": "a"})
    assert row == Row("q", "a", None, None, None, "q", None, None, row.raw)


def test_messages_may_stand_for_the_question() -> None:
    """Messages may replace the question."""
    row = parse_row({"messages": [{"role": "user", "content": "q"}], "response": "a"})
    assert (row.question, row.question_id) == ("q", "q")


def test_a_scorer_gets_the_messages_of_a_row() -> None:
    """The item has the row's own list of messages, also after its reply changed."""
    messages = [
        {"role": "system", "content": "Refunds: 30 days."},
        {"role": "user", "content": "Q"},
    ]
    row = parse_row({"messages": messages, "response": "30 days"})
    assert row.item().messages is messages
    assert replace(row, answer="60 days").item("served").messages is messages
    beside = parse_row({"question": "Q", "messages": messages, "response": "30 days"})
    assert (beside.item().question, beside.item().messages) == ("Q", messages)
    assert parse_row({"question": "Q", "response": "30 days"}).item().messages == ()


def test_a_row_with_other_calls_has_their_conversation() -> None:
    """A conversation that was changed in `tool_use` is the item's conversation."""
    messages = [{"role": "user", "content": "Q"}]
    offered = [{"type": "function", "function": {"name": "search"}}]
    row = parse_row({"messages": messages, "tools": offered, "response": "a"})
    assert row.tool_use is not None
    other = ToolUse([{"role": "user", "content": "R"}], (), row.tool_use.message)
    assert replace(row, tool_use=other).item().messages is other.messages


@pytest.mark.parametrize(
    "reply",
    [
        "It is 4.",
        {"response": "It is 4."},
        {"role": "assistant", "content": "It is 4."},
        {"choices": [{"message": {"role": "assistant", "content": "It is 4."}}]},
    ],
)
def test_others_are_replies_of_any_form(reply: Any) -> None:
    """Replies of other models may have any form, with or without their model."""
    row = parse_row({"question": "2 + 2?", "response": "4", "others": [reply]})
    assert [(other.answer, other.source_model) for other in row.others] == [("It is 4.", None)]
    assert row.item("served").others == row.others
    named = {"response": "It is 4.", "model": "gpt-5"}
    row = parse_row({"question": "2 + 2?", "response": "4", "others": [named, reply]})
    assert [other.source_model for other in row.others] == ["gpt-5", None]


@pytest.mark.parametrize("others", ["text", {"response": "4"}, 1, [1], [None], [{"model": "gpt"}]])
def test_others_that_are_no_replies_are_a_bad_row(others: Any) -> None:
    """Others that are no replies make a bad row."""
    with pytest.raises(ValueError, match=r"'others' must be|another reply must|neither"):
        parse_row({"question": "2 + 2?", "response": "4", "others": others})


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("", ""),
        ({"role": "assistant", "content": "a"}, "a"),
        ({"role": "assistant", "content": None, "refusal": "no"}, "no"),
        ({"choices": [{"message": {"content": "a"}}]}, "a"),
        ({"choices": [{"text": "a"}]}, "a"),
        ({"output": [{"type": "message", "content": [{"type": "output_text", "text": "a"}]}]}, "a"),
    ],
)
def test_responses_are_texts_messages_or_completions(response: Any, answer: str) -> None:
    """A response may be a text, message or completion, also empty or a refusal (D03)."""
    assert parse_row({"question": "q", "response": response}).answer == answer


@pytest.mark.parametrize(
    ("label", "expected"), [(0, 0), (1, 1), (True, 1), (False, 0), (1.0, 1), (None, None)]
)
def test_labels(label: Any, expected: int | None) -> None:
    """A label is 0, 1, or missing."""
    assert parse_row({"question": "q", "response": "a", "correct": label}).correct == expected


# --- bad rows -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([], "a row must be a JSON object, not list"),
        (5, "a row must be a JSON object, not int"),
        ({}, "'response' is missing"),
        ({"question": "q"}, "'response' is missing"),
        ({"response": "a"}, "'question' (or 'messages') is missing"),
        ({"question": "", "response": "a"}, "'question' (or 'messages') is missing"),
        ({"question": 5, "response": "a"}, "'question' must be a string, not int"),
        ({"question": "q", "response": None},
         "'response' must be a string or an object, not NoneType"),
        ({"question": "q", "response": {"choices": []}}, "the response has no choices"),
        ({"question": "q", "response": {"choices": [{"message": "x"}]}},
         "a choice's message must be an object, not str"),
        ({"question": "q", "response": {"error": {"message": "x"}}},
         "the response has neither content nor tool calls, only 'error'"),
        ({"messages": "x", "response": "a"}, "'messages' must be a list with at least one message"),
        ({**GOOD, "correct": 2}, "'correct' must be 0 or 1, not 2"),
        ({**GOOD, "correct": "1"}, "'correct' must be 0 or 1, without quotes, not '1'"),
        ({**GOOD, "correct": float("nan")}, "'correct' must be 0 or 1, not nan"),
        ({**GOOD, "correct": 0.5}, "'correct' must be 0 or 1, not 0.5"),
        ({**GOOD, "model": 5}, "'model' must be a string, not int"),
        ({**GOOD, "benchmark": ["gpqa"]}, "'benchmark' must be a string, not list"),
        ({**GOOD, "verbalized_confidence": 90},
         "'verbalized_confidence' must be a number from 0 to 1, not 90"),
        ({**GOOD, "verbalized_confidence": float("nan")},
         "'verbalized_confidence' must be a number from 0 to 1, not nan"),
        ({**GOOD, "verbalized_confidence": True},
         "'verbalized_confidence' must be a number from 0 to 1, not True"),
    ],
)  # fmt: skip
def test_every_mistake_has_its_sentence(path: Path, row: Any, message: str) -> None:
    """Each mistake has a sentence with its line."""
    assert sentence(path, json.dumps(row).encode()) == f"1: {message}"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"question": "q"', "1: not JSON: Expecting ',' delimiter at column 17"),
        (b'{"question": "a\tb"}', "1: not JSON: Invalid control character at column 16"),
        (b'{"question": "a', "1: not JSON: Unterminated string starting at column 14"),
        (b"not json", "1: not JSON: Expecting value at column 1"),
        (b'{"question": "\xff"}', "1: not UTF-8: invalid start byte at byte 14"),
        (b"[" * 100_000, "1: nested too deeply"),
    ],
)
def test_lines_that_are_no_json(path: Path, line: bytes, message: str) -> None:
    """A line that is no JSON is reported with its place, even if nested too deep."""
    assert sentence(path, line) == message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"question,response,correct\nq,r,1\nq,r,0\n", "this looks like a CSV file"),
        (b'"id";"question";"response"\n1;q;r\n', "this looks like a CSV file"),
        (b"question\tresponse\nq\tr\n", "this looks like a CSV file"),
        (b'[{"question": "q"},\n{"question": "p"}]\n', "this is one JSON array"),
        (b'[\n{"question": "q"}\n]\n', "this is one JSON array"),
        (b"PAR1\x15\x04\n\x15\n", "this is a Parquet file"),
    ],
)
def test_files_of_another_form_are_refused_once(path: Path, content: bytes, message: str) -> None:
    """A file of another format is refused once, with the line of pandas that converts it."""
    path.write_bytes(content)
    [(number, error)] = read_rows(path)
    assert number == 1
    assert isinstance(error, RowError)
    assert message in error.message
    assert '.to_json("rows.jsonl", orient="records", lines=True)' in error.message


@pytest.mark.parametrize(
    ("pack", "message"),
    [
        (lzma.compress, "this is an xz file"),
        (bz2.compress, "this is a bzip2 file"),
        (zstandard.ZstdCompressor().compress, "this is a zstd file"),
        (lambda _: b"PK\x03\x04\x14\x00\x00\x00", "this is a zip archive or a spreadsheet"),
    ],
)
def test_packed_files_are_refused_once(
    path: Path, pack: Callable[[bytes], bytes], message: str
) -> None:
    """A file packed otherwise than by gzip is refused once, with its kind."""
    path.write_bytes(pack(b'{"question": "q", "response": "r", "correct": 1}\n' * 99))
    [(_, error)] = read_rows(path)
    assert str(error).endswith(f"{message}; save its rows as JSON lines, plain or gzipped")


@pytest.mark.parametrize("label", ["0", "1", "true", "False"])
def test_labels_in_quotes_are_refused(path: Path, label: str) -> None:
    """A label in quotes is refused with that reason."""
    line = json.dumps({"question": "q", "response": "r", "correct": label}).encode()
    assert f"'correct' must be 0 or 1, without quotes, not '{label}'" in sentence(path, line)


def test_absurd_numbers_are_a_bad_row(path: Path) -> None:
    """A number of thousands of digits is a bad row."""
    assert sentence(path, b'{"correct": ' + b"1" * 5_000 + b"}").startswith("1: Exceeds the limit")


def test_images_are_a_bad_row(path: Path) -> None:
    """A row with an image is a bad row for a calibrator of text."""
    messages = [{"role": "user", "content": [{"type": "image_url"}]}]
    line = json.dumps({"messages": messages, "response": "a"}).encode()
    assert sentence(path, line).startswith("1: the question has an image")
    with pytest.raises(NotScorableError):
        parse_row(json.loads(line))


URL = data_url(PNG)
SHOWN: Json = {"type": "image_url", "image_url": {"url": URL}}


@pytest.mark.parametrize(
    ("fields", "question", "answer"),
    [
        ({"messages": [{"role": "user", "content": [SHOWN, "Q"]}], "response": "a"}, "Q", "a"),
        ({"question": "Q", "images": [URL], "response": "a"}, "Q", "a"),
        (
            {"prompt": "a cat", "image": URL},
            "Does this image accurately depict: *a cat*?",
            "Yes",
        ),
    ],
)
def test_rows_with_images(fields: Json, question: str, answer: str) -> None:
    """Images are read from messages or beside the question, or ignored (C03, R01)."""
    row = parse_row(fields, "read")
    assert (row.question, row.answer, row.images) == (question, answer, (PNG,))
    messages = fields.get("messages", ())
    assert row.item() == Item(question, answer, images=(PNG,), messages=messages)
    assert not row.lacks_images
    ignored = parse_row(fields, "ignore")
    assert (ignored.item().images, ignored.lacks_images) == ((), True)
    with pytest.raises(NotScorableError):
        parse_row(fields)


def test_a_row_of_text_lacks_no_images() -> None:
    """A row without images is read the same in each way."""
    uses: list[ImageUse] = ["refuse", "read", "ignore"]
    assert {parse_row(GOOD, use).lacks_images for use in uses} == {False}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"images": "x"}, "1: 'images' must be a list of data URLs, not str"),
        ({"images": [5]}, "1: an image's part has neither its bytes nor a URL"),
        ({"images": ["https://example.org/a.png"]}, "1: an image is elsewhere, under a URL"),
        ({"images": ["data:image/png;base64,!"]}, "1: an image's data is no base64"),
        ({"images": [URL] * 9}, "1: the question has 9 images, at most 8"),
        ({"response": None, "prompt": 5, "image": URL}, "1: 'response' must be a string"),
    ],
)
def test_bad_images_are_a_bad_row(path: Path, fields: Json, message: str) -> None:
    """A bad image is reported with its line, and nothing is fetched."""
    path.write_text(json.dumps({"question": "Q", "response": "a", **fields}))
    [(_, error)] = read_rows(path, "read")
    assert str(error).removeprefix(f"{path}:").startswith(message)


def test_an_image_without_its_prompt_is_a_bad_row(path: Path) -> None:
    """An image without its prompt is a bad row."""
    path.write_text(json.dumps({"image": URL}))
    [(_, error)] = read_rows(path, "read")
    assert str(error).endswith("'response' is missing")


def test_a_bad_row_does_not_stop_the_others(path: Path) -> None:
    """Reading goes on after a bad row, and blank lines are counted."""
    found = read(path, LINE + b"\n" + b"{\n" + b"  \r\n" + LINE + b"[]")
    assert [(line, type(row)) for line, row in found] == [
        (1, Row),
        (3, RowError),
        (5, Row),
        (6, RowError),
    ]
    errors = [row for _, row in found if isinstance(row, RowError)]
    assert [(error.source, error.line) for error in errors] == [(str(path), 3), (str(path), 6)]


@given(st.binary(max_size=60) | st.text('{}[]":,\\ a1ne', max_size=30).map(str.encode))
def test_any_line_is_a_row_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, line: bytes
) -> None:
    """Any line gives a row or an error."""
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    for _, row in read(path, line):
        assert isinstance(row, Row | RowError)


# --- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rows.jsonl.gz", "rows.jsonl", "rows"])
def test_gzip_is_recognised_by_its_bytes(tmp_path: Path, name: str) -> None:
    """Gzip is recognised by its bytes, also with several members."""
    ((line, first), (_, second)) = read(tmp_path / name, gzip.compress(LINE) + gzip.compress(LINE))
    assert line == 1
    assert first == second


def test_a_byte_order_mark_is_passed_over(path: Path) -> None:
    """A byte order mark is skipped."""
    ((_, row),) = read(path, b"\xef\xbb\xbf" + LINE)
    assert isinstance(row, Row)


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_other_encodings_are_refused_as_a_whole(path: Path, encoding: str, mark: str) -> None:
    """UTF-16 and UTF-32 are refused for the whole file."""
    content = (mark + LINE.decode() * 3).encode(encoding)
    assert sentence(path, content) == (
        "1: the file begins as UTF-16 or UTF-32 does; save it as UTF-8"
    )


def test_windows_line_ends(path: Path) -> None:
    """CRLF ends a line too, and the last line needs no end."""
    found = read(path, LINE.strip() + b"\r\n" + LINE.strip())
    assert [type(row) for _, row in found] == [Row, Row]


@pytest.mark.parametrize("lost", [1, 8, 40])
def test_a_file_that_breaks_off_ends_with_an_error(path: Path, lost: int) -> None:
    """A file that is cut off gives the rows before and an error with its line."""
    packed = gzip.compress(LINE * 50)
    *_, (line, error) = read(path, packed[:-lost])
    assert isinstance(error, RowError)
    assert "the file breaks off" in str(error)
    assert 1 <= line <= 51


def test_damaged_gzip_ends_with_an_error(path: Path) -> None:
    """Damaged gzip gives an error."""
    assert "the file breaks off" in sentence(path, b"\x1f\x8b" + b"x" * 100)


def test_an_endless_line_is_an_error(path: Path) -> None:
    """A line of more than 16 MB ends the file with an error."""
    found = read(path, LINE + b'{"question": "' + b"x" * MAX_LINE_BYTES + b'"}\n' + LINE)
    assert [type(row) for _, row in found] == [Row, RowError]
    assert str(found[1][1]) == (
        f"{path}:2: longer than {MAX_LINE_BYTES} bytes; the file is read no further"
    )


def test_an_empty_file_has_no_rows(path: Path) -> None:
    """An empty file has no rows."""
    assert read(path, b"") == read(path, b"\n\n") == []


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    """A missing file is a FileNotFoundError."""
    with pytest.raises(FileNotFoundError):
        list(read_rows(tmp_path / "nowhere.jsonl"))


@pytest.mark.parametrize("id", [7, 7.0, "7"])
def test_a_questions_id_may_be_a_whole_number(id: object) -> None:
    """A question's id may be a whole number, equal to its text."""
    raw = {"question": "q", "response": "r", "correct": 1, "question_id": id}
    assert parse_row(raw).question_id == "7"


@pytest.mark.parametrize("id", [True, 1.5, ["7"]])
def test_other_values_are_no_questions_id(id: object) -> None:
    """Any other value of a question's id is refused."""
    with pytest.raises(ValueError, match="'question_id' must be a string"):
        parse_row({"question": "q", "response": "r", "correct": 1, "question_id": id})
