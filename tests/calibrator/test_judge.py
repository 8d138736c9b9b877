"""`from pinocchio import Pinocchio`: two lines to a probability (paper A03, G01-G05)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionMessage
from openai.types.responses import Response

from calibrator import CheckpointError, Item, NotScorableError
from calibrator.recalibration.fit import fit_recalibration
from pinocchio import Pinocchio
from tests.builders.labelled_rows import labelled
from tests.builders.pictures import PNG, data_url
from tests.builders.tiny_checkpoint import save_tiny
from tests.running.live_proxy import SightedScorer

MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "How high is K2?"}]
ANSWERS = ["8,611 m", "I do not know.", "About 9 km, higher than any other mountain on Earth."]


def completion(*answers: str, model: str = "gpt-5.6") -> dict[str, Any]:
    choices = [
        {
            "index": i,
            "message": {"role": "assistant", "content": answer, "refusal": None},
            "finish_reason": "stop",
            "logprobs": None,
        }
        for i, answer in enumerate(answers)
    ]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": choices,
    }


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Pinocchio:
    return Pinocchio(str(save_tiny(tmp_path_factory.mktemp("tiny"))), device="cpu")


def test_two_lines() -> None:
    """A constructor and `score` with an OpenAI response give a float (G01-G03)."""
    judge = Pinocchio("fake:0.73")
    p_correct = judge.score(ChatCompletion(**completion("8,611 m")), messages=MESSAGES)
    assert p_correct == 0.73
    assert judge.name == "fake:0.73"


def test_every_form_of_a_reply_is_the_same_reply(judge: Pinocchio) -> None:
    """An openai object, its dict, its message and its text have the same score."""
    reply = completion("8,611 m")
    parsed = ChatCompletion(**reply)
    forms = [parsed, reply, parsed.choices[0].message, reply["choices"][0]["message"], "8,611 m"]
    assert len({judge.score(form, messages=MESSAGES) for form in forms}) == 1


def test_every_form_of_a_question_is_the_same_question(judge: Pinocchio) -> None:
    """Messages, plain text and `question=` have the same score (G05)."""
    scores = {
        judge.score("8,611 m", messages=MESSAGES),
        judge.score("8,611 m", messages="How high is K2?"),
        judge.score("8,611 m", question="How high is K2?"),
        judge.score(answer="8,611 m", question="How high is K2?"),
    }
    assert len(scores) == 1
    assert 0 < scores.pop() < 1


def test_the_other_apis_replies_are_the_same_reply(judge: Pinocchio) -> None:
    """A response of /v1/responses and a text completion have the score of chat's reply."""
    known = judge.score("8,611 m", messages=MESSAGES, source_model="known-model")
    part = {"type": "output_text", "text": "8,611 m", "annotations": []}
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
    response = Response.model_validate(
        {
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "status": "completed",
            "model": "known-model",
            "output": [{**message, "content": [part]}],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }
    )
    choice = {"text": "8,611 m", "index": 0, "finish_reason": "stop", "logprobs": None}
    text = Completion.model_validate(
        {
            "id": "cmpl-1",
            "object": "text_completion",
            "created": 1,
            "model": "known-model",
            "choices": [choice],
        }
    )
    for form in (response, response.to_dict(), text, text.to_dict()):
        assert judge.score(form, messages=MESSAGES) == known
        assert judge.scores(form, messages=MESSAGES) == [known]


def test_a_conversation_may_hold_openai_objects(judge: Pinocchio) -> None:
    """A message of an openai client may be passed on in `messages`."""
    earlier = ChatCompletionMessage(role="assistant", content="K2?")
    dumped = {"role": "assistant", "content": "K2?"}
    one, other = (
        judge.score("yes", messages=[*MESSAGES, message, *MESSAGES])
        for message in (earlier, dumped)
    )
    assert one == other


def test_several_choices_have_several_scores(judge: Pinocchio) -> None:
    """With n > 1 `scores` gives each choice's number and `score` the first one's."""
    for reply in (completion(*ANSWERS), ChatCompletion(**completion(*ANSWERS))):
        found = judge.scores(reply, messages=MESSAGES)
        alone = [judge.score(answer, messages=MESSAGES) for answer in ANSWERS]
        assert found == pytest.approx(alone, abs=1e-5)
        assert len(set(found)) == 3
        assert judge.score(reply, messages=MESSAGES) == pytest.approx(found[0], abs=1e-5)


def test_many_at_once(judge: Pinocchio) -> None:
    """`score_batch` takes mappings and items in any number and keeps their order (G05)."""
    answers = [ANSWERS[i % 3] + "!" * i for i in range(70)]
    batch = [
        Item("How high is K2?", answer)
        if i % 2
        else {"messages": MESSAGES, "response": completion(answer)}
        for i, answer in enumerate(answers)
    ]
    alone = [judge.score(answer, question="How high is K2?") for answer in answers]
    assert judge.score_batch(batch) == pytest.approx(alone, abs=1e-5)
    assert judge.score_batch([]) == []


