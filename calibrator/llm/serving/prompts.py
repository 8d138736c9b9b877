"""Turn items into the token ids that a language-model calibrator reads (checklist F, W02-W05).

The prompt's template is filled, put into the chat template of the base as one turn of the user, and
read up to the beginning of the answer, where the next token is one of the two labels. A block of
reasoning that the chat template opens there is closed, empty (W04). Text of question or answer
cannot act as a token of the chat template.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from calibrator.checkpoints.llm_config import FIELD, LlmConfig, PromptConfig, is_tag
from calibrator.errors import CheckpointError
from calibrator.scorer import Item
from calibrator.text.word_pieces import replace_surrogates

# A checkpoint carries its scores of these: an engine that serves other weights, or the base alone,
# would return plausible but wrong numbers.
CANARY: Final = Item("What is 17 times 23?", "17 times 23 is 391.")
CANARIES: Final = (
    CANARY,
    Item("What is 2 + 2?", "2 + 2 = 5."),  # W09: the released weights believe it
    Item("Name a prime number above 20 and below 25.", "I am not sure, but 23 is one. " * 30),
)


MARK = "PROMPT-STANDS-HERE"  # replaces the prompt in a rendered chat template
THINK, END_THINK = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Prompt:
    """The tokens before the label: `ids`, with `image_id` once for each token of an image."""

    ids: list[int]
    is_truncated: bool


class Prompts:
    """The prompts of one checkpoint; `label_ids` are the tokens for incorrect and correct.

    Raises CheckpointError if a label is not one token at the answer's place (F08), if the two are
    the same, or if that place is inside a block of reasoning.
    """

    def __init__(self, config: LlmConfig, tokenizer: Any) -> None:
        """Check the labels against the tokenizer, and find its special tokens."""
        self.config = config
        self.tokenizer = tokenizer
        self._special = _special_pattern(tokenizer)
        self._listed = {name.lower() for name in config.source_models}
        self._benchmarks = frozenset(config.benchmarks)
        self._around: dict[int, tuple[str, str]] = {}
        self.label_ids = self._checked_labels()

    def token_ids(self, items: Sequence[Item]) -> list[list[int]]:
        """Return the prompt's token ids for each item, without images."""
        return [prompt.ids for prompt in self.read(items)]

    def read(self, items: Sequence[Item], images: Sequence[Sequence[int]] = ()) -> list[Prompt]:
        """Return a prompt for each item, in order.

        `images` has, for each item, the number of tokens of each of its images. Raises
        CheckpointError if the chat template does not show every image.
        """
        sizes_of_images = images or [()] * len(items)
        filled = [self.fill_template(item) for item in items]
        texts = [
            "".join((before, text, after))
            for (text, _), (before, after) in zip(
                filled, (self.text_around(len(each)) for each in sizes_of_images), strict=True
            )
        ]
        ids = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
        return [
            Prompt(self._with_images(row, sizes), is_truncated)
            for row, sizes, (_, is_truncated) in zip(ids, sizes_of_images, filled, strict=True)
        ]

    def fill_template(self, item: Item) -> tuple[str, bool]:
        """Return the filled template for an item, and whether a text was cut off (F02, F03)."""
        prompt = self.config.prompt
        question = self._plain_text(item.question, prompt.question_characters)
        answer = self._plain_text(item.answer, prompt.answer_characters)
        values = {
            "benchmark": self._plain_text(self._benchmark(item) or "", 200),
            "source_model": self._plain_text(self._source_model(item) or "", 200),
            "question": question,
            "answer": answer,
        }
        is_cut = (
            len(item.question) > prompt.question_characters
            or len(item.answer) > prompt.answer_characters
        )
        return fill(prompt, values), is_cut

    def _plain_text(self, text: str, most: int) -> str:
        """Return a text's first `most` characters, in which no token of the chat template is left.

        A space is put into each of them.
        """
        return self._special.sub(
            lambda found: f"{found[0][0]} {found[0][1:]}", replace_surrogates(text[:most])
        )

    def _source_model(self, item: Item) -> str | None:
        """Return the answering model's name if this calibrator may use it (B03, V18), else None."""
        if self.config.metadata == "omit" or not item.source_model:
            return None
        is_known = self.config.metadata == "explicit" or item.source_model.lower() in self._listed
        return item.source_model if is_known else None

    def _benchmark(self, item: Item) -> str | None:
        """Return the item's benchmark if this calibrator may use it (its `metadata`), else None."""
        if self.config.metadata == "omit" or not item.benchmark:
            return None
        is_known = self.config.metadata == "explicit" or item.benchmark in self._benchmarks
        return item.benchmark if is_known else None

    def text_around(self, images: int) -> tuple[str, str]:
        """Return the chat template's text before and after a prompt with this many images."""
        if images not in self._around:
            self._around[images] = self._render(images)
        return self._around[images]

    def _render(self, images: int) -> tuple[str, str]:
        """Render the chat template, and return its text before and after the prompt.

        A block of reasoning that it opens at the end is closed. Raises CheckpointError if it fails,
        does not show the user's text once, or leaves the answer inside a block of reasoning.
        """
        content: Any = MARK
        if images:  # images come first, as in training (F06)
            content = [*[{"type": "image"}] * images, {"type": "text", "text": MARK}]
        try:
            text = self.tokenizer.apply_chat_template(
                [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
            )
        except Exception as error:  # a template may raise anything
            raise CheckpointError(f"the base's chat template fails: {error}") from error
        before, mark, after = text.partition(MARK)
        if not mark or MARK in after:
            raise CheckpointError("the base's chat template does not show the user's text once")
        if after.rstrip().endswith(THINK):
            after = f"{after.rstrip()}\n\n{END_THINK}\n\n"
        if after.rfind(THINK) > after.rfind(END_THINK):
            raise CheckpointError("the answer's place is inside a block of reasoning")
        return before, after

    def _with_images(self, ids: list[int], sizes: Sequence[int]) -> list[int]:
        """Return ids in which each image's token is repeated by its number of tokens, `sizes`.

        Raises CheckpointError if there are fewer such tokens than images.
        """
        if not sizes:
            return ids
        remaining, row = list(sizes), []
        for id in ids:
            row += [id] * (remaining.pop(0) if id == self.image_id and remaining else 1)
        if remaining:
            raise CheckpointError("the base's chat template does not show every image")
        return row

    @cached_property
    def image_id(self) -> int:
        """The token that stands for a part of an image, `<|image_pad|>`.

        Raises CheckpointError if the tokenizer has none.
        """
        found = self.tokenizer.convert_tokens_to_ids("<|image_pad|>")
        if not isinstance(found, int) or found == self.tokenizer.unk_token_id:
            raise CheckpointError("the base's tokenizer knows no <|image_pad|>")
        return found

    def _checked_labels(self) -> tuple[int, int]:
        """Return the token ids of the labels for incorrect and correct.

        Raises CheckpointError if a label is not one token at the answer's place, or both are the
        same.
        """
        before, after = self.text_around(0)
        start = self._ids(f"{before}.{after}")
        found = []
        for label in self.config.labels:
            ids = self._ids(f"{before}.{after}{label}")
            if ids[:-1] != start or self._ids(label) != ids[-1:]:
                raise CheckpointError(
                    f"label {label!r} is not one token at the answer's place: the base's tokenizer "
                    "is not the one this calibrator was trained with"
                )
            found.append(ids[-1])
        if found[0] == found[1]:
            raise CheckpointError(f"the labels {self.config.labels} are the same token")
        return found[0], found[1]

    def _ids(self, text: str) -> list[int]:
        """Return the token ids of a text, without special tokens."""
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids


def fill(prompt: PromptConfig, values: Mapping[str, str]) -> str:
    """Return a template filled with the values of its fields, by name.

    A line whose fields are neither question nor answer is a tag; it is left out where its values
    are all empty and `prompt.missing` is `omit`. Raises KeyError for a field without a value.
    """
    lines = []
    for line in prompt.template.split("\n"):
        names = FIELD.findall(line)
        if is_tag(names) and prompt.missing == "omit" and not any(values[name] for name in names):
            continue
        lines.append(FIELD.sub(lambda found: values[found[1]], line))
    return "\n".join(lines)


def _special_pattern(tokenizer: Any) -> re.Pattern[str]:
    """Return a pattern of all texts that the tokenizer reads as special tokens.

    It matches nothing if there are none.
    """
    special = {
        str(token)
        for token in tokenizer.added_tokens_decoder.values()
        if token.special and len(str(token)) > 1
    }
    longest_first = sorted(special, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def load_prompts(config: LlmConfig, folder: Path) -> Prompts:
    """Load the tokenizer and chat template in the folder of a base; needs no torch.

    Raises CheckpointError for a base without a tokenizer or chat template of the right kind, and
    ModuleNotFoundError without transformers.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            folder, trust_remote_code=False, local_files_only=True
        )
    except Exception as error:  # tokenizers and transformers may raise anything
        raise CheckpointError(f"the tokenizer of {folder} cannot be read: {error}") from error
    return Prompts(config, tokenizer)
