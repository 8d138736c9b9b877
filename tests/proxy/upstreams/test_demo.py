"""The demo upstream answers as OpenAI's API does, from a file whose labels are balanced."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any, Literal

import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types import Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel

from proxy.http.wire.upstream import UpstreamReply, UpstreamRequest
from proxy.upstreams.demo.answers import find_answers
from proxy.upstreams.demo.demo import DemoUpstream, first_question, questions, rows

Json = dict[str, Any]

TEXT = "Is 91 a prime number?"
STEPS = next(row.question for row in rows() if row.question_id == "rolls-sold")
REFUND = next(row.question for row in rows() if row.question_id == "refund-shipping")
REMINDERS = next(row.question for row in rows() if row.question_id == "two-reminders")
TICKET = next(row.question for row in rows() if row.question_id == "ticket-json")


async def send(method: str, path: str, body: bytes = b"") -> UpstreamReply:
    return await DemoUpstream(delay_s=0).send(UpstreamRequest(method, path, body=body))


async def post(question: Any, **fields: Any) -> UpstreamReply:
    body = {"model": "demo", "messages": [{"role": "user", "content": question}]} | fields
    return await send("POST", "/chat/completions", json.dumps(body).encode())


async def ask(question: Any, **fields: Any) -> ChatCompletion:
    """Return the completion; check that it has every member that OpenAI always sends."""
    reply = await post(question, **fields)
    assert reply.status == 200
    assert reply.header(b"content-type") == "application/json"
    body = json.loads(await reply.read())
    assert {"id", "object", "created", "model", "choices"} <= set(body)
    assert {"usage", "system_fingerprint"} <= set(body)
    for choice in body["choices"]:
        assert set(choice) == {"index", "message", "logprobs", "finish_reason"}
        assert {"role", "content", "refusal"} <= set(choice["message"])
    return ChatCompletion.model_validate(body, strict=True)


async def stream(question: Any, **fields: Any) -> list[ChatCompletionChunk]:
    """Return the chunks; check their members and that the stream ends with [DONE]."""
    reply = await post(question, stream=True, **fields)
    assert reply.status == 200
    assert (reply.header(b"content-type") or "").startswith("text/event-stream")
    *events, done, nothing = (await reply.read()).split(b"\n\n")
    assert (done, nothing) == (b"data: [DONE]", b"")
    chunks = [json.loads(event.removeprefix(b"data: ")) for event in events]
    for chunk in chunks:
        assert {"id", "object", "created", "model", "choices", "system_fingerprint"} <= set(chunk)
        for choice in chunk["choices"]:
            assert set(choice) == {"index", "delta", "logprobs", "finish_reason"}
    return [ChatCompletionChunk.model_validate(chunk, strict=True) for chunk in chunks]


def assembled(chunks: list[ChatCompletionChunk]) -> ChatCompletion:
    """Return the completion that OpenAI's own client assembles from a stream."""
    state = ChatCompletionStreamState()
    for chunk in chunks:
        state.handle_chunk(chunk)
    return state.get_final_completion()


def tools_of(question: str) -> list[Json]:
    return list(questions()[question][0].tools)


def calls_of(completion: ChatCompletion, choice: int = 0) -> list[tuple[str, Json]]:
    calls = completion.choices[choice].message.tool_calls or []
    functions = [call.function for call in calls if call.type == "function"]
    return [(function.name, json.loads(function.arguments)) for function in functions]


# demo.yaml


def test_the_file_is_balanced() -> None:
    """The file has 62 questions of 8 domains or more, and 90 answers, 40 to 60 % correct."""
    firsts = [found[0].correct for found in questions().values()]
    assert len(questions()) == 62
    assert len({row.question_id for row in rows()}) == 62
    assert len({row.domain for row in rows()}) >= 8
    assert len(rows()) >= 90
    assert 0.4 <= sum(row.correct for row in rows()) / len(rows()) <= 0.6
    assert 0.4 <= sum(firsts) / len(firsts) <= 0.6


def test_two_answers_are_a_right_and_a_wrong_one() -> None:
    """A question has one answer, or two of which one is right."""
    for found in questions().values():
        assert len(found) in (1, 2)
        assert len(found) == len({row.correct for row in found})