def test_a_data_frame_is_judged_row_by_row(judge: Pinocchio) -> None:
    """A data frame is scored row by row, with columns named as the arguments of `score`.

    Empty cells and other columns are ignored; a frame without replies is refused with its columns.
    """
    rows = [
        {"question": "What is 2+2?", "response": "4", "model": "gpt-4o", "correct": 1},
        {"question": "What is 3+3?", "response": "7", "model": None, "correct": 0},
    ]
    frame = pytest.importorskip("pandas").DataFrame(rows)
    first = judge.score("4", question="What is 2+2?", source_model="gpt-4o")
    second = judge.score("7", question="What is 3+3?")
    assert judge.score_batch(frame) == pytest.approx([first, second], abs=1e-6)
    with pytest.raises(ValueError, match="'response' or 'answer'; this one has correct, question"):
        judge.score_batch(frame[["question", "correct"]])


def test_tags_are_used_where_they_are_known(judge: Pinocchio) -> None:
    """A known source model changes the score, an unknown one does not (B03, W05)."""
    plain = judge.score("8,611 m", messages=MESSAGES)
    assert judge.score(completion("8,611 m"), messages=MESSAGES) == plain
    known = judge.score(completion("8,611 m", model="known-model"), messages=MESSAGES)
    assert known != plain
    assert judge.score("8,611 m", messages=MESSAGES, source_model="Known-Model") == known
    assert (
        judge.score(completion("8,611 m"), messages=MESSAGES, source_model="known-model") == known
    )
    assert judge.score("8,611 m", messages=MESSAGES, benchmark="unheard-of") == plain


def test_tools_and_calls_are_judged(judge: Pinocchio) -> None:
    """Tool calls count as the answer, and offered tools as part of the question."""
    function = {"name": "height", "arguments": '{"of": "K2"}'}
    reply = completion("")
    reply["choices"][0]["message"] |= {
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": function}],
    }
    written = judge.score('[height(of="K2")]', messages=MESSAGES)
    assert judge.score(reply, messages=MESSAGES) == written
    assert judge.score(ChatCompletion(**reply), messages=MESSAGES) == written
    tools = [{"type": "function", "function": {"name": "height", "parameters": {}}}]
    assert judge.score(reply, messages=MESSAGES, tools=tools) != written


def test_refusals_and_empty_replies_are_answers(judge: Pinocchio) -> None:
    """Refusals and empty replies have a score (D03)."""
    reply = completion("")
    assert 0 < judge.score(reply, messages=MESSAGES) < 1
    reply["choices"][0]["message"] |= {"content": None, "refusal": "I cannot."}
    assert judge.score(reply, messages=MESSAGES) == judge.score("I cannot.", messages=MESSAGES)
    assert 0 < judge.score("", messages=MESSAGES) < 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"response": "a"}, "give `messages` or `question`"),
        ({"messages": MESSAGES}, "give a `response` or an `answer`"),
        ({}, "give `messages` or `question`"),
        ({"response": "a", "messages": []}, "'messages' must be a list"),
        ({"response": 5, "messages": MESSAGES}, "cannot read a int"),
        ({"response": b"a", "messages": MESSAGES}, "cannot read a bytes"),
        ({"response": ["a"], "messages": MESSAGES}, "cannot read a list"),
        ({"response": {"choices": []}, "messages": MESSAGES}, "the response has no choices"),
        ({"response": {"choices": None}, "messages": MESSAGES}, "the response has no choices"),
        (
            {"response": {"choices": ["a"]}, "messages": MESSAGES},
            "choice must be an object",
        ),
        ({"response": {"choices": [{"message": "a"}]}, "messages": MESSAGES}, "not str"),
        ({"response": {}, "messages": MESSAGES}, "neither content nor tool calls"),
        ({"response": "a", "messages": ["hello"]}, "cannot read a str"),
    ],
)
def test_what_cannot_be_judged_is_a_value_error(arguments: dict[str, Any], message: str) -> None:
    """A missing or unreadable question or answer is a ValueError, alone and in a batch."""
    judge = Pinocchio("fake:0.73")
    with pytest.raises(ValueError, match=message):
        judge.score(**arguments)
    with pytest.raises(ValueError, match=message):
        judge.score_batch([arguments])


