"""The actions of a policy on a completion.

In order of severity: `Deliver` it, `Annotate` it for readers of the record or of the reply's
`pinocchio` member, answer with a request to `Clarify`, `Escalate` it to another model, `Hold` it
for a reviewer, `Block` it. Where the choices of one completion, or its tool calls, disagree, the
strictest action wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Literal, TypeAlias

from policies.reading.reading import Node
from policies.reading.shapes import (
    MODEL,
    MODELS,
    TEXT,
    Schema,
    Shape,
    duration,
    make,
    mapping,
    whole,
    word,
)

ActionName: TypeAlias = Literal["deliver", "annotate", "clarify", "escalate", "hold", "block"]

Reply: TypeAlias = Literal["placeholder", "refusal", "error", "wait", "async"]
Otherwise: TypeAlias = Literal["placeholder", "refusal", "error"]
OnExpiry: TypeAlias = Literal["reject", "deliver", "block"]
Keep: TypeAlias = Literal["best", "last"]
Ask: TypeAlias = Literal["template", "generate"]

SEVERITY: Final[tuple[ActionName, ...]] = (
    "deliver",
    "annotate",
    "clarify",
    "escalate",
    "hold",
    "block",
)
"""The names of all actions, mildest first."""

REVISE: Final = "revise"  # an escalation that tells the model what is wrong
ACTIONS: Final = (*SEVERITY, REVISE)
"""The words for actions in a policy."""

DAY_S: Final = 86_400.0
HOLD_EXPIRES_S: Final = 7 * DAY_S
WAIT_S: Final = 30.0
MAX_WAIT: Final = "10m"
MAX_EXPIRES: Final = "365d"
MAX_HOPS: Final = 4
MAX_REVISIONS: Final = 3
SAME_MODEL: Final = ""  # in place of the name of another one
MAX_APPROVALS: Final = 5
CLARIFY_TEXT: Final = (
    "I am not sure enough of my answer to give it to you. "
    "Could you rephrase your question or add some detail?"
)

REPLIES: Final[tuple[Reply, ...]] = ("placeholder", "refusal", "error", "wait", "async")
OTHERWISE: Final[tuple[Otherwise, ...]] = ("placeholder", "refusal", "error")
ON_EXPIRY: Final[tuple[OnExpiry, ...]] = ("reject", "deliver", "block")
KEEPS: Final[tuple[Keep, ...]] = ("best", "last")
ASKS: Final[tuple[Ask, ...]] = ("template", "generate")


@dataclass(frozen=True, slots=True)
class Deliver:
    """The action that delivers the completion, as it is or with a `notice` after its text."""

    notice: str | None = None

    name: ClassVar[Literal["deliver"]] = "deliver"


@dataclass(frozen=True, slots=True)
class Annotate:
    """The action that delivers the completion with a `label` in its member `pinocchio`."""

    label: str

    name: ClassVar[Literal["annotate"]] = "annotate"


@dataclass(frozen=True, slots=True)
class Clarify:
    """The action that asks the client for clarification instead of answering.

    With `ask` of `generate`, `model` (None for the one that answered) writes the question from
    the exchange; `text` is sent where it cannot.
    """

    text: str = CLARIFY_TEXT
    ask: Ask = "template"
    model: str | None = None

    name: ClassVar[Literal["clarify"]] = "clarify"


@dataclass(frozen=True, slots=True)
class Hold:
    """The action that keeps the completion for a reviewer of `queue`.

    `reply` is what the client gets meanwhile. None leaves it to the kind of completion: a
    placeholder for plain text, an error for tool calls and for requests with a response_format. A
    `refusal` is an ordinary assistant message that calls nothing and says what is held, so that an
    agent's run continues; a rejection is sent in the same form. `wait` keeps the connection for up
    to `wait_s` seconds; `async` is a 202 for clients that asked for one. Where these do not apply,
    or no longer, `otherwise` is sent, with the same meaning of None. After `expires_s` seconds
    without a verdict, `on_expiry` applies. `approvals` different reviewers have to approve; one of
    them can reject. After `escalate_s` seconds without a verdict it goes to the queue
    `escalate_to`, or stays where this is None.
    """

    queue: str = "review"
    reply: Reply | None = None
    expires_s: float = HOLD_EXPIRES_S
    wait_s: float = WAIT_S
    otherwise: Otherwise | None = None
    on_expiry: OnExpiry = "reject"
    approvals: int = field(default=1, repr=False)  # older bindings stay valid
    escalate_s: float | None = field(default=None, repr=False)  # also not in the repr
    escalate_to: str | None = field(default=None, repr=False)

    name: ClassVar[Literal["hold"]] = "hold"


@dataclass(frozen=True, slots=True)
class Block:
    """The action that withholds the completion for good.

    `message` is the text of the client's error.
    """

    message: str | None = None

    name: ClassVar[Literal["block"]] = "block"


@dataclass(frozen=True, slots=True)
class Escalate:
    """The action that asks another model and keeps the surer (`best`) or the `last` reply.

    Where the kept reply would be escalated again, the models of `further` are asked one after the
    other; after them `otherwise` applies, where None means delivery.
    """

    to: str
    keep: Keep = "best"
    otherwise: Deliver | Annotate | Clarify | Hold | Block | None = None
    further: tuple[str, ...] = ()
    is_revision: bool = field(default=False, repr=False)
    """Whether the model is told what is wrong; `SAME_MODEL` is the one that gave the reply."""

    name: ClassVar[Literal["escalate"]] = "escalate"

    @property
    def models(self) -> tuple[str, ...]:
        """All models that can be asked, in order."""
        return (self.to, *self.further)


Action: TypeAlias = Deliver | Annotate | Clarify | Escalate | Hold | Block


def asks_a_model(action: Action) -> bool:
    """Return whether the action needs another call to a model."""
    is_written = isinstance(action, Clarify) and action.ask == "generate"
    return is_written or isinstance(action, Escalate)


def hold_in(action: Action) -> Hold | None:
    """Return the hold that an action is, or may end in, or None."""
    last = action.otherwise if isinstance(action, Escalate) else action
    return last if isinstance(last, Hold) else None


def severity(action: Action) -> float:
    """Return a number that grows with severity.

    A delivery with a notice weighs half a step more.
    """
    has_notice = isinstance(action, Deliver) and action.notice is not None
    return SEVERITY.index(action.name) + 0.5 * has_notice


def changes_reply(action: Action) -> bool:
    """Return whether the client gets anything but upstream's reply."""
    return severity(action) > SEVERITY.index("annotate") or severity(action) == 0.5


