"""Strict YAML: plain values with their lines, and a clear refusal of everything else."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policies import InvalidDocumentError, Problem, load_document, nearest, parse_document
from policies.reading.strict_yaml import MAX_BYTES
from policies.reading.yaml_builder import MAX_DEPTH, Value


def value_of(text: str, env: dict[str, str] | None = None) -> Value:
    return parse_document(text, "f.yaml", env).value


def refusal_of(text: str, env: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(InvalidDocumentError) as caught:
        parse_document(text, "f.yaml", env)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("'true'", "true"),
        ("", None),
        ("~", None),
        ("null", None),
        ("# only a comment", None),
        ("012", 12),
        ("-3", -3),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2026-01-31", "2026-01-31"),
        ("0x1F", "0x1F"),
        ("0.5", 0.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        (".nan", ".nan"),
        (".inf", ".inf"),
        ('"7"', "7"),
        ("| \n  7\n", "7\n"),
        ("{a: [1, x], b: {}}", {"a": [1, "x"], "b": {}}),
        ("on: no", {"on": "no"}),
        ("%YAML 1.1\n---\na: 1\n...\n", {"a": 1}),
        ("\ufeffa: 1", {"a": 1}),
    ],
)
def test_a_value_is_what_it_looks_like(text: str, value: Value) -> None:
    """Scalars follow YAML 1.2's core schema: only true and false are booleans."""
    parsed = value_of(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("a: 1\nb: 2\na: 3\n", ["f.yaml:3: duplicate key 'a', first on line 1"]),
        (
            "a: &x 1\nb: *x\n",
            [
                "f.yaml:1: anchor &x is not allowed; text that begins with & needs quotes",
                "f.yaml:2: alias *x is not allowed; text that begins with * needs quotes",
            ],
        ),
        ("*x : 1", ["f.yaml:1: alias *x is not allowed; text that begins with * needs quotes"]),
        ("<<: {a: 1}", ["f.yaml:1: merge keys are not allowed"]),
        ("a: !!str 1", ["f.yaml:1: tags are not allowed; text that begins with ! needs quotes"]),
        ("!x {a: 1}", ["f.yaml:1: tags are not allowed; text that begins with ! needs quotes"]),
        ("a: 1\n---\nb: 2\n", ["f.yaml:2: a second document starts here; a file holds one"]),
        ("1: a", ["f.yaml:1: a key must be text; put quotes around 1"]),
        ("true: a", ["f.yaml:1: a key must be text; put quotes around true"]),
        ("[a]: b", ["f.yaml:1: a key must be text"]),
        (r'"\ud83d\ude00": 1', ["f.yaml:1: surrogates are not text; write the character itself"]),
        ("a: 1e999", ["f.yaml:1: the number is too large"]),
        ("a: " + "9" * 5000, ["f.yaml:1: the number has too many digits; text needs quotes"]),
        ("a:\n  - \x07", ["f.yaml:2: the character U+0007 is not allowed"]),
        (r'"\UFFFFFFFF"', ["f.yaml:1: not valid YAML: a number is out of range"]),
        (
            "a: b: c",
            ["f.yaml:1: not valid YAML: mapping values are not allowed here"],
        ),
        (
            "a:\n\t- b",
            [
                "f.yaml:2: not valid YAML: found character '\\t' that cannot start any token, "
                "while scanning for the next token"
            ],
        ),
        (
            "%",
            [
                "f.yaml:1: not valid YAML: expected alphabetic or numeric character, "
                "but found the end of the file, while scanning a directive"
            ],
        ),
        (
            "model: *.turbo",
            [
                "f.yaml:1: not valid YAML: expected alphabetic or numeric character, but found "
                "'.', while scanning an alias; text that begins with * needs quotes"
            ],
        ),
        (
            "a: 1\na: 2\nb: [",
            [
                "f.yaml:2: duplicate key 'a', first on line 1",
                "f.yaml:3: not valid YAML: expected the node content, but found '<stream end>', "
                "while parsing a flow node",
            ],
        ),
    ],
)
def test_what_could_mislead_is_refused_with_its_line(text: str, problems: list[str]) -> None:
    """Misleading YAML is refused with file and line, all problems at once."""
    assert refusal_of(text) == problems


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "[{a: "])
def test_deep_nesting_is_a_problem_and_no_recursion_error(opening: str) -> None:
    """Deep nesting is refused at a fixed depth, without a RecursionError."""
    assert refusal_of(opening * 5000)[-1] == f"f.yaml:1: nested more than {MAX_DEPTH} levels deep"


