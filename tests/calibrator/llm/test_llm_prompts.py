"""Prompts of language-model calibrators (checklist B07, F01-F08, W02-W05)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrator import CheckpointError, Item
from calibrator.checkpoints.llm_config import LlmConfig, PromptConfig, preset
from calibrator.llm.serving.prompts import Prompts, fill, load_prompts
from tests.builders.tiny_models import SPECIAL, OfFamily

NAMED = Item("2+2?", "4", source_model="GPT-5.6", benchmark="gpqa")
PAPER = preset("paper", source_models=["gpt-5.6"], benchmarks=["gpqa"])
RELEASED = preset("released-0.8b", metadata="explicit")


@pytest.fixture(scope="module")
def prompts(tiny_bases: OfFamily) -> Prompts:
    return load_prompts(PAPER, tiny_bases("qwen3_5"))


def reading(prompts: Prompts, **changes: Any) -> Prompts:
    """Return prompts with the same tokenizer and a changed configuration."""
    return Prompts(replace(prompts.config, **changes), prompts.tokenizer)


def test_the_prompt_is_the_papers(prompts: Prompts) -> None:
    """The prompt is the paper's (F01, B07)."""
    assert prompts.fill_template(NAMED) == (
        "Benchmark: gpqa\nSource model: GPT-5.6\nQuestion: 2+2?\nAnswer: 4\n"
        "Is the answer correct? (i) No (ii) Yes",
        False,
    )


def test_the_prompt_of_the_released_weights_is_theirs(prompts: Prompts) -> None:
    """The released weights have their own prompt (W03, V17)."""
    text, _ = reading(prompts, prompt=RELEASED.prompt).fill_template(NAMED)
    assert text.startswith("Benchmark: gpqa\nSource model: GPT-5.6\n\nQuestion: 2+2?\n\nAnswer: 4")
    assert text.endswith("\n\nBased on your analysis, is the answer correct? (i) No (ii) Yes")


@pytest.mark.parametrize(
    ("missing", "expected"),
    [("omit", "Question: q\nAnswer: a"), ("empty", "Benchmark: \nSource model: \nQuestion: q")],
)
def test_a_missing_tag_is_left_out_or_left_empty(
    prompts: Prompts, missing: Any, expected: str
) -> None:
    """A missing tag is left out or left empty (F07, W05)."""
    changed = replace(prompts.config.prompt, missing=missing)
    text, _ = reading(prompts, prompt=changed).fill_template(Item("q", "a"))
    assert text.startswith(expected)


@pytest.mark.parametrize(
    ("metadata", "model", "is_shown"),
    [
        ("auto", "gpt-5.6", True),
        ("auto", "GPT-5.6", True),
        ("auto", "unheard-of", False),
        ("explicit", "unheard-of", True),
        ("omit", "gpt-5.6", False),
    ],
)
def test_a_model_is_named_where_training_knew_it(
    prompts: Prompts, metadata: Any, model: str, is_shown: bool
) -> None:
    """A model is named only if training knew it, unless the checkpoint differs (B03, V18)."""
    text, _ = reading(prompts, metadata=metadata).fill_template(Item("q", "a", source_model=model))
    assert (f"Source model: {model}" in text) is is_shown


def test_question_and_answer_keep_their_beginnings(prompts: Prompts) -> None:
    """The first 1,500 characters of the question and 800 of the answer are kept (F02, F03)."""
    text, is_cut = prompts.fill_template(Item("q" * 1_501, "a" * 801))
    assert is_cut
    assert (text.count("q" * 1_500), text.count("q" * 1_501)) == (1, 0)
    assert (text.count("a" * 800), text.count("a" * 801)) == (1, 0)
    assert prompts.fill_template(Item("q" * 1_500, "a" * 800))[1] is False


def test_braces_of_a_question_are_no_fields(prompts: Prompts) -> None:
    """Braces in a text are no fields of the template."""
    text, _ = prompts.fill_template(Item("{answer} {x: 1}", "{question} {}"))
    assert "Question: {answer} {x: 1}\nAnswer: {question} {}\n" in text