def read_action(node: Node) -> Action:
    """Read `hold` or `{hold: {queue: oncall}}`; problems are reported."""
    name, options = node, replace(node, value=None)
    if isinstance(node.value, dict):
        if len(node.value) != 1:
            node.report(f"{node} must be one action, as in {{hold: {{queue: review}}}}")
            return Block()
        (key,) = node.value
        name, options = replace(node, value=key), node[key]
    return OPTIONS[_ACTION_NAME.read(name)].read(options)


def _clarify(
    node: Node, *, text: str = CLARIFY_TEXT, ask: Ask = "template", model: str | None = None
) -> Clarify:
    if ask != "generate" and model is not None:
        node["model"].report(f"{node['model']} writes nothing without ask: generate")
    return Clarify(text, ask, model)


def _hold(
    node: Node,
    *,
    expires: float = HOLD_EXPIRES_S,
    wait: float = WAIT_S,
    escalate: tuple[float, str] | tuple[None, None] = (None, None),
    **options: Any,
) -> Hold:
    escalate_s, escalate_to = escalate
    moved = {"escalate_s": escalate_s, "escalate_to": escalate_to}
    hold = Hold(expires_s=expires, wait_s=wait, **options | moved)
    if hold.reply not in ("wait", "async") and hold.otherwise is not None:
        node["otherwise"].report(f"{node['otherwise']} follows only on reply: wait or async")
    if hold.reply != "wait" and node["wait"].is_present:
        node["wait"].report(f"{node['wait']} is nothing without reply: wait")
    if hold.reply == "wait" and wait > expires:
        node.report(f"{node} waits for {wait:g}s and expires after {expires:g}s; wait less")
    moves = node["escalate"]
    if escalate_to == hold.queue:
        moves.report(f"{moves} leads to its own queue {hold.queue!r}; name another one")
    if escalate_s is not None and escalate_s >= expires:
        moves.report(
            f"{moves} comes after {escalate_s:g}s, and the hold expires after {expires:g}s"
        )
    return hold