def test_an_answer_is_text_or_calls_of_its_tools() -> None:
    """Every answer has either content or calls that fit the definitions of the tools."""
    for row in rows():
        assert (row.content is None) == bool(row.calls)
        offered = {tool["function"]["name"]: tool["function"]["parameters"] for tool in row.tools}
        for call in row.calls:
            assert set(call["arguments"]) == set(offered[call["name"]]["required"])
            assert all(isinstance(value, (str, int, float)) for value in call["arguments"].values())


def test_the_file_has_every_kind_of_answer() -> None:
    """The file has right and wrong calls, parallel calls, refusals, an empty reply and JSON."""
    calling = Counter(row.correct for row in rows() if row.calls)
    refusals = ("can't help", "I don't know", "don't have access", "not able to")
    refused = [row for row in rows() if any(words in (row.content or "") for words in refusals)]
    assert len({row.question_id for row in rows() if row.calls}) >= 8
    assert min(calling[True], calling[False]) >= 3
    assert any(len(row.calls) > 1 for row in rows())
    assert len(refused) >= 5
    assert not any(row.correct for row in refused)
    assert [row.correct for row in rows() if row.content == ""] == [False]
    assert len({row.question_id for row in rows() if (row.content or "").startswith("{")}) == 2


@pytest.mark.parametrize("correct", [False, True])
async def test_first_questions_match_their_labels(correct: bool) -> None:
    """The first questions fit a command line and are answered wrongly or rightly as labelled."""
    question = first_question(correct=correct)
    assert len(question) < 60
    assert not set(question) & set("'\"\\$`")
    [choice] = (await ask(question)).choices
    assert questions()[question][0].content == choice.message.content
    assert questions()[question][0].correct is correct


async def test_the_strong_model_is_right_where_an_answer_is() -> None:
    """`demo-strong` gives the right one of the canned answers, and other models the first."""
    question = first_question(correct=False)
    right = next(row.content for row in questions()[question] if row.correct)
    [choice] = (await ask(question, model="demo-strong")).choices
    assert choice.message.content == right
    [other] = (await ask(question, model="demo-weak")).choices
    assert other.message.content != right


# Answers


async def test_each_choice_is_its_row() -> None:
    """Choice i of a canned question is its i-th row: message, finish reason and usage."""
    for question, found in questions().items():
        completion = await ask(question, n=len(found), tools=list(found[0].tools))
        assert [choice.index for choice in completion.choices] == list(range(len(found)))
        for choice, row in zip(completion.choices, found, strict=True):
            assert choice.message.content == row.content
            assert calls_of(completion, choice.index) == [
                (call["name"], call["arguments"]) for call in row.calls
            ]
            assert choice.finish_reason == ("tool_calls" if row.calls else "stop")
        assert completion.usage is not None
        assert completion.usage.prompt_tokens > 0


async def test_a_row_knows_its_message() -> None:
    """A row's message is the upstream's answer, so that a test can score it without HTTP."""
    row = questions()[REFUND][1]
    message = (await ask(REFUND, n=2, tools=tools_of(REFUND))).choices[1].message
    answered, known = message.model_dump(exclude_unset=True), row.message()
    answered["tool_calls"][0].pop("id")
    known["tool_calls"][0].pop("id")
    assert answered == known


@pytest.mark.parametrize(
    "question",
    [
        "  is 91\na PRIME number ",
        "Please, is 91 a prime number?",
        [{"type": "text", "text": TEXT}, {"type": "image_url", "image_url": {"url": "data:,"}}],
    ],
)
async def test_a_question_is_found_in_other_words(question: Any) -> None:
    """Case, white space, punctuation, one more word
    and a list of parts do not change a question.
    """
    assert (await ask(question)).choices[0].message.content == questions()[TEXT][0].content


@pytest.mark.parametrize(
    "question",
    [
        "",
        "Is 93 a prime number?",
        "Is -91 a prime number?",
        "Is 91 not a prime number?",
        "How many minutes does February have?",
        "Is a 91 prime number?",
        "Which island has the smaller area, Iceland or Ireland?",
        "Does the equator run through Tanzania, through Kenya, or through both?",
    ],
)
async def test_another_question_is_not_mistaken_for_a_canned_one(question: str) -> None:
    """A changed word, number or order makes another question, and the demo says what it knows."""
    content = (await ask(question)).choices[0].message.content or ""
    assert content.startswith("This is the demo upstream")
    assert f"{len(questions())} questions" in content
    suggested = [line.removeprefix("- ") for line in content.splitlines() if line.startswith("- ")]
    assert len(suggested) == 5
    assert set(suggested) <= set(questions())


