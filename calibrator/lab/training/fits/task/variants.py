"""Variants of requests, which teach the kind of task and not a data set's formatting.

Questions of benchmarks lose their fixed wording and get a user's: a greeting, a command instead of
a question, other labels of options, a generic system message. The text of a task moves to another
place, under another label or none.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from calibrator.lab.training.fits.task.examples import TaskExample
from calibrator.readers.evidence.conversation import Conversation, Turn

_GENERIC_RULES: Final = (
    "You are a helpful assistant.",
    "You are a helpful, respectful and honest assistant.",
    "You are a helpful AI assistant. Answer the user's questions.",
    "Answer concisely.",
    "Be brief.",
    "You are ChatGPT, a large language model trained by OpenAI.",
    "You are Claude, an AI assistant.",
    "You are a helpful assistant. Think step by step.",
    "You are an AI assistant. Today is Monday, 3 June.",
    "You are an expert. Answer the question.",
)
_BEFORE_QUESTION: Final = (
    "Question: ",
    "Q: ",
    "Answer the question. ",
    "Please answer: ",
    "Hi! ",
    "Solve: ",
    "Answer the following question.\n\n",
    "Problem:\n",
)
_AFTER_QUESTION: Final = (
    "\nAnswer:",
    " Think step by step.",
    " Answer briefly.",
    "\n\nPlease show your reasoning.",
    " Give the final answer at the end.",
    " thanks",
)
_OPTIONS: Final = re.compile(r"\n\(?([A-Ja-j])[.):]\s*")
_DOCSTRING: Final = re.compile(r'def .*?"""\s*(.{10,400}?)\s*(?:\n\s*\n|>>>|""")', re.DOTALL)
_WHAT_IS: Final = re.compile(r"(?:what|who|which) (?:is|was|are|were) (the|a|an)\b", re.IGNORECASE)
_WH_WORD: Final = re.compile(r"(?:who|when|where|which|how many|what)\b", re.IGNORECASE)
_COMPUTES: Final = re.compile(r"\b(?:Find|What is|Compute|Evaluate|Calculate|Determine)\b")
_ENDINGS: Final = (
    "\n\nProvide the correct",  # RouterArena
    " Before providing answer to",  # AIW
    " To answer the question",
)
_GREETINGS: Final = (Turn("user", "Hi"), Turn("assistant", "Hello! How can I help you?"))
_LABELS: Final = ("Text:", "Context:", "Passage:", "Document:", "Article:", "Input:", "---", '"""')


def vary_examples(examples: Sequence[TaskExample], seed: int) -> Iterator[TaskExample]:
    """Yield a variant of each example, in order: other words or another place of its text.

    Known questions are put in a user's words; in unfamiliar requests the text is moved. The same
    examples and seed give the same variants.
    """
    for at, example in enumerate(examples):
        chance = random.Random(zlib.crc32(f"{seed} {at} {example.source}".encode()))
        vary = _known_variant if example.is_known else _unfamiliar_variant
        yield replace(example, conversation=vary(example, chance))


def _known_variant(example: TaskExample, chance: random.Random) -> Conversation:
    """Return a question in the words of a user, without a benchmark's fixed wording.

    At random it gets other labels of options or another form, a beginning such as `Q: `, an ending
    such as ` thanks`, lower case, a generic system message, or a greeting before it.
    """
    request = strip_wording(example.conversation.request)
    if chance.random() < 0.6:
        changes = (relabel_options, _program, _reword_question)
        request = next((new for change in changes if (new := change(request, chance))), request)
    if chance.random() < 0.35:
        request = chance.choice(_BEFORE_QUESTION) + request
    if chance.random() < 0.25:
        request += chance.choice(_AFTER_QUESTION)
    if len(request) < 200 and chance.random() < 0.25:
        request = chance.choice((request.lower(), request.rstrip("?. ")))
    rules = chance.choice(_GENERIC_RULES) if chance.random() < 0.3 else ""
    earlier = _GREETINGS if chance.random() < 0.05 else ()
    return Conversation(request, rules, earlier)


def relabel_options(question: str, chance: random.Random) -> str:
    """Return a question whose options have other labels, such as `1.` instead of `(A)`.

    The text is empty if the question has fewer than three options.
    """
    if len(_OPTIONS.findall(question)) < 3:
        return ""
    label = chance.choice(("({})", "{})", "{}:", "{}.", "- {}:"))
    change = chance.choice((str.upper, str.lower, lambda letter: str(ord(letter.upper()) - 64)))
    return _OPTIONS.sub(lambda found: f"\n{label.format(change(found[1]))} ", question)


def _program(question: str, chance: random.Random) -> str:
    """Return the request in the docstring of a question's Python function, as a user puts it.

    An example is `Write a function to add two numbers`. The text is empty if the question has no
    such docstring.
    """
    found = _DOCSTRING.search(question)
    if found is None:
        return ""
    task = " ".join(found[1].split())
    task = task.removeprefix("Write a function to ").removeprefix("Write a python function to ")
    opening = chance.choice(("Write a Python function to ", "Write a function to ", "Implement: "))
    return opening + task[:1].lower() + task[1:]


def _reword_question(question: str, chance: random.Random) -> str:
    """Return `What is the X?` as `Name the X.`, `Who ..?` as `Tell me who ..?`, or another verb.

    The first two are for questions of under 200 characters; a verb such as `Compute` is replaced by
    another in any. The text is empty if none applies.
    """
    if len(question) < 200 and (found := _WHAT_IS.match(question)):
        opening = chance.choice(("Name ", "Give ", "State ", "Tell me ", ""))
        return f"{opening}{found[1]} {question[found.end() :].strip().rstrip('?')}".strip() + "."
    if len(question) < 200 and _WH_WORD.match(question):
        opening = chance.choice(("Tell me ", "Do you know ", "Can you tell me ", "I want to know "))
        return opening + question[:1].lower() + question[1:]
    if found := _COMPUTES.search(question):
        verbs = ("Compute", "Calculate", "Determine", "Evaluate", "Work out", "Find", "Give")
        return question[: found.start()] + chance.choice(verbs) + question[found.end() :]
    return ""


def strip_wording(question: str) -> str:
    """Return a benchmark's question without the fixed wording around it, and without outer spaces.

    An example is the ending `Provide the correct ..`.
    """
    for opening in ("\n\nQuestion: ", "[PYTHON]\n"):  # RouterArena, CRUXEval
        if opening in question[:600]:
            question = question.partition(opening)[2]
    for ending in (
        "\n\nProvide the correct",
        " Before providing answer to",
        " To answer the question",
    ):
        question = question.partition(ending)[0]
    head, sign, rest = question.partition("\n")
    if sign and head.startswith("请你") and rest:  # LawBench
        question = rest
    if question.startswith("[") and "] " in question[:40]:  # BBH-mistake
        question = question.partition("] ")[2]
    return question.strip()


def _unfamiliar_variant(example: TaskExample, chance: random.Random) -> Conversation:
    """Return the request with its text in another place, under another label or none.

    In half of the cases, rules (a system message with a text) are moved into the request. Without
    rules, the text after the first paragraph is moved. Returned unchanged are requests of one
    paragraph, those after earlier turns, and the other half of those with rules.
    """
    conversation = example.conversation
    first, sign, rest = conversation.request.partition("\n\n")
    rules = conversation.rules
    if rules and not conversation.earlier and chance.random() < 0.5:
        return replace(
            conversation,
            request=_join_request(conversation.request, _unwrap_rules(rules), chance),
            rules=chance.choice(("", *_GENERIC_RULES[:2])),
        )
    if not sign or conversation.earlier or rules:
        return conversation
    return replace(conversation, request=_join_request(first, rest, chance))


def _unwrap_rules(rules: str) -> str:
    """Return rules without the fixed sentences around their text, such as `Context:`."""
    for opening in ("Context:\n", "You are an assistant. Use the following document.\n\n"):
        rules = rules.removeprefix(opening)
    return rules.removesuffix("\n\nStay with the context.")


def _join_request(instruction: str, text: str, chance: random.Random) -> str:
    """Return an instruction (`instruction`) and a text as one, in random order.

    The text gets a random label such as `Text:`, marks around it, or none.
    """
    label = chance.choice(_LABELS) if chance.random() < 0.5 else ""
    gap = chance.choice(("\n\n", "\n", "\n\n", " "))
    labelled = f"{label}{chance.choice((' ', gap))}{text}" if label else text
    if label in ("---", '"""'):
        labelled = f"{label}\n{text}\n{label}"
    return chance.choice((f"{instruction}{gap}{labelled}", f"{labelled}{gap}{instruction}"))