def _escalate(node: Node, *, to: tuple[str, ...], **options: Any) -> Escalate:
    if len(to) > MAX_HOPS or len(set(to)) < len(to):
        node["to"].report(f"{node['to']} must be at most {MAX_HOPS} models, each of them once")
    return Escalate(to[0] if to else "", further=to[1:], **options)


def _revise(node: Node, *, times: int = 1, to: str = SAME_MODEL, **options: Any) -> Escalate:
    return Escalate(to, further=(to,) * (times - 1), is_revision=True, **options)


def _last_action(node: Node) -> Deliver | Annotate | Clarify | Hold | Block | None:
    """Read what happens where the kept reply would be escalated again.

    None for another escalation, which is reported.
    """
    action = read_action(node)
    if not isinstance(action, Escalate):
        return action
    node.report(f"{node} may not escalate a second time")
    return None


_ACTION_NAME: Final = word(ACTIONS)
_AFTERWARDS: Final[Mapping[str, Shape[Any]]] = {
    "keep": word(KEEPS),
    "otherwise": Shape(_last_action, {"$ref": "#/$defs/action"}),
}
_HOLD: Final[Mapping[str, Shape[Any]]] = {
    "reply": word(REPLIES),
    "wait": duration(MAX_WAIT),
    "otherwise": word(OTHERWISE),
    "expires": duration(MAX_EXPIRES),
    "on_expiry": word(ON_EXPIRY),
    "approvals": whole(1, MAX_APPROVALS),
    "escalate": mapping(
        lambda node, after, to: (after, to),
        {"after": duration(MAX_EXPIRES), "to": TEXT},
        required=("after", "to"),
        example="both, as in {escalate: {after: 10m, to: leads}}",
    ),
}
_TO_MODELS: Final = mapping(
    _escalate,
    {"to": MODELS, **_AFTERWARDS},
    required=("to",),
    example="a model, as in {escalate: {to: gpt-5.6}}, or a queue of people as `human`",
)
_TO_PEOPLE: Final = mapping(
    lambda node, human, **options: _hold(node, queue=human, **options),
    {"human": TEXT, **_HOLD},
    required=("human",),
)
OPTIONS: Final[Mapping[str, Shape[Action]]] = {
    "deliver": mapping(make(Deliver), {"notice": TEXT}),
    "annotate": mapping(
        make(Annotate),
        {"label": TEXT},
        required=("label",),
        example="a label, as in {annotate: {label: unverified}}",
    ),
    "clarify": mapping(_clarify, {"text": TEXT, "ask": word(ASKS), "model": MODEL}),
    "escalate": Shape(
        lambda node: (_TO_PEOPLE if node["human"].is_present else _TO_MODELS).read(node),
        {"anyOf": [_TO_MODELS.schema, _TO_PEOPLE.schema]},
    ),
    REVISE: mapping(_revise, {"times": whole(1, MAX_REVISIONS), "to": MODEL, **_AFTERWARDS}),
    "hold": mapping(_hold, {"queue": TEXT, **_HOLD}),
    "block": mapping(make(Block), {"message": TEXT}),
}
"""The options of each action."""


def action_schema(names: Sequence[str] = ACTIONS) -> Schema:
    """Return the JSON Schema of these actions: a word, or a mapping from one to its options."""
    with_options = {
        "type": "object",
        "properties": {name: OPTIONS[name].schema for name in names},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    words = [name for name in names if name not in ("annotate", "escalate")]
    return {"anyOf": [{"enum": words}, with_options]}


ACTION: Final = Shape(read_action, {"$ref": "#/$defs/action"})