async def test_the_last_user_message_counts() -> None:
    """In a conversation the user's last message is answered."""
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": STEPS},
        {"role": "assistant", "content": None},
        {"role": "user", "content": TEXT},
        {"role": "assistant", "content": "Let me see."},
    ]
    completion = await ask("", messages=messages)
    assert completion.choices[0].message.content == questions()[TEXT][0].content


async def test_no_two_completions_share_an_id() -> None:
    """Completions, calls and requests all have different ids."""
    replies = [await post(REFUND, n=2, tools=tools_of(REFUND)) for _ in range(2)]
    bodies = [ChatCompletion.model_validate_json(await reply.read()) for reply in replies]
    messages = [choice.message for body in bodies for choice in body.choices]
    calls = [call.id for message in messages for call in message.tool_calls or []]
    assert bodies[0].id.startswith("chatcmpl-demo-")
    assert len({body.id for body in bodies}) == 2
    assert len(set(calls)) == 4
    assert len({reply.header(b"x-request-id") for reply in replies}) == 2


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("question", [STEPS, REFUND])
async def test_a_long_answer_is_cut(name: str, question: str) -> None:
    """The limit of tokens cuts text and arguments, and is the finish reason."""
    whole = await ask(question, tools=tools_of(question))
    cut = await ask(question, tools=tools_of(question), **{name: 2})
    assert whole.usage is not None
    assert cut.usage is not None
    assert cut.usage.completion_tokens == 2 < whole.usage.completion_tokens
    assert cut.usage.total_tokens == cut.usage.prompt_tokens + 2
    assert cut.choices[0].finish_reason == "length"
    exact = await ask(question, tools=tools_of(question), **{name: whole.usage.completion_tokens})
    assert exact.choices[0].finish_reason == whole.choices[0].finish_reason


# Tools


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tools": tools_of(REMINDERS)},
        {"tools": tools_of(REFUND), "tool_choice": "none"},
        {
            "tools": tools_of(REFUND),
            "tool_choice": {"type": "function", "function": {"name": "other"}},
        },
    ],
)
async def test_a_tool_that_is_not_offered_is_not_called(fields: Json) -> None:
    """Without the tool, or where it must not be called, the demo says what it lacks."""
    completion = await ask(REFUND, **fields)
    assert completion.choices[0].finish_reason == "stop"
    assert not completion.choices[0].message.tool_calls
    assert "`refund_order`" in (completion.choices[0].message.content or "")


@pytest.mark.parametrize(
    "tool_choice",
    ["auto", "required", {"type": "function", "function": {"name": "refund_order"}}],
)
async def test_an_offered_tool_is_called(tool_choice: Any) -> None:
    """The canned call is made wherever the request allows it."""
    completion = await ask(REFUND, tools=tools_of(REFUND), tool_choice=tool_choice)
    assert calls_of(completion) == [("refund_order", {"order_id": "48213", "amount": 69.0})]


async def test_a_result_of_a_tool_ends_the_turn() -> None:
    """After a tool's result the demo answers in text, so that an agent's loop ends."""
    messages = [
        {"role": "user", "content": REFUND},
        questions()[REFUND][0].message(),
        {"role": "tool", "tool_call_id": "call_1", "content": "refunded"},
    ]
    completion = await ask("", messages=messages, tools=tools_of(REFUND))
    assert completion.choices[0].message.content == "The tool answered: refunded"


# Structured output


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (TICKET, {"category": "billing", "urgent": True}),
        (TEXT, {"answer": questions()[TEXT][0].content}),
    ],
)
async def test_json_object_is_sent_on_request(question: str, expected: Json) -> None:
    """A canned JSON answer stays unchanged, and any other one is wrapped in an object."""
    completion = await ask(question, response_format={"type": "json_object"})
    assert json.loads(completion.choices[0].message.content or "") == expected


class Step(BaseModel):
    explanation: str


class Verdict(BaseModel):
    """A schema with every kind of property that the demo fills."""

    steps: list[Step]
    answer: str
    number: float
    count: int
    is_prime: bool
    verdict: Literal["no", "yes"]
    version: Literal[1]
    note: str | None


def schema_format(schema: Any) -> Json:
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}


