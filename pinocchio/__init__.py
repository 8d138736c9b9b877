"""Pinocchio: the evidence for and against a reply of a language model, as a confidence.

    from pinocchio import Pinocchio

    judge = Pinocchio()
    p_correct = judge.score(response, messages=messages)

The proxy itself is started with `pinocchio serve`.

There is a module for each framework or gateway that asks in its own process: `langchain`,
`openai_agents`, `pydantic_ai`, `litellm`. A new one needs `unsure` and `at_desk`, built from
`calls.py`, `doubt.py` and `desk.py`, and tests in `tests/client_libraries/`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calibrator import Pinocchio

__version__ = "0.1.0"
__all__ = ["Pinocchio", "__version__"]


def __getattr__(name: str) -> Any:
    """Import the calibrator and its dependencies on first use of `Pinocchio`."""
    if name == "Pinocchio":
        from pinocchio.packages import check_own

        check_own("calibrator")
        from calibrator import Pinocchio

        return Pinocchio
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
