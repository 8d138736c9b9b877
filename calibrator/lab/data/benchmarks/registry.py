"""The paper's benchmarks: source, licence, prompt and grader of each (C04 to C06)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal

import yaml

from calibrator.errors import InputError
from calibrator.lab.data.grading.graders import GraderName

FORMATS: Final[dict[GraderName, str]] = {  # C09
    "choice": "multiple choice",
    "claim": "binary",
    "number": "open, a number",
    "formula": "open, a formula",
    "exact": "open, exact words",
    "fuzzy": "open, words",
    "rubric": "open, graded by a model",
}
_LINE = "End with one line that begins with `Answer:` and has nothing but"
PROMPTS: Final[dict[GraderName, str]] = {  # appended to the question
    "choice": f"{_LINE} the letter of your choice.",
    "claim": f"{_LINE} yes or no.",
    "number": f"{_LINE} the number.",
    "formula": f"{_LINE} the result.",
    "exact": f"{_LINE} the answer, exactly as it is to be written.",
    "fuzzy": f"{_LINE} the answer in a few words.",
    "rubric": "",
}


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One benchmark; `fields` maps the names of our fields to those in its files."""

    name: str
    domain: str
    modality: Literal["text", "image"]
    grader: GraderName
    hub: str = ""
    licence: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_judged(self) -> bool:
        """Whether a model grades the answers (D02)."""
        return self.grader == "rubric"

    @property
    def answer_format(self) -> str:
        """The form of its answers, in words (C09)."""
        return FORMATS[self.grader]

    @property
    def prompt(self) -> str:
        """The instruction that follows the question."""
        return PROMPTS[self.grader]


@cache
def known_benchmarks() -> tuple[Benchmark, ...]:
    """Return all benchmarks of `benchmarks.yaml` in its order: by domain, as in the paper."""
    text = (
        files("calibrator.lab.data.benchmarks")
        .joinpath("benchmarks.yaml")
        .read_text(encoding="utf-8")
    )
    return tuple(Benchmark(**each) for each in yaml.safe_load(text))


def benchmark_named(name: str) -> Benchmark:
    """Return the benchmark of a name in any case.

    Raises InputError for an unknown name, with a similar one if there is any.
    """
    by_name = {each.name.lower(): each for each in known_benchmarks()}
    if name.lower() in by_name:
        return by_name[name.lower()]
    near = get_close_matches(name.lower(), by_name, n=1)
    hint = f"; did you mean {by_name[near[0]].name}?" if near else ""
    raise InputError(f"no benchmark is called {name!r}{hint} `pinocchio collect --list` has all")