@given(st.text(max_size=40), st.sampled_from(SPECIAL), st.text(max_size=40))
def test_no_text_can_act_as_the_chat_template(
    prompts: Prompts, before: str, token: str, after: str
) -> None:
    """Special tokens in a text cannot act as the chat template."""
    special = set(prompts.tokenizer.all_special_ids)
    hostile = f"{before}{token}{after}"
    [plain] = prompts.token_ids([Item("q", "a")])
    [ids] = prompts.token_ids([Item(hostile, hostile)])
    assert [id for id in ids if id in special] == [id for id in plain if id in special]


def test_an_open_block_of_reasoning_is_closed(prompts: Prompts) -> None:
    """An open block of reasoning is closed, and the label comes next (W04)."""
    [ids] = prompts.token_ids([NAMED])
    assert prompts.tokenizer.decode(ids).endswith("<think>\n\n</think>\n\n")


def test_a_place_inside_reasoning_is_refused(prompts: Prompts, tiny_bases: OfFamily) -> None:
    """A chat template that ends inside a block of reasoning is refused."""
    tokenizer = load_prompts(PAPER, tiny_bases("qwen3_5")).tokenizer
    tokenizer.chat_template = tokenizer.chat_template.replace("<think>\n", "<think>\nSo:")
    with pytest.raises(CheckpointError, match="inside a block of reasoning"):
        Prompts(PAPER, tokenizer)


@pytest.mark.parametrize("template", ["", "{{ messages[0].content }}" * 2, "{{ 1/0 }}", "{% if"])
def test_a_chat_template_that_loses_the_text_is_refused(
    prompts: Prompts, tiny_bases: OfFamily, template: str
) -> None:
    """A chat template that loses or repeats the text is refused."""
    tokenizer = load_prompts(PAPER, tiny_bases("qwen3_5")).tokenizer
    tokenizer.chat_template = template
    with pytest.raises(CheckpointError, match="chat template"):
        Prompts(PAPER, tokenizer)


@pytest.mark.parametrize("labels", [("(i", "(ii"), ("incorrect", "correct"), ("i", "zzzz")])
def test_labels_must_be_single_tokens(prompts: Prompts, labels: tuple[str, str]) -> None:
    """Labels must be single tokens (F08, B08).

    The first release read `(i` for `i`.
    """
    with pytest.raises(CheckpointError, match="is not one token at the answer's place"):
        reading(prompts, labels=labels)


def test_the_labels_tokens_are_theirs(prompts: Prompts) -> None:
    """The label tokens are `i` for incorrect and `ii` for correct."""
    assert prompts.tokenizer.convert_ids_to_tokens(list(prompts.label_ids)) == ["i", "ii"]


def test_an_image_comes_first_with_all_its_tokens(prompts: Prompts) -> None:
    """Images come before the question, each with all its tokens (F06)."""
    [row] = prompts.read([NAMED], [[3, 2]])
    [plain] = prompts.read([NAMED])
    is_image = [id == prompts.image_id for id in row.ids]
    assert sum(is_image) == 5
    text = prompts.tokenizer.decode(row.ids)
    assert text.count("<|vision_start|>") == 2
    assert text.index("<|vision_end|>") < text.index("Benchmark:")
    assert not any(id == prompts.image_id for id in plain.ids)


def test_half_a_surrogate_pair_is_read(prompts: Prompts) -> None:
    """Half a surrogate pair is read."""
    assert prompts.token_ids([Item("\ud83d", "a\udc00")])


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("Question: {question}", "needs"),
        ("{question} {answer} {gold}", "unknown field {gold}"),
    ],
)
def test_templates_are_checked(template: str, message: str) -> None:
    """A template must have question and answer, and no unknown field."""
    with pytest.raises(ValueError, match=message):
        PromptConfig(template)


@given(st.text(), st.text())
def test_filling_keeps_every_line_of_the_template(question: str, answer: str) -> None:
    """Filling keeps the template's own words, for any texts."""
    config: LlmConfig = PAPER
    values = {"benchmark": "", "source_model": "", "question": question, "answer": answer}
    text = fill(config.prompt, values)
    assert text == (
        f"Question: {question}\nAnswer: {answer}\nIs the answer correct? (i) No (ii) Yes"
    )
