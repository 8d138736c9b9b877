"""`Pinocchio`: two lines to a probability (paper A03, G01-G03).

judge = Pinocchio()
p_correct = judge.score(response, messages=messages)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrator.errors import NotScorableError
from calibrator.loading import load_scorer, recalibrate_scorer
from calibrator.scorer import Item, Score, Scorer, reads_images
from calibrator.text.images import checked_image, local_images
from calibrator.text.replies import other_reply, reply_messages, to_mapping
from calibrator.text.transcript import Question, depiction, message_text, read_question

if TYPE_CHECKING:
    from calibrator.readers.evidence.facts.fact_file import FactFile

_ARGUMENTS = frozenset(
    {
        *("response", "messages", "tools", "question", "answer", "source_model", "model"),
        *("benchmark", "prompt_variant", "others"),
    }
)  # the columns of a DataFrame that are read


class Pinocchio:
    """A loaded calibrator that reads OpenAI responses, dicts and plain strings.

    `checkpoint` is `embedded`, a folder, a hub name or `fake:0.73`; `device` is `auto`, `cpu`,
    `cuda`, ..; `recalibration` is a file of `pinocchio recalibrate`, or a list of one for each kind
    of numbers; `facts` is a file of names and texts that replies are compared with, as JSON lines
    (docs/configuration.md). With `ignore_images` a calibrator that reads only text scores the text
    of a question with images; without it, such a question raises NotScorableError. Raises
    CheckpointError where there is no such checkpoint, recalibration or device, and InputError for
    facts that cannot be read.

    The keyword arguments of the authors' package load their calibrator, or `adapter` (G05):
    `base_model`, `device_map` (one device), `torch_dtype`, `use_placeholder_image`.
    """

    def __init__(
        self,
        checkpoint: str | PathLike[str] = "embedded",
        *,
        device: str = "auto",
        recalibration: str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
        facts: str | PathLike[str] | None = None,
        ignore_images: bool = False,
        **released: Any,
    ) -> None:
        """Load the calibrator; see the class for the arguments and the errors."""
        loaded = _load_by_name(_path("checkpoint", checkpoint), device, released)
        self._scorer = recalibrate_scorer(loaded, _files("recalibration", recalibration))
        self._facts: FactFile | None = None
        if facts is not None:
            from calibrator.readers.evidence.facts.fact_file import load_facts

            self._facts = load_facts(Path(_path("facts", facts)))
        self._variants: dict[str, Scorer] = {}
        self._reads_images = reads_images(self._scorer)
        self._ignores_images = ignore_images

    @property
    def name(self) -> str:
        """The checkpoint and its recalibration, the provenance of every number from this object."""
        return self._scorer.name

    def score(
        self,
        response: Any = None,
        *,
        messages: Sequence[Any] | str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        question: str | None = None,
        answer: str | None = None,
        source_model: str | None = None,
        benchmark: str | None = None,
        prompt_variant: str | None = None,
        others: Sequence[Any] = (),
    ) -> float:
        """Return P(correct) of a reply, 0 to 1; the first choice counts where it has several.

        `response` is a chat completion, a text completion, a response of `/v1/responses` (each of
        the `openai` package or a dict), a message, also Anthropic's, or the answer's text.
        `messages` is the conversation that it answers, as dicts or objects. Alternatively give
        `question` and `answer` as text. The answering model's name comes from the response unless
        `source_model` is given. `prompt_variant` is the name of one of a language model's other
        prompts. `others` are replies to the same question, of other models or of the same one asked
        again, in any order: text, responses, or `{"response": .., "model": ..}`. A calibrator
        without a second stage ignores them.

        Raises ValueError where question or answer is missing, also where `response` holds neither
        content nor tool calls; NotScorableError for what the calibrator does not read, and for
        images under a URL, since nothing is fetched here.
        """
        named = (source_model, benchmark, others)
        item = self._item(response, messages, tools, question, answer, *named)
        return self._score([item], prompt_variant)[0].confidence

    def assess(self, response: Any = None, **arguments: Any) -> Score:
        """Return the confidence of a reply with its basis and the objections to the reply.

        Takes the arguments of `score` but `prompt_variant`, and raises the same errors.
        `confidence` is the number that `score` returns; `basis`, `support`, `unsupported` and
        `because` describe the checks.
        """
        return self._score([self._item(response, **arguments)])[0]

    def scores(
        self,
        response: Any,
        *,
        messages: Sequence[Any] | str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        question: str | None = None,
        source_model: str | None = None,
        benchmark: str | None = None,
    ) -> list[float]:
        """Return P(correct), 0 to 1, of every choice of a response with n > 1, in their order.

        The arguments are those of `score`; raises the same errors.
        """
        request = _question(messages, tools, question)
        answers, model = _answers(response)
        name, images = source_model or model, self._images(request)
        items = [_make_item(request, a, name, benchmark, images) for a in answers]
        return [each.confidence for each in self._score(items)]

    def score_image(self, prompt: str, image: bytes, *, source_model: str | None = None) -> float:
        """Return P(an image depicts what its `prompt` asked for), 0 to 1 (paper R01).

        `image` is an encoded file. Raises NotScorableError, also where the calibrator reads no
        images.
        """
        if not self._reads_images:
            raise NotScorableError("image", f"{self.name} reads text only")
        question, answer = depiction(prompt)
        images = (checked_image(image),)
        [found] = self._score([Item(question, answer, source_model, None, None, images)])
        return found.confidence

    def score_batch(self, items: Iterable[Mapping[str, Any] | Item] | Any) -> list[float]:
        """Return P(correct) of many replies, in their order.

        `items` are mappings with the keyword arguments of `score`, or `Item`s, or a DataFrame
        (pandas, or any object with `columns` and `to_dict`) with these as columns. There, `model`
        is another name for `source_model`, other columns are ignored, and missing values count as
        not given. Raises ValueError for a DataFrame without a question or a reply.
        """
        read, variants = [], []
        for item in _records(items) if hasattr(items, "columns") else items:
            arguments = {} if isinstance(item, Item) else dict(item)
            variants.append(arguments.pop("prompt_variant", None))
            read.append(
                self._drop_images(item) if isinstance(item, Item) else self._item(**arguments)
            )
        confidences = [0.0] * len(read)
        for variant in set(variants):
            places = [at for at, each in enumerate(variants) if each == variant]
            found = self._score([read[at] for at in places], variant)
            for at, score in zip(places, found, strict=True):
                confidences[at] = score.confidence
        return confidences

    def _item(
        self,
        response: Any = None,
        messages: Any = None,
        tools: Any = None,
        question: str | None = None,
        answer: str | None = None,
        source_model: str | None = None,
        benchmark: str | None = None,
        others: Sequence[Any] = (),
    ) -> Item:
        """Build the item to score from the arguments of `score`; the first choice counts.

        Raises ValueError for unreadable ones, and NotScorableError as `score`.
        """
        request = _question(messages, tools, question)
        answers, model = _answers(response if answer is None else answer)
        name, images = source_model or model, self._images(request)
        item = _make_item(request, answers[0], name, benchmark, images)
        item.others = tuple(other_reply(request, each) for each in others)
        return item

    def _images(self, question: Question) -> tuple[bytes, ...]:
        """Return the question's encoded images for the calibrator; empty where it gets none.

        Raises NotScorableError for faulty images, for URLs, and where images can neither be read
        nor ignored.
        """
        if not question.images or self._leaves_out_images():
            return ()
        return local_images(question.images)

    def _drop_images(self, item: Item) -> Item:
        """Return an item without its images if these are to be ignored, else the same item.

        Raises NotScorableError where images can neither be read nor ignored.
        """
        return replace(item, images=()) if item.images and self._leaves_out_images() else item

    def _leaves_out_images(self) -> bool:
        """Return whether a question's images are ignored: the calibrator reads text only.

        Raises NotScorableError if they are not to be ignored either.
        """
        if not self._reads_images and not self._ignores_images:
            raise NotScorableError("image", f"the question has an image; {self.name} reads text")
        return not self._reads_images

    def _scorer_for(self, variant: str | None) -> Scorer:
        """Return the scorer with the prompt of this name; None is the scorer itself.

        It is made once and remembered. Raises ValueError where the calibrator has no prompts.
        """
        if variant is None:
            return self._scorer
        if variant not in self._variants:
            make = getattr(self._scorer, "variant", None)
            if make is None:
                raise ValueError(f"{self.name} is no language model: it has no prompt_variant")
            self._variants[variant] = make(variant)
        return self._variants[variant]

    def _score(
        self, items: Sequence[Item], variant: str | None = None, batch: int = 32
    ) -> list[Score]:
        """Return the scores of items in their order, computed in batches of similar length.

        The operator's facts, if any, are added to copies of the items. Raises CalibratorError.
        """
        scorer = self._scorer_for(variant)
        if (known := self._facts) is not None:
            items = [replace(item, facts=known.about_item(item)) for item in items]
        order = sorted(
            range(len(items)), key=lambda i: len(items[i].question) + len(items[i].answer)
        )
        scores: dict[int, Score] = {}
        for start in range(0, len(order), batch):  # items of similar length need little padding
            chosen = order[start : start + batch]
            scores |= zip(chosen, scorer.score_batch([items[i] for i in chosen]), strict=True)
        return [scores[i] for i in range(len(items))]


def _records(frame: Any) -> list[dict[str, Any]]:
    """Return the rows of a DataFrame as keyword arguments of `score`.

    `model` becomes `source_model` unless that is given; other columns and missing values are left
    out. Raises ValueError without columns for the question and the reply.
    """
    columns = set(map(str, frame.columns))
    if not columns & {"question", "messages"} or not columns & {"response", "answer"}:
        raise ValueError(
            "a DataFrame needs a column 'question' or 'messages', and 'response' or 'answer'; this "
            f"one has {', '.join(sorted(columns)) or 'no columns'}"
        )
    found = []
    for row in frame.to_dict("records"):
        kept = {key: row[key] for key in row.keys() & _ARGUMENTS if not _is_missing(row[key])}
        if "model" in kept:
            kept.setdefault("source_model", kept.pop("model"))
            kept.pop("model", None)
        found.append(kept)
    return found


def _is_missing(value: Any) -> bool:
    """Return whether a cell is empty: None, or NaN, which differs from itself."""
    return value is None or (isinstance(value, float) and value != value)


def _path(name: str, value: Any) -> str:
    """Return a path as text; raises TypeError, naming the argument `name`, for other values."""
    if not isinstance(value, str | PathLike):
        raise TypeError(f"`{name}` must be a name or a path, not {type(value).__name__}")
    return os.fspath(value)


def _files(name: str, value: Any) -> list[Path]:
    """Return one path, a list of paths or None as a list; raises TypeError as `_path`."""
    values = value if isinstance(value, list | tuple) else [] if value is None else [value]
    return [Path(_path(name, each)) for each in values]


def _load_by_name(checkpoint: str, device: str, released: Mapping[str, Any]) -> Scorer:
    """Load a checkpoint; with `released`, arguments of the authors' package, load their model.

    Raises TypeError for unknown arguments, and CalibratorError as `load_scorer`.
    """
    if not released:
        return load_scorer(checkpoint, device)
    from calibrator.llm.serving.released_api import load_released

    if strange := set(released) - set(signature(load_released).parameters):
        named = ", ".join(sorted(strange))
        raise TypeError(f"Pinocchio() has no argument {named}")
    return load_released(**{"device_map": None if device == "auto" else device, **released})


def _question(messages: Any, tools: Any, question: str | None) -> Question:
    """Return the question from `question`, or from messages or a text in `messages`.

    Raises ValueError without any and for unreadable messages, and NotScorableError as
    `read_question`.
    """
    if question is not None:
        return Question(question, tools=tools or ())
    if isinstance(messages, str):
        return Question(messages)
    if messages is None:
        raise ValueError("give `messages` or `question`: an answer alone cannot be judged")
    return read_question([_as_mapping(message) for message in messages], tools)


def _answers(response: Any) -> tuple[list[Mapping[str, Any]], str | None]:
    """Return the message of every choice of a response, and the model's name or None.

    A text is one message without a model's name. Raises ValueError for None and for values that are
    no response.
    """
    if response is None:
        raise ValueError("give a `response` or an `answer`")
    if isinstance(response, str):
        return [{"content": response}], None
    reply = _as_mapping(response)
    model = reply.get("model")
    return reply_messages(reply), model if isinstance(model, str) else None


def _make_item(
    question: Question,
    message: Mapping[str, Any],
    model: str | None,
    benchmark: str | None,
    images: tuple[bytes, ...],
) -> Item:
    """Return the item of one answer, `message`, to a question, with its conversation."""
    named = (model, benchmark, None)
    used, before = question.tool_use(message), question.all_messages()
    return Item(question.text, message_text(message), *named, images, used, messages=before)


def _as_mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping unchanged and an `openai` object as a dict.

    Raises ValueError for other values.
    """
    if (found := to_mapping(value)) is None:
        kind = type(value).__name__
        raise ValueError(f"cannot read a {kind}; give an openai object, a dict or a string")
    return found
