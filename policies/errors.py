"""The errors of policy documents.

PolicyError
└── InvalidDocumentError    a file that cannot be used; carries every problem found in it
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in one line of a document.

    Line 0 means the document as a whole, such as a file that does not exist.
    """

    source: str
    line: int
    message: str

    def __str__(self) -> str:
        """Return `source:line: message`, without the line where it is 0."""
        position = f"{self.source}:{self.line}" if self.line else self.source
        return f"{position}: {self.message}"


class PolicyError(Exception):
    """The base class of all errors that this package raises deliberately."""


class InvalidDocumentError(PolicyError):
    """An error for a refused document.

    `problems` lists the changes needed, in the order of lines.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        """Keep the problems, sorted by line."""
        self.problems: tuple[Problem, ...] = tuple(sorted(problems, key=lambda each: each.line))
        super().__init__(self.problems)

    def __str__(self) -> str:
        """Return the problems, one on each line."""
        return "\n".join(str(problem) for problem in self.problems)