def test_nesting_up_to_the_limit_is_fine() -> None:
    """Nesting up to the limit is read."""
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert value_of(text) != []
    assert refusal_of(f"[{text}]")


def test_lines_point_at_keys_and_items() -> None:
    """A location has the line of its key or item, or of the nearest existing ancestor."""
    document = parse_document(
        dedent("""\
        # a comment
        a: 1
        b:

          - c: x
            d: [1,
                2]
          - e
        """),
        "f.yaml",
    )
    assert document.line(()) == 2
    assert document.line(("a",)) == 2
    assert document.line(("b",)) == 3
    assert document.line(("b", 0)) == 5
    assert document.line(("b", 0, "d")) == 6
    assert document.line(("b", 0, "d", 1)) == 7
    assert document.line(("b", 1)) == 8
    assert document.line(("b", 0, "nowhere", 7)) == 5
    assert document.line(("nowhere",)) == 2
    assert parse_document("", "f.yaml").line(("a",)) == 1


ENV = {"HOST": "example.com", "PORT": "8001", "EMPTY": "", "FLAG": "true", "WORD": "yes"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${PORT}", 8001),
        ("'${PORT}'", "8001"),
        ('"${PORT}"', "8001"),
        ("${NOPE:-8000}", 8000),
        ("'${NOPE:-8000}'", "8000"),
        ("${FLAG}", True),
        ("${WORD}", "yes"),
        ("${EMPTY:-9}", 9),
        ("${EMPTY}", None),
        ("${NOPE:-}", None),
        ("'${NOPE:-}'", ""),
        ("1${PORT}", "18001"),
        ("${PORT}${PORT}", "80018001"),
        ("http://${HOST}:${PORT}/v1", "http://example.com:8001/v1"),
        ("${NOPE:-https://api.openai.com/v1}", "https://api.openai.com/v1"),
        ("$${PORT}", "${PORT}"),
        ("$PORT", "$PORT"),
        ("{a: '${HOST}'}", {"a": "example.com"}),
        ("'${HOST}': 1", {"${HOST}": 1}),
    ],
)
def test_environment_variables_are_substituted_in_values(text: str, value: Value) -> None:
    """An unquoted lone variable is read by YAML's rules; any other substitution gives text."""
    parsed = value_of(text, ENV)
    assert parsed == value
    assert type(parsed) is type(value)


def test_without_an_environment_nothing_is_substituted() -> None:
    """Without an environment `${PORT}` is ordinary text."""
    assert value_of("a: ${PORT}") == {"a": "${PORT}"}


def test_a_substituted_value_is_never_parsed_as_yaml_structure() -> None:
    """A substituted value is never parsed as YAML structure."""
    assert value_of("a: ${X}", {"X": "1\nb: 2"}) == {"a": "1\nb: 2"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "a: 1\nb: ${NOPE}",
            "f.yaml:2: environment variable NOPE is not set; ${NOPE:-...} gives it a default",
        ),
        (
            "a: ${1X}",
            "f.yaml:1: '${' must be ${NAME} or ${NAME:-default}; $${ is a literal '${'",
        ),
        (
            "a: ${NOPE:-${PORT}}",
            "f.yaml:1: '${' must be ${NAME} or ${NAME:-default}; $${ is a literal '${'",
        ),
        ("a: ${BAD}", "f.yaml:1: surrogates are not text; write the character itself"),
        (
            "a: {b: ${PORT}}",
            "f.yaml:1: not valid YAML: expected ',' or '}', but got '{', while parsing a flow "
            'mapping; inside braces or brackets "${NAME}" needs quotes',
        ),
    ],
)
def test_a_substitution_that_fails_is_a_problem(text: str, problem: str) -> None:
    """An unset variable, a malformed `${` and a value that is not text are refused."""
    assert refusal_of(text, {**ENV, "BAD": "\udcff"}) == [problem]


