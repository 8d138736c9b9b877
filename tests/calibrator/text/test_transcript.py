"""From messages and completions to the two texts that a calibrator reads (paper B01, D03, F09)."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrator import NotScorableError, Question
from calibrator.text.replies import response_message
from calibrator.text.transcript import (
    HISTORY_CHARACTERS,
    TOOLS_CHARACTERS,
    calls_text,
    content_text,
    message_text,
    read_question,
    tools_text,
)

Json = dict[str, Any]


def question_text(messages: Any, tools: Any = None) -> str:
    return read_question(messages, tools).text


def user(content: Any) -> Json:
    return {"role": "user", "content": content}


def call(name: str, arguments: Any) -> Json:
    return {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}


WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather.",
        "parameters": {"type": "object"},
        "strict": True,
    },
}
OFFERED = (
    "Available functions (JSON):\n"
    '[{"name": "weather", "description": "The weather.", "parameters": {"type": "object"}}]'
)

# --- the question -------------------------------------------------------------------------------


def test_one_message_is_the_question() -> None:
    """A single user message is the question."""
    assert question_text([user("How high is K2?")]) == "How high is K2?"


def test_system_prompts_are_left_out() -> None:
    """System and developer messages are no part of the question."""
    messages = [{"role": "system", "content": "s"}, {"role": "developer", "content": "d"}]
    assert question_text([*messages, user("q")]) == "q"


def test_earlier_turns_stand_before_the_question() -> None:
    """Earlier turns come before the question (W06)."""
    messages = [user("a"), {"role": "assistant", "content": "b"}, user("c")]
    assert question_text(messages) == "[user] a\n[assistant] b\n\nc"


def test_long_history_keeps_its_recent_end() -> None:
    """Of a long history the recent end is kept; the question is never cut."""
    messages = [user("x" * 5_000 + "recent"), user("q" * 5_000)]
    history, question = question_text(messages).split("\n\n")
    assert (len(history), question) == (HISTORY_CHARACTERS, "q" * 5_000)
    assert history.endswith("recent")


def test_results_of_tools_follow_the_question() -> None:
    """Calls and results since the last user message follow the question."""
    messages = [
        user("weather in Oslo?"),
        {"role": "assistant", "content": None, "tool_calls": [call("weather", '{"city": "Oslo"}')]},
        {"role": "tool", "tool_call_id": "c", "content": "rain"},
    ]
    assert question_text(messages, [WEATHER]) == (
        "User request: weather in Oslo?\n\n"
        '[assistant] [weather(city="Oslo")]\n[tool] rain\n\n' + OFFERED
    )


def test_without_a_user_the_last_message_is_the_question() -> None:
    """Without a user message the last message is the question."""
    assert question_text([{"role": "system", "content": "go on"}]) == "go on"


def test_offered_tools_follow_the_request() -> None:
    """Offered tools follow the request, as in the training data (F01)."""
    assert question_text([user("q")], [WEATHER]) == f"User request: q\n\n{OFFERED}"


def test_many_tools_are_cut() -> None:
    """A long list of tools is cut."""
    assert len(tools_text([WEATHER] * 1_000)) == TOOLS_CHARACTERS + len(
        "Available functions (JSON):\n"
    )


def test_custom_tools_are_tools() -> None:
    """A tool with free text as its input is written like any other."""
    custom = {"type": "custom", "custom": {"name": "shell", "description": "Runs it."}}
    assert '{"name": "shell", "description": "Runs it."}' in tools_text([custom])
    made = {"id": "c", "type": "custom", "custom": {"name": "shell", "input": "rm -r /"}}
    assert message_text({"content": None, "tool_calls": [made]}) == "[shell(rm -r /)]"


@pytest.mark.parametrize("tools", [None, [], {}, "x", 5, [None], [{"type": "web_search"}]])
def test_tools_that_are_no_functions_say_nothing(tools: Any) -> None:
    """Hosted tools and nonsense leave the question unchanged."""
    assert question_text([user("q")], tools) == "q"


@pytest.mark.parametrize("messages", [None, [], "hello", 5, {}, {"role": "user"}])
def test_messages_must_be_a_list(messages: Any) -> None:
    """Messages that are no list are refused with a ValueError."""
    with pytest.raises(ValueError, match="'messages' must be a list with at least one message"):
        question_text(messages)


@pytest.mark.parametrize("message", [None, "hello", 5, ["x"]])
def test_a_message_must_be_an_object(message: Any) -> None:
    """A message that is no object is refused with its type."""
    with pytest.raises(ValueError, match="a message must be an object, not "):
        question_text([user("q"), message])


# --- content ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, ""),
        ("", ""),
        ("a", "a"),
        ([], ""),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        ([{"type": "input_text", "text": "a"}, "b"], "a\nb"),
        ([{"type": "refusal", "refusal": "no"}], "no"),
        ([{"text": "a"}], "a"),
        ([{"type": "text", "text": None}, {"type": "unknown"}], ""),
    ],
)
def test_content_is_a_string_or_parts(content: Any, expected: str) -> None:
    """Content may be a string or parts, and a refusal is text (D03)."""
    assert content_text(content) == expected


@pytest.mark.parametrize("content", [5, 1.5, True, {"type": "text", "text": "a"}, [5], [["a"]]])
def test_other_content_is_refused(content: Any) -> None:
    """Other content is refused with a ValueError."""
    with pytest.raises(ValueError, match=r"must be (a string or a list|an object), not "):
        content_text(content)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("input_audio", "audio"),
        ("audio", "audio"),
        ("video_url", "video"),
        ("file", "file"),
        ("input_file", "file"),
    ],
)
def test_what_is_not_text_is_not_scored(kind: str, reason: str) -> None:
    """Audio, video and files are not scored, with the reason."""
    for messages in (
        [user([{"type": "text", "text": "what is this?"}, {"type": kind}])],
        [user([{"type": kind}]), user("and this?")],
    ):
        with pytest.raises(NotScorableError, match="no calibrator reads") as caught:
            question_text(messages)
        assert caught.value.reason == reason


# --- the answer ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"content": "a"}, "a"),
        ({"content": None, "refusal": "I cannot."}, "I cannot."),
        ({"content": None}, ""),
        ({"content": ""}, ""),
        ({}, ""),
        ({"reasoning_content": "hm", "content": "a"}, "hm\na"),
        ({"reasoning": "hm", "content": "a"}, "hm\na"),
        ({"content": "a", "tool_calls": [call("f", "{}")]}, "a\n[f()]"),
        ({"content": None, "function_call": {"name": "f", "arguments": "{}"}}, "[f()]"),
        ({"content": [{"type": "text", "text": "a"}]}, "a"),
        ({"content": "a", "refusal": 5, "reasoning_content": ["x"], "tool_calls": "x"}, "a"),
    ],
)
def test_everything_that_was_returned_is_the_answer(message: Json, expected: str) -> None:
    """Reasoning, refusals and empty replies are part of the answer (F09, D03)."""
    assert message_text(message) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"city": "Oslo", "days": 3}', 'f(city="Oslo", days=3)'),
        ('{"a": {"b": [1, null]}}', 'f(a={"b": [1, null]})'),
        ('{"größe": "ü"}', 'f(größe="ü")'),
        ({"a": 1}, "f(a=1)"),
        ("{}", "f()"),
        ("", "f()"),
        (None, "f()"),
        ("not json", "f(not json)"),
        ("[1]", "f([1])"),
        ('{"a": ' + "[" * 5_000, 'f({"a": ' + "[" * 5_000 + ")"),
        ('{"a": ' + "1" * 5_000 + "}", 'f({"a": ' + "1" * 5_000 + "})"),
    ],
)
def test_calls_are_written_as_the_training_data_writes_them(arguments: Any, expected: str) -> None:
    """Calls are written as in the training data, and damaged arguments unchanged."""
    assert calls_text([call("f", arguments)]) == f"[{expected}]"


def test_parallel_calls_are_all_there() -> None:
    """All parallel calls are in the answer, in order."""
    assert calls_text([call("f", "{}"), call("g", '{"a": 1}')]) == "[f(), g(a=1)]"


@pytest.mark.parametrize("calls", [None, [], "x", 5, {}, [None, 5, {}, {"function": "x"}]])
def test_calls_that_are_none_say_nothing(calls: Any) -> None:
    """Calls of another shape are skipped."""
    assert calls_text(calls) == ""


# --- hostile input ------------------------------------------------------------------------------

NAMES = [
    "role",
    "content",
    "text",
    "type",
    "tool_calls",
    "function",
    "arguments",
    "name",
    "refusal",
    "reasoning",
    "choices",
    "message",
    "custom",
    "function_call",
]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(json_values, json_values)
def test_any_json_is_text_or_an_error_of_ours(messages: Any, tools: Any) -> None:
    """Any JSON gives a text or one of the two errors."""
    with contextlib.suppress(ValueError, NotScorableError):
        assert isinstance(question_text(messages, tools), str)
    with contextlib.suppress(ValueError, NotScorableError):
        assert isinstance(message_text(response_message(messages)), str)


@pytest.mark.parametrize("role", [[[]], {}, None, 5, "", "system", ["tool"]])
def test_a_role_of_any_type_means_no_tools(role: Any) -> None:
    """A role of any type means no tools."""
    spoken = [{"role": role, "content": "a"}, user("b")]
    for messages in (spoken, [*spoken, {"role": role, "name": "c", "content": "d"}]):
        assert Question("b", messages=messages).tool_use({"content": "yes"}) is None


def test_two_ways_to_one_text_are_one_question() -> None:
    """Questions are equal by text and images, not by the messages they were made of."""
    messages = [{"role": "user", "content": "Why?"}]
    plain = Question("Why?")
    assert plain == Question("Why?", messages=messages)
    assert plain == Question("Why?", tools=[{"type": "function"}])
    assert plain == Question("Why?", conversation=lambda: messages)
    assert plain != Question("Why?", images=[{"type": "image_url"}])