async def test_a_schema_is_filled() -> None:
    """The JSON of any answer is valid for the client's schema."""
    wanted = schema_format(Verdict.model_json_schema())
    for question in (TEXT, STEPS, TICKET, "unheard of"):
        completion = await ask(question, response_format=wanted)
        Verdict.model_validate_json(completion.choices[0].message.content or "", strict=True)
    completion = await ask(TEXT, n=2, response_format=wanted)
    parsed = [Verdict.model_validate_json(c.message.content or "") for c in completion.choices]
    assert [verdict.is_prime for verdict in parsed] == [True, False]
    assert [verdict.verdict for verdict in parsed] == ["yes", "no"]
    assert parsed[0].answer == questions()[TEXT][0].content


async def test_a_schema_keeps_what_a_canned_json_answer_says() -> None:
    """Properties of a canned JSON answer are kept in a schema, in any of the listed types."""
    properties = {"urgent": {"type": ["boolean", "null"]}, "category": {"enum": ["bug", "billing"]}}
    wanted = schema_format({"type": "object", "properties": properties})
    completion = await ask(TICKET, response_format=wanted)
    parsed = json.loads(completion.choices[0].message.content or "")
    assert parsed == {"urgent": True, "category": "billing"}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/Missing"},
        {"type": "object", "properties": {"self": {"$ref": "#"}}},
        {"type": "object", "properties": []},
    ],
)
async def test_a_schema_that_cannot_be_filled_is_refused(schema: Json) -> None:
    """A schema without a finite value is refused as the client's mistake."""
    reply = await post(TEXT, response_format=schema_format(schema))
    assert reply.status == 400
    assert json.loads(await reply.read())["error"]["param"] == "response_format"


# Streams


@pytest.mark.parametrize("question", [TEXT, STEPS, REFUND, REMINDERS, TICKET])
async def test_a_stream_says_the_same_as_a_completion(question: str) -> None:
    """OpenAI's client joins the chunks of both choices to the messages of a completion."""
    fields = {"n": 2, "tools": tools_of(question)}
    chunks = await stream(question, stream_options={"include_usage": True}, **fields)
    whole, streamed = await ask(question, **fields), assembled(chunks)
    assert len({chunk.id for chunk in chunks}) == 1
    assert streamed.usage == whole.usage
    assert len(streamed.choices) == len(whole.choices) == 2
    for ours, theirs in zip(streamed.choices, whole.choices, strict=True):
        assert (ours.message.content or None) == theirs.message.content
        assert calls_of(streamed, ours.index) == calls_of(whole, theirs.index)
        assert ours.finish_reason == theirs.finish_reason


async def test_a_stream_of_text_goes_from_role_to_finish() -> None:
    """The role comes first, then the content in several pieces, then the finish reason."""
    chunks = [chunk.choices[0] for chunk in await stream(TEXT)]
    first, *middle, last = chunks
    assert (first.delta.role, first.delta.content) == ("assistant", "")
    assert len(middle) > 3
    assert all(chunk.delta.content and chunk.finish_reason is None for chunk in middle)
    assert last.delta.model_dump(exclude_unset=True) == {}
    assert last.finish_reason == "stop"


async def test_a_streamed_call_comes_in_pieces() -> None:
    """Id and name of a call come first, with its index, then its arguments in pieces."""
    chunks = [chunk.choices[0] for chunk in await stream(REMINDERS, tools=tools_of(REMINDERS))]
    assert chunks[0].delta.content is None
    assert chunks[-1].finish_reason == "tool_calls"
    pieces = [call for chunk in chunks for call in chunk.delta.tool_calls or []]
    for index in (0, 1):
        opening, *rest = [piece for piece in pieces if piece.index == index]
        assert opening.id
        assert opening.function
        assert (opening.function.name, opening.function.arguments) == ("add_reminder", "")
        assert len(rest) >= 2
        assert all(piece.id is None for piece in rest)


async def test_the_choices_of_a_stream_take_turns() -> None:
    """With n > 1 the chunks of the choices alternate, as OpenAI sends them."""
    indices = [chunk.choices[0].index for chunk in await stream(TEXT, n=2)]
    assert indices[:6] == [0, 1, 0, 1, 0, 1]


