"""`calibrator.engine` of proxy.yaml: which engine computes the scores, and where it runs."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from proxy.config.settings.section import Secret, Section


def _base_url(value: str) -> str:
    """Return an address unchanged; raise ValueError unless it is http(s)://HOST[:PORT][/PATH].

    A user, a query and a fragment are refused.
    """
    if not re.fullmatch(r"https?://[^/@?#\s]+(/[^?#\s]*)?", value):
        raise ValueError(
            "a base_url begins with http:// or https:// and ends with a host, port or path; a key "
            "belongs in api_key"
        )
    return value


BaseUrl = Annotated[str, AfterValidator(_base_url)]


def can_stand_in_a_header(name: str) -> bool:
    """Return whether a name has 1 to 200 visible ASCII characters, none of them a space."""
    return re.fullmatch(r"[!-~]{1,200}", name) is not None


def _visible(value: str) -> str:
    """Return a model's name unchanged; raise ValueError where it does not fit a header.

    The name becomes a part of the name of its scores.
    """
    if not can_stand_in_a_header(value):
        raise ValueError("a model's name is at most 200 visible ASCII characters, without spaces")
    return value


ModelName = Annotated[str, AfterValidator(_visible)]


class InProcess(Section):
    """The default engine: the calibrator is loaded into the proxy's own process."""

    kind: Literal["in_process"] = "in_process"


class Remote(Section):
    """An engine over HTTP that computes at most `concurrency` batches at a time."""

    kind: str
    base_url: BaseUrl | None = None
    api_key: Secret = SecretStr("")
    concurrency: int = Field(default=4, gt=0, le=64)

    @property
    def place(self) -> str:
        """The engine's kind and address, for people."""
        return f"{self.kind} at {self.base_url}"

    def check_checkpoint(self, is_named: bool, is_recalibrated: bool) -> None:
        """Raise ValueError for a configuration that names no checkpoint (`is_named` is False).

        Other engines need other rules; `is_recalibrated` says whether there is a recalibration.
        """
        if not is_named:
            raise ValueError(
                f"name the checkpoint whose prompt and labels {self.kind} is asked with"
            )


class ScoringServer(Remote):
    """`pinocchio serve --scorer-only`, or a server of the same protocol.

    A named `checkpoint` is compared with the server's.
    """

    kind: Literal["scorer"]
    base_url: BaseUrl

    def check_checkpoint(self, is_named: bool, is_recalibrated: bool) -> None:
        """Raise ValueError for a recalibration without a named checkpoint, which it belongs to."""
        if is_recalibrated and not is_named:
            raise ValueError("name the checkpoint that the recalibration is for")


class TokenIds(Remote):
    """An engine that receives the token ids of a checkpoint's prompt, text only.

    `omit_placeholder` leaves the image placeholder out of the prompt of a checkpoint that was
    trained with an image beside every text.
    """

    base_url: BaseUrl
    model: ModelName | None = None  # None: the only model that the engine serves
    omit_placeholder: bool = False


class Vllm(TokenIds):
    """The engine vLLM, by its `/generative_scoring`."""

    kind: Literal["vllm"]


class Sglang(TokenIds):
    """The engine SGLang, by its `/v1/score`."""

    kind: Literal["sglang"]


class Decisions(Remote):
    """A decision model, by the name under which litellm knows it, such as `typesafe/jev`.

    Each request carries one reply; at most `concurrency` requests run at once.
    """

    kind: Literal["decisions"]
    model: ModelName
    concurrency: int = Field(default=16, gt=0, le=64)

    @property
    def place(self) -> str:
        """The engine's kind and model, such as `decisions of typesafe/jev`, for people."""
        return f"{self.kind} of {self.model}"

    def check_checkpoint(self, is_named: bool, is_recalibrated: bool) -> None:
        """Raise ValueError if the configuration names a checkpoint (`is_named`)."""
        if is_named:
            raise ValueError("a decision model has no checkpoint of ours; remove checkpoint")


def _engine(value: Any) -> Any:
    """Return the default engine for null, which an empty section is in YAML; else the value."""
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
