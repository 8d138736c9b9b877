"""What a policy can do with a completion.

In order of severity: `Deliver` it, answer with a request to `Clarify`, `Escalate` it to another
model, `Hold` it for a reviewer, `Block` it. The order decides where the choices of one completion
disagree: the strictest wins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal, TypeAlias

from policies.reading import Node, shown

ActionName: TypeAlias = Literal["deliver", "clarify", "escalate", "hold", "block"]

Reply: TypeAlias = Literal["placeholder", "error"]
Keep: TypeAlias = Literal["best", "last"]

SEVERITY: Final[tuple[ActionName, ...]] = ("deliver", "clarify", "escalate", "hold", "block")
"""The names of all actions, mildest first."""

DAY_S: Final = 86_400.0
HOLD_EXPIRES_S: Final = 7 * DAY_S
MAX_EXPIRES_S: Final = 365 * DAY_S
CLARIFY_TEXT: Final = (
    "I am not sure enough of my answer to give it to you. "
    "Could you rephrase your question or add some detail?"
)

_REPLIES: Final[tuple[Reply, ...]] = ("placeholder", "error")
_KEEPS: Final[tuple[Keep, ...]] = ("best", "last")
_DURATION: Final = re.compile(r"(?P<count>[0-9]{1,9})(?P<unit>[smhd])")
_UNITS_S: Final[Mapping[str, float]] = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": DAY_S}


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand the completion to the client as it is."""

    name: ClassVar[Literal["deliver"]] = "deliver"


@dataclass(frozen=True, slots=True)
class Clarify:
    """Ask the client for clarification in place of the answer."""

    text: str = CLARIFY_TEXT

    name: ClassVar[Literal["clarify"]] = "clarify"


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep the completion for a reviewer.

    `reply` is what the client gets meanwhile. None leaves it to the kind of completion: a
    placeholder for plain text, an error for tool calls and for requests with a response_format.
    """

    queue: str = "review"
    reply: Reply | None = None
    expires_s: float = HOLD_EXPIRES_S

    name: ClassVar[Literal["hold"]] = "hold"


@dataclass(frozen=True, slots=True)
class Block:
    """Withhold the completion for good."""

    name: ClassVar[Literal["block"]] = "block"


@dataclass(frozen=True, slots=True)
class Escalate:
    """Ask another model and keep one of the two replies: the surer (`best`) or the `last`.

    `otherwise` is what happens where the kept reply would be escalated again; None delivers it.
    """

    to: str
    keep: Keep = "best"
    otherwise: Deliver | Clarify | Hold | Block | None = None

    name: ClassVar[Literal["escalate"]] = "escalate"


Action: TypeAlias = Deliver | Clarify | Escalate | Hold | Block


def severity(action: Action) -> int:
    """Return a number that grows with severity."""
    return SEVERITY.index(action.name)


def read_action(node: Node) -> Action:
    """Read `hold` or `{hold: {queue: oncall}}`; problems are reported, see `policies.reading`."""
    name, options = node, replace(node, value=None)
    if isinstance(node.value, dict):
        if len(node.value) != 1:
            node.report(f"{node} must be one action, as in {{hold: {{queue: review}}}}")
            return Block()
        (key,) = node.value
        name, options = replace(node, value=key), node[key]
    return _READERS[name.choice(SEVERITY, "block")](options)


def _deliver(node: Node) -> Deliver:
    _check_no_options(node)
    return Deliver()


def _block(node: Node) -> Block:
    _check_no_options(node)
    return Block()


def _clarify(node: Node) -> Clarify:
    node.check_keys(("text", "ask"))
    ask = node["ask"]
    if ask.is_present and ask.value != "template":
        ask.report(f"{ask}: this version only knows 'template', not {shown(ask.value)}")
    return Clarify(node["text"].text(CLARIFY_TEXT))


def _hold(node: Node) -> Hold:
    node.check_keys(("queue", "reply", "expires"))
    reply = node["reply"]
    if reply.value in ("wait", "async"):
        reply.report(f"{reply}: this version knows placeholder and error, not {reply.value!r}")
        return Hold()
    return Hold(
        queue=node["queue"].text("review"),
        reply=reply.choice(_REPLIES, None),
        expires_s=_duration(node["expires"], HOLD_EXPIRES_S),
    )


def _escalate(node: Node) -> Escalate:
    node.check_keys(("to", "keep", "otherwise"))
    if not node["to"].is_present:
        node.report(f"{node} needs a model, as in {{escalate: {{to: gpt-5.6}}}}")
    otherwise = None
    if node["otherwise"].is_present:
        otherwise = read_action(node["otherwise"])
    if isinstance(otherwise, Escalate):
        node["otherwise"].report(f"{node['otherwise']} may not escalate a second time")
        otherwise = None
    return Escalate(node["to"].text(""), node["keep"].choice(_KEEPS, "best"), otherwise)


def _check_no_options(node: Node) -> None:
    if node.value not in (None, {}):
        node.report(f"{node} takes no options")


def _duration(node: Node, default: float) -> float:
    """Read a duration such as `30m`, in seconds."""
    if not node.is_present:
        return default
    match = _DURATION.fullmatch(node.value) if isinstance(node.value, str) else None
    if match is None:
        node.report(
            f"{node} must be a duration such as 30s, 30m, 2h or 7d, not {shown(node.value)}"
        )
        return default
    seconds = int(match["count"]) * _UNITS_S[match["unit"]]
    if not 0 < seconds <= MAX_EXPIRES_S:
        node.report(f"{node} must be more than 0s and at most 365d, not {node.value}")
    return seconds


_READERS: Final[Mapping[ActionName, Callable[[Node], Action]]] = {
    "deliver": _deliver,
    "clarify": _clarify,
    "escalate": _escalate,
    "hold": _hold,
    "block": _block,
}