async def test_an_empty_reply_streams() -> None:
    """An empty reply is streamed as a role and a finish reason."""
    empty = next(row for row in rows() if row.content == "")
    chunks = await stream(empty.question)
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, "stop"]


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}])
async def test_usage_is_streamed_on_request(options: Json | None) -> None:
    """Without include_usage no chunk has a usage member; with it the last one has the figures."""
    plain = await stream(TEXT, stream_options=options)
    assert all("usage" not in chunk.model_fields_set for chunk in plain)
    *chunks, last = await stream(TEXT, stream_options={"include_usage": True})
    assert all("usage" in chunk.model_fields_set and chunk.usage is None for chunk in chunks)
    assert last.choices == []
    assert last.usage == (await ask(TEXT)).usage


async def test_a_stream_can_be_closed_early() -> None:
    """When the client leaves, the stream ends."""
    reply = await post(STEPS, stream=True)
    await anext(reply.chunks)
    await reply.aclose()
    assert [chunk async for chunk in reply.chunks] == []


# Other requests


async def test_the_models_are_listed() -> None:
    """There is one model, `demo`, in the list and under its name."""
    listed = json.loads(await (await send("GET", "/models")).read())
    single = json.loads(await (await send("GET", "/models/demo")).read())
    assert listed == {"object": "list", "data": [single]}
    model = Model.model_validate(single, strict=True)
    assert (model.id, model.owned_by) == ("demo", "pinocchio")


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/embeddings"), ("GET", "/chat/completions"), ("GET", "/models/gpt-4o")],
)
async def test_other_urls_are_unknown(method: str, path: str) -> None:
    """Any other URL is a 404 in OpenAI's envelope."""
    reply = await send(method, path, b"{}")
    assert reply.status == 404
    assert json.loads(await reply.read())["error"] == {
        "message": f"Invalid URL ({method} /v1{path})",
        "type": "invalid_request_error",
        "param": None,
        "code": "unknown_url",
    }


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"messages": None}, "messages", "missing_required_parameter"),
        ({"model": None}, "model", "missing_required_parameter"),
        ({"messages": []}, "messages", "empty_array"),
        ({"messages": "hello"}, "messages", "invalid_type"),
        ({"messages": ["hello"]}, "messages", "invalid_type"),
        ({"tools": {}}, "tools", "invalid_type"),
        ({"n": 0}, "n", "invalid_value"),
        ({"n": 129}, "n", "invalid_value"),
        ({"n": True}, "n", "invalid_value"),
        ({"max_tokens": "7"}, "max_tokens", "invalid_value"),
    ],
)
async def test_a_bad_request_names_the_parameter(fields: Json, param: str, code: str) -> None:
    """A client's mistake is a 400 in OpenAI's envelope that names the parameter."""
    reply = await post(TEXT, **fields)
    error = json.loads(await reply.read())["error"]
    assert reply.status == 400
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
async def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    """A body that is no JSON object is a 400, however broken it is."""
    reply = await send("POST", "/chat/completions", body)
    assert reply.status == 400
    assert "JSON" in json.loads(await reply.read())["error"]["message"]


async def test_a_broken_character_does_no_harm() -> None:
    """Half a character, which JSON can express and UTF-8 cannot, is returned as a question mark."""
    assert (await ask(TEXT, model="demo\ud800")).model == "demo?"


def test_a_book_is_not_compared_with_canned_questions() -> None:
    """Megabytes around a known question make another question, and take no time."""
    known = first_question()
    assert find_answers(known)
    started = time.process_time()
    assert find_answers(known + " word" * 1_000_000) == ()
    assert time.process_time() - started < 0.5


async def test_the_judge_knows_the_labels_and_is_sometimes_wrong() -> None:
    """`demo-judge` says True or False of a canned answer, by
    log-probabilities where requested, and is wrong at times.
    """
    verdicts = []
    for row in rows():
        if not row.content:
            continue
        fenced = f"<answer 1>\n{row.content}\n</answer 1>"
        [choice] = (await ask(fenced, model="demo-judge", logprobs=True)).choices
        assert choice.message.content in ("True 90", "False 10")
        assert choice.logprobs is not None
        assert [token.token for token in choice.logprobs.content or ()] == [
            choice.message.content.split()[0]
        ]
        verdicts.append((choice.message.content == "True 90") == row.correct)
    assert 0.8 < sum(verdicts) / len(verdicts) < 0.95
    [choice] = (await ask("<answer 1>\nsomething else\n</answer 1>", model="demo-judge")).choices
    assert "no canned answer" in str(choice.message.content)
    assert choice.logprobs is None