def test_a_file_is_read_as_utf_8(tmp_path: Path) -> None:
    """A file is read as UTF-8 with any line ends."""
    path = tmp_path / "good.yaml"
    path.write_bytes("a: schön\r\nb: 2\r\n".encode())
    document = load_document(path)
    assert document.value == {"a": "schön", "b": 2}
    assert document.source == str(path)
    assert document.line(("b",)) == 2


def test_a_file_that_cannot_be_read_is_one_clear_problem(tmp_path: Path) -> None:
    """Missing files, folders, impossible paths, other encodings and huge files are refused."""
    latin, huge, fits = tmp_path / "latin.yaml", tmp_path / "huge.yaml", tmp_path / "fits.yaml"
    latin.write_bytes(b"a: 1\nb: sch\xf6n\n")
    huge.write_bytes(b"#" * (MAX_BYTES + 1))
    fits.write_bytes(b"#" * MAX_BYTES)
    assert load_document(fits).value is None
    cases = {
        f"{tmp_path}/none.yaml": f"{tmp_path}/none.yaml: there is no such file",
        f"{tmp_path}": f"{tmp_path}: this is a folder, not a file",
        f"{latin}/x": f"{latin}/x: the file cannot be read: Not a directory",
        "a\0b": "a\0b: the file cannot be read: embedded null byte",
        f"{latin}": f"{latin}:2: this is not UTF-8 text",
        f"{huge}": f"{huge}: the document is larger than 1 MB",
    }
    for path, problem in cases.items():
        with pytest.raises(InvalidDocumentError) as caught:
            load_document(path)
        assert str(caught.value) == problem


def test_text_over_the_limit_is_refused_too() -> None:
    """Text over the limit is refused like a file."""
    assert refusal_of(" " * (MAX_BYTES + 1)) == ["f.yaml: the document is larger than 1 MB"]


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("blow", "below"), ("at_last", "at_least"), ("zzz", None), ("x" * 100_000, None)],
)
def test_the_nearest_name_is_suggested(name: str, suggestion: str | None) -> None:
    """The nearest name is suggested if it is close enough."""
    assert nearest(name, ["below", "at_least", "between"]) == suggestion


STRUCTURE = ("b: ", "- ", "? ", ": ", "\n", "  ", "\t", "[", "]", "{", "}", ",", "---", "...")
REFUSED = ("&x ", "*x", "<<", "!", "!!int ", "!<", "%YAML 1.", "%TAG ! ", "@", "`", "\0", "\ud800")
SCALARS = ("a", "'", '"', "\\U", "\\ud800", "|", ">", "|2-\n", "#", "1", "0.5", "9" * 31, "ü", "😀")
ODDITIES = ("${", "X:-", "$", "\x85", "\u2028", "\ufeff", "\r")
yaml_like = st.lists(st.sampled_from((*STRUCTURE, *REFUSED, *SCALARS, *ODDITIES)), max_size=40).map(
    "".join
)


@given(st.one_of(yaml_like, st.text()))
@example("%YAML 1." + "1" * 5000 + "\n---\na")
@example('"\\UFFFFFFFF"')
@example('"\\U00110000"')
def test_any_text_gives_a_document_or_one_kind_of_error(text: str) -> None:
    """Any text gives a document or an InvalidDocumentError with lines."""
    problems: tuple[Problem, ...] = ()
    try:
        parse_document(text, "f.yaml", {})
    except InvalidDocumentError as error:
        problems = error.problems
    assert all(problem.line > 0 for problem in problems)


# Beyond U+FFFF json.dumps writes surrogates, which are refused.
json_text = st.text(st.characters(codec="utf-8", max_codepoint=0xFFFF))
# YAML reads a key of at most 1,024 characters, and an escape has six.
json_key = st.text(st.characters(codec="utf-8", max_codepoint=0xFFFF), max_size=150)
json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | json_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(json_key, inner, max_size=4),
    max_leaves=12,
)


@given(json_like)
def test_json_reads_as_what_it_says(value: Value) -> None:
    """What json.dumps writes is read as the same value."""
    assert value_of(json.dumps(value)) == value
