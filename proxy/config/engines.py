"""`calibrator.engine` of proxy.yaml: which engine computes the scores, and where it is."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from proxy.config.section import Secret, Section


def _base_url(value: str) -> str:
    if not re.fullmatch(r"https?://[^/@?#\s]+(/[^?#\s]*)?", value):
        raise ValueError(
            "a base_url begins with http:// or https:// and ends with a host, port or path; a key "
            "belongs in api_key"
        )
    return value


BaseUrl = Annotated[str, AfterValidator(_base_url)]


def can_stand_in_a_header(name: str) -> bool:
    """Names of scores are told in `x-pinocchio-calibrator`."""
    return re.fullmatch(r"[!-~]{1,200}", name) is not None


def _visible(value: str) -> str:
    """A model's name becomes a part of the name of its scores."""
    if not can_stand_in_a_header(value):
        raise ValueError("a model's name is at most 200 visible ASCII characters, without spaces")
    return value


ModelName = Annotated[str, AfterValidator(_visible)]


class InProcess(Section):
    """The calibrator is loaded into the proxy's own process."""

    kind: Literal["in_process"] = "in_process"


class Remote(Section):
    """An engine over HTTP; `concurrency` batches may be under way at a time."""

    kind: str
    base_url: BaseUrl | None = None
    api_key: Secret = SecretStr("")
    concurrency: int = Field(default=4, gt=0, le=64)

    @property
    def place(self) -> str:
        """For people: which it is."""
        return f"{self.kind} at {self.base_url}"

    def check_checkpoint(self, is_named: bool, is_recalibrated: bool) -> None:
        """Raises ValueError where `calibrator.checkpoint` is missing, or one too many."""
        if not is_named:
            raise ValueError(
                f"name the checkpoint whose prompt and labels {self.kind} is asked with"
            )


class ScoringServer(Remote):
    """`pinocchio serve --scorer-only`, or what speaks the same; a `checkpoint` is checked."""

    kind: Literal["scorer"]
    base_url: BaseUrl

    def check_checkpoint(self, is_named: bool, is_recalibrated: bool) -> None:
        if is_recalibrated and not is_named:
            raise ValueError("name the checkpoint that the recalibration is for")


class TokenIds(Remote):
    """An engine that is asked with the token ids of a checkpoint's prompt, text only.

    `omit_placeholder`: also where the checkpoint was trained with an image beside every text.
    """

    base_url: BaseUrl
    model: ModelName | None = None  # None: the only one that it serves
    omit_placeholder: bool = False


class Vllm(TokenIds):
    """vLLM's `/generative_scoring`."""

    kind: Literal["vllm"]


class Sglang(TokenIds):
    """SGLang's `/v1/score`."""

    kind: Literal["sglang"]


class Decisions(Remote):
    """A decision model, by the name under which litellm knows it, as in `typesafe/jev`.

    It is asked about one reply at a time, `concurrency` at once.
    """

    kind: Literal["decisions"]
    model: ModelName
    concurrency: int = Field(default=16, gt=0, le=64)

    @property
    def place(self) -> str:
        return f"{self.kind} of {self.model}"

    def check_checkpoint(self, is_named: bool, is_recalibrated: bool) -> None:
        if is_named:
            raise ValueError("a decision model has no checkpoint of ours; remove checkpoint")


def _engine(value: Any) -> Any:
    """Null, as a section without lines is, names no kind: the default."""
    return InProcess() if value is None else value


Engine = Annotated[
    InProcess | ScoringServer | Vllm | Sglang | Decisions,
    Field(discriminator="kind"),
    BeforeValidator(_engine),
]
ENGINES: dict[str, type[Section]] = {
    "in_process": InProcess,
    "scorer": ScoringServer,
    "vllm": Vllm,
    "sglang": Sglang,
    "decisions": Decisions,
}