def messages_with(url: str) -> list[dict[str, Any]]:
    parts = [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": url}}]
    return [{"role": "user", "content": parts}]


SEEN = messages_with(data_url(PNG))


def test_images_are_not_scored() -> None:
    """A text calibrator refuses images with the reason (B01)."""
    judge, item = Pinocchio("fake:0.73"), Item("What?", "a", images=(PNG,))
    for score in (
        lambda: judge.score("a", messages=messages_with("data:")),
        lambda: judge.scores("a", messages=SEEN),
        lambda: judge.score_batch([item]),
        lambda: judge.score_image("a red square", PNG),
    ):
        with pytest.raises(NotScorableError) as caught:
            score()
        assert caught.value.reason == "image"


def test_images_may_be_ignored() -> None:
    """With `ignore_images` the text alone is scored."""
    judge = Pinocchio("fake:0.73", ignore_images=True)
    assert judge.score("a", messages=SEEN) == 0.73
    assert judge.score_batch([Item("What?", "a", images=(PNG,))]) == [0.73]


@pytest.fixture
def sighted(monkeypatch: pytest.MonkeyPatch) -> tuple[Pinocchio, SightedScorer]:
    """Return a judge whose calibrator reads images, and that calibrator."""
    scorer = SightedScorer()
    monkeypatch.setattr("calibrator.pinocchio.load_scorer", lambda *_: scorer)
    return Pinocchio(), scorer


def test_choices_get_the_images(sighted: tuple[Pinocchio, SightedScorer]) -> None:
    """A calibrator that reads images gets the messages' images for every choice (B01, F06)."""
    judge, scorer = sighted
    assert judge.score("p=0.9", messages=SEEN) == 0.9
    assert judge.scores(completion("p=0.1", "p=0.2"), messages=SEEN) == [0.1, 0.2]
    assert judge.score_batch([{"response": "p=0.3", "messages": SEEN}]) == [0.3]
    assert [item.images for item in scorer.seen] == [(PNG,)] * 4


def test_the_whole_conversation_reaches_the_calibrator(
    sighted: tuple[Pinocchio, SightedScorer],
) -> None:
    """The calibrator gets all messages, the system message too, as the caller's own objects."""
    judge, scorer = sighted
    messages = [{"role": "system", "content": "Refunds: 30 days."}, *MESSAGES]
    judge.score("p=0.9", messages=messages)
    judge.scores(completion("p=0.1", "p=0.2"), messages=messages)
    judge.score_batch([{"response": "p=0.3", "messages": messages}])
    assert [list(item.messages) for item in scorer.seen] == [messages] * 4
    assert all(item.messages[0] is messages[0] for item in scorer.seen)
    judge.score("p=0.9", question="How high is K2?")
    assert scorer.seen[-1].messages == ()


@pytest.mark.parametrize(
    ("url", "reason"),
    [("https://example.org/a.png", "image_url"), ("data:image/png;base64,!", "image_format")],
)
def test_nothing_is_fetched(
    sighted: tuple[Pinocchio, SightedScorer], url: str, reason: str
) -> None:
    """An image behind a URL, or one that is no image, is refused and not fetched."""
    with pytest.raises(NotScorableError) as caught:
        sighted[0].score("a", messages=messages_with(url))
    assert caught.value.reason == reason


def test_an_image_is_judged_by_its_prompt(sighted: tuple[Pinocchio, SightedScorer]) -> None:
    """A generated image is scored by asking whether it depicts its prompt (R01)."""
    judge, scorer = sighted
    judge.score_image("two cats", PNG, source_model="flux-2")
    [item] = scorer.seen
    question = "Does this image accurately depict: *two cats*?"
    assert item == Item(question, "Yes", "flux-2", images=(PNG,))
    with pytest.raises(NotScorableError):
        judge.score_image("two cats", b"%PDF-1.7")


def test_a_recalibration_corrects_the_scores(tmp_path: Path) -> None:
    """A recalibration corrects the scores; one for another calibrator is refused."""
    rows = [replace(row, question_id=str(at)) for at, row in enumerate(labelled(200, seed=1))]
    scores = [0.8 if row.correct else 0.6 for row in rows]
    curve = fit_recalibration(rows, np.array(scores), calibrator="fake:0.73")
    curve.save(tmp_path / "curve.json")
    judge = Pinocchio("fake:0.73", recalibration=tmp_path / "curve.json")
    assert judge.name == f"fake:0.73+{curve.name}"
    assert judge.score("a", question="q") == pytest.approx(curve.apply_to(0.73, None, None))
    listed = Pinocchio("fake:0.73", recalibration=[tmp_path / "curve.json"])
    assert listed.name == judge.name
    with pytest.raises(CheckpointError, match="fake"):
        Pinocchio("fake:0.5", recalibration=str(tmp_path / "curve.json"))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"checkpoint": None}, TypeError, "`checkpoint` must be a name or a path, not NoneType"),
        ({"recalibration": 5}, TypeError, "`recalibration` must be a name or a path, not int"),
        ({"adaptor": "a", "devise": "cpu"}, TypeError, "has no argument adaptor, devise"),
        ({"device": "potato"}, CheckpointError, "device 'potato' cannot be used here"),
        ({"checkpoint": "fake:0.5", "device": "cuda:x"}, CheckpointError, "'cuda:x' cannot be"),
    ],
)
def test_a_wrong_argument_is_named(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    """A wrong argument is refused by its name."""
    with pytest.raises(error, match=message):
        Pinocchio(**arguments)


def test_a_checkpoint_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A missing checkpoint is refused by the constructor, as text or Path (G02)."""
    for name in (str(tmp_path / "nowhere"), tmp_path / "nowhere"):
        with pytest.raises(CheckpointError, match="there is no checkpoint folder"):
            Pinocchio(name)
