"""The actions of a policy on a completion.

In order of severity: `Deliver` it, `Annotate` it for readers of the record or of the reply's
`pinocchio` member, answer with a request to `Clarify`, `Escalate` it to another model, `Hold` it
for a reviewer, `Block` it. Where the choices of one completion, or its tool calls, disagree, the
strictest action wins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Literal, TypeAlias

from policies.reading.reading import Node, abbreviate

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
MAX_EXPIRES_S: Final = 365 * DAY_S
WAIT_S: Final = 30.0
MAX_WAIT_S: Final = 600.0
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
DURATION: Final = re.compile(r"(?P<count>[0-9]{1,9})(?P<unit>[smhd])")
_UNITS_S: Final[Mapping[str, float]] = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": DAY_S}


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
    """Read `hold` or `{hold: {queue: oncall}}`; problems are reported.

    See `policies.reading.reading`.
    """
    name, options = node, replace(node, value=None)
    if isinstance(node.value, dict):
        if len(node.value) != 1:
            node.report(f"{node} must be one action, as in {{hold: {{queue: review}}}}")
            return Block()
        (key,) = node.value
        name, options = replace(node, value=key), node[key]
    return _READERS[name.choice(ACTIONS, "block")](options)


def _deliver(node: Node) -> Deliver:
    node.check_keys(("notice",))
    return Deliver(node["notice"].text("")) if node["notice"].is_present else Deliver()


def _annotate(node: Node) -> Annotate:
    node.check_keys(("label",))
    if not node["label"].is_present:
        node.report(f"{node} needs a label, as in {{annotate: {{label: unverified}}}}")
    return Annotate(node["label"].text(""))


def _block(node: Node) -> Block:
    node.check_keys(("message",))
    return Block(node["message"].text("")) if node["message"].is_present else Block()


def _clarify(node: Node) -> Clarify:
    node.check_keys(("text", "ask", "model"))
    ask: Ask = node["ask"].choice(ASKS, "template")
    if ask != "generate" and node["model"].is_present:
        node["model"].report(f"{node['model']} writes nothing without ask: generate")
    model = node["model"].model() if node["model"].is_present else None
    return Clarify(node["text"].text(CLARIFY_TEXT), ask, model)


def _hold(node: Node) -> Hold:
    node.check_keys(("queue", *HOLD_OPTIONS))
    return _read_hold(node, node["queue"].text("review"))


def _read_hold(node: Node, queue: str) -> Hold:
    """Read the options that a hold and an escalation to a person have in common."""
    reply = node["reply"].choice(REPLIES, None)
    if reply not in ("wait", "async") and node["otherwise"].is_present:
        node["otherwise"].report(f"{node['otherwise']} follows only on reply: wait or async")
    if node["wait"].is_present and reply != "wait":
        node["wait"].report(f"{node['wait']} is nothing without reply: wait")
    expires_s = _duration(node["expires"], HOLD_EXPIRES_S, MAX_EXPIRES_S, "365d")
    wait_s = _duration(node["wait"], WAIT_S, MAX_WAIT_S, "10m")
    if reply == "wait" and wait_s > expires_s:
        node.report(f"{node} waits for {wait_s:g}s and expires after {expires_s:g}s; wait less")
    escalate_s, escalate_to = _escalation(node["escalate"], queue, expires_s)
    return Hold(
        queue=queue,
        reply=reply,
        expires_s=expires_s,
        wait_s=wait_s,
        otherwise=node["otherwise"].choice(OTHERWISE, None),
        on_expiry=node["on_expiry"].choice(ON_EXPIRY, "reject"),
        approvals=_number(node["approvals"], MAX_APPROVALS),
        escalate_s=escalate_s,
        escalate_to=escalate_to,
    )


def _escalation(node: Node, queue: str, expires_s: float) -> tuple[float | None, str | None]:
    """Read the seconds after which a hold moves, and the queue it moves to.

    (None, None) if absent.
    """
    if not node.is_present:
        return None, None
    node.check_keys(("after", "to"))
    if not (node["after"].is_present and node["to"].is_present):
        node.report(f"{node} needs both, as in {{escalate: {{after: 10m, to: leads}}}}")
        return None, None
    after_s, to = (
        _duration(node["after"], HOLD_EXPIRES_S, MAX_EXPIRES_S, "365d"),
        node["to"].text(""),
    )
    if to == queue:
        node.report(f"{node} leads to its own queue {queue!r}; name another one")
    if after_s >= expires_s:
        node.report(f"{node} comes after {after_s:g}s, and the hold expires after {expires_s:g}s")
    return after_s, to


def _number(node: Node, most: int) -> int:
    """Read a number from 1 to `most`; 1 if it is absent or invalid."""
    if not node.is_present:
        return 1
    count = node.value
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= most:
        node.report(f"{node} must be a number from 1 to {most}, not {abbreviate(count)}")
        return 1
    return count


def _escalate(node: Node) -> Escalate | Hold:
    """Read an escalation to models, or to people, which is a hold in their queue."""
    if node["human"].is_present:
        node.check_keys(("human", *HOLD_OPTIONS))
        return _read_hold(node, node["human"].text("review"))
    node.check_keys(("to", "keep", "otherwise", "human"))
    if not node["to"].is_present:
        node.report(f"{node} needs a model, as in {{escalate: {{to: gpt-5.6}}}}")
    models = node["to"].several_models() if node["to"].is_present else ("",)
    if len(models) > MAX_HOPS or len(set(models)) < len(models):
        node["to"].report(f"{node['to']} must be at most {MAX_HOPS} models, each of them once")
    first, *further = models or ("",)
    kept: Keep = node["keep"].choice(KEEPS, "best")
    return Escalate(first, kept, _afterwards(node), tuple(further))


def _revise(node: Node) -> Escalate:
    """Read an escalation that tells a model what is wrong with the reply before."""
    node.check_keys(("times", "to", "keep", "otherwise"))
    times = _number(node["times"], MAX_REVISIONS)
    model = node["to"].model() if node["to"].is_present else SAME_MODEL
    kept: Keep = node["keep"].choice(KEEPS, "best")
    return Escalate(model, kept, _afterwards(node), (model,) * (times - 1), is_revision=True)


def _afterwards(node: Node) -> Deliver | Annotate | Clarify | Hold | Block | None:
    """Read what happens where the kept reply would be escalated again."""
    if not node["otherwise"].is_present:
        return None
    action = read_action(node["otherwise"])
    if not isinstance(action, Escalate):
        return action
    node["otherwise"].report(f"{node['otherwise']} may not escalate a second time")
    return None


def duration_s(text: str) -> float | None:
    """Return the seconds of `30s`, `30m`, `2h` or `7d`, or None for any other text."""
    match = DURATION.fullmatch(text)
    return int(match["count"]) * _UNITS_S[match["unit"]] if match else None


def _duration(node: Node, default: float, longest: float, longest_text: str) -> float:
    """Read a duration such as `30m`, in seconds; problems are reported."""
    if not node.is_present:
        return default
    seconds = duration_s(node.value) if isinstance(node.value, str) else None
    if seconds is None:
        node.report(
            f"{node} must be a duration such as 30s, 30m, 2h or 7d, not {abbreviate(node.value)}"
        )
        return default
    if not 0 < seconds <= longest:
        node.report(f"{node} must be more than 0s and at most {longest_text}, not {node.value}")
    return seconds


HOLD_OPTIONS: Final = (
    *("reply", "wait", "otherwise", "expires", "on_expiry", "approvals", "escalate"),
)
_READERS: Final[Mapping[str, Callable[[Node], Action]]] = {
    "deliver": _deliver,
    "annotate": _annotate,
    "clarify": _clarify,
    "escalate": _escalate,
    REVISE: _revise,
    "hold": _hold,
    "block": _block,
}
