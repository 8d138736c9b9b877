"""The damage of a wrong call, low, medium or high, and whether the user asked for the call.

It uses facts alone: the annotations of an MCP tool, the verb, the target, the amount, and the
user's own messages. The assistant's text and the tools' results authorise nothing, so neither can
lower the risk. Annotations come from the tool's server: one that claims less than the verb is not
believed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from calibrator.readers.calls.notes.chat_text import ChatText
from calibrator.readers.calls.notes.requested import is_look, is_named_by_user, says_all, words_of
from calibrator.readers.calls.reading.conversation import Call, Tool, View
from calibrator.readers.calls.reading.requests import verb_classes
from calibrator.readers.calls.reading.steps import CHANGES, READS, is_failure
from calibrator.readers.calls.reading.values import Value, name_words, stem, word_set
from calibrator.scorer import HIGH, LOW, RISKS

READ, CHANGE, SEND, DESTROY = "read", "change", "send", "destroy"
LARGE: Final = 1_000.0  # least amount that makes a call one step riskier
MANY: Final = 5  # least number of recipients or targets that makes a call one step riskier

_DESTROYS = word_set(
    "delete remove drop truncate destroy erase wipe purge rm rmdir unlink uninstall terminate kill"
    " shutdown deactivate revoke void discard reset rollback cancel overwrite format evict ban"
    " close"
    " expire forfeit clear reboot archive unsubscribe"
)
_SENDS = word_set(
    "send email mail sms publish broadcast notify reply forward tweet post submit deploy pay refund"
    " purchase buy sell withdraw donate redeem checkout wire transfer charge order book reserve"
    " trade"
    " deposit bid approve sign merge grant share invite release push transmit message call dial"
    " print"
    " unlock payout reimburse subscribe execute accept reject dispense prescribe ship"
)
_CHANGES = CHANGES | word_set("import sync restore install configure apply assign schedule set tune"
                              " increment append patch upsert insert replace extend pause resume"
                              " enroll issue generate draft log record note")  # fmt: skip
_LOOKS = READS | word_set("summarize summarise preview estimate calculate draft analyze analyse"
                          " translate classify extract ping test measure forecast recommend"
                          " suggest quote resolve whoami help history report detect diff"
)  # fmt: skip
_SHELLS = word_set("shell bash sh zsh terminal console command cmd powershell exec execute run"
                   " process ssh sql query db database postgres mysql sqlite")  # fmt: skip
_COMMAND_NAMES = word_set("command cmd sql statement query script")
_SAFE_COMMANDS = word_set(
    "ls cat pwd grep rg egrep tail head diff wc sort cd du df find echo which whoami date stat file"
    " tree less more ps top env uname id uptime free history type test printf awk cut uniq tr jq"
    " true hostname readlink realpath basename dirname md5sum sha256sum nproc locate man"
)
_SAFE_GIT = word_set(
    "status log diff show branch blame remote describe rev-parse ls-files shortlog"
)
_DESTRUCTIVE_COMMAND = re.compile(
    r"\b(?:rm|rmdir|shred|unlink|mkfs\S*|dd|truncate|kill|killall|pkill|shutdown|reboot|dropdb)\b"
    r"|\bfind\b.*\s-delete\b|\bgit\s+(?:reset|clean)\b|\bgit\s+push\b.*\s(?:-f|-d|--delete|:\S+|\+\S+)(?:\s|$)|\b(?:delete\s+from|drop\s+\w+|truncate"
    r"|alter\s+table)\b|--force\b|\bkubectl\s+delete\b|\bterraform\s+(?:destroy|apply)\b",
    re.I,
)
_PUBLISHING_COMMAND = re.compile(
    r"\bgit\s+push\b|\b(?:npm|pnpm|yarn|cargo|twine|poetry|uv)\s+(?:publish|upload)\b"
    r"|\b(?:docker|helm)\s+push\b|\bgh\s+(?:release\s+create|pr\s+(?:create|merge))\b",
    re.I,
)
_WRITING_COMMAND = re.compile(
    r"[^0-9&]>\s*[^&\s]|\b(?:mv|cp|touch|mkdir|chmod|chown|tee|sed\s+-i|install|insert\s+into"
    r"|update"
    r"|merge\s+into|create|grant|revoke)\b|(?:^|[|;&\n])\s*(?:curl|wget|ssh|scp|sudo)\b",
    re.I,
)
_AMOUNTS = word_set("amount total price sum value payment cost budget limit_price cents eur usd")
_RECIPIENTS = word_set("to recipients recipient cc bcc attendees emails users user_ids ids targets")
_EVERYONE = re.compile(r"\b(?:all|everyone|everybody|company|team)@|@all\b|@everyone\b|@channel\b")
_SECRET = re.compile(
    r"(?:^|[/\\\s])(?:\.env\b|\.ssh\b|id_rsa|id_ed25519|\.aws/|\.netrc|shadow\b|\.pem\b|\.kube/)"
    r"|credential|secret|password|api[_-]?key|private[_-]?key",
    re.I,
)
_CALLED_OFF = re.compile(
    r"\b(?:can't|cannot|won't|doesn't|does not|will not) (?:take place|happen|be held)\b"
    r"|\bcall(?:ed|ing)? (?:\w+ ){0,3}?off\b"
)
_LIVE = re.compile(r"\b(?:prod|production|live|main|master)\b")
_KIN = {  # words by which a user asks for such a call, apart from its verb
    DESTROY: "delete remove cancel drop clear erase discard trash unsubscribe revoke void withdraw"
    " empty flush prune scrap rid wipe purge destroy clean terminate end stop close kill uninstall"
    " deactivate undo disable shut reset restart reboot archive throw cut off longer anymore expire"
    " void quit leave",
    SEND: "send email mail reply forward message notify tell post share invite write text inform"
    " answer let remind pay transfer refund charge deposit wire settle return reimburse money back"
    " order book buy purchase reserve get publish deploy release push ship submit approve accept"
    " reject sign merge grant give add access sell trade redeem donate open unlock call print ask"
    " compensate credit replace renew need want rebook put execute place issue move schedule ping"
    " announce release roll",
    CHANGE: "add create make new book schedule post insert register set put write arrange organise"
    " organize plan draft compose start update change modify edit move rename reschedule shift"
    " adjust"
    " push bring replace correct extend shorten raise lower assign mark switch swap fix turn enable"
    " disable save log note record upload copy give open close increase decrease need want please"
    " remind remember pause resume activate upgrade downgrade subscribe generate import should"
    " restart scale reassign tag label block unblock lock unlock sign file report apply install"
    " invite run double halve merge split order",
}  # fmt: skip
_KIN_STEMS: Final = {kind: {stem(w) for w in words.split()} for kind, words in _KIN.items()}


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a call and the reason for this class, in words.

    `kind` is READ, CHANGE, SEND or DESTROY. `is_idempotent` says that its server calls it
    repeatable.
    """

    kind: str
    why: str
    is_idempotent: bool = False

    @property
    def is_read(self) -> bool:
        """Whether the call only reads."""
        return self.kind == READ

    @property
    def is_final(self) -> bool:
        """Whether no other call can undo it: it sends or destroys something."""
        return self.kind in (SEND, DESTROY)


def effect_of(call: Call, tool: Tool | None, view: View | None = None) -> Effect:
    """Return the effect of a call, by its command, or by its verb and the tool's annotations.

    `tool` is None for an unknown one; `view` gives the annotations of tools that MCP servers
    listed. Annotations that claim less than a verb such as `delete` are not believed.
    """
    hints = tool.annotations if tool is not None else {}
    if view is not None and call.name in view.listed:
        hints = view.listed[call.name]
    is_idempotent = hints.get("idempotent") is True
    if (command := _command_in(call)) is not None:
        return _of_command(command, is_idempotent)
    kind, verb = _of_name(call.name)
    if hints.get("destructive") is True and kind != DESTROY and hints.get("read_only") is not True:
        return Effect(DESTROY, "its server says that it is destructive", is_idempotent)
    if hints.get("read_only") is True and kind in (READ, CHANGE):
        return Effect(READ, "its server says that it only reads", is_idempotent)
    if kind == READ:
        is_denied = hints.get("read_only") is False and hints.get("destructive") is not False
        if is_denied and verb is None:
            return Effect(CHANGE, "its server says that it does not only read", is_idempotent)
        return Effect(READ, "it only looks")
    why = f"the tool's name says {verb}" if verb else "nothing says that it only looks"
    return Effect(kind, why, is_idempotent)


def _of_name(name: str) -> tuple[str, str | None]:
    """Return (effect, verb) by the first known verb of a tool's name, else (CHANGE, None).

    `cancel_order` gives (DESTROY, `cancel`). A verb of sending counts as a noun beside one of
    looking.
    """
    words = name_words(name)
    for word in words:
        if word in _DESTROYS:
            return DESTROY, word
        if word in _SENDS and not _is_noun(word, words):
            return SEND, word
        if word in _LOOKS:
            return READ, word
        if word in _CHANGES:
            return CHANGE, word
    return CHANGE, None


def _is_noun(word: str, words: list[str]) -> bool:
    """Return whether a word that can be a verb is a noun here: order in get_order_status.

    True if another word of the name is a verb of looking.
    """
    return any(each in _LOOKS for each in words if each != word)


def _command_in(call: Call) -> str | None:
    """Return the command or SQL statement that a call runs, in lower case, or None.

    It is in arguments such as `command` or `query`; None unless the tool's name says that it
    runs commands or the text begins like SQL.
    """
    texts = [
        value.text
        for value in call.values[:20]
        if value.path
        and name_words(value.path)[-1:]
        and name_words(value.path)[-1] in _COMMAND_NAMES
    ]
    if not texts:
        return None
    is_shell = bool(set(name_words(call.name)) & _SHELLS)
    has_form = re.match(r"\s*(?:select|with|insert|update|delete|drop|alter|create)\b", texts[0])
    return "\n".join(texts)[:4_000] if is_shell or has_form else None


def _of_command(command: str, is_idempotent: bool) -> Effect:
    """Return the effect of a shell command or SQL statement, in lower case.

    `rm` destroys, `git push` sends, `select` and `ls` read, `mv` changes; an unknown command
    changes.
    """
    if _DESTRUCTIVE_COMMAND.search(command):
        return Effect(DESTROY, "the command deletes or overwrites", is_idempotent)
    if _PUBLISHING_COMMAND.search(command):
        return Effect(SEND, "the command publishes", is_idempotent)
    if re.match(r"\s*(?:select|explain|show|describe|with)\b", command):
        return Effect(READ, "the statement only reads")
    if _WRITING_COMMAND.search(command):
        return Effect(CHANGE, "the command changes something", is_idempotent)
    heads = [part.split() for part in re.split(r"[|;&\n]+", command[:2_000]) if part.split()]
    if all(
        h[0] in _SAFE_COMMANDS or (h[0] == "git" and h[1:2] and h[1] in _SAFE_GIT) for h in heads
    ):
        return Effect(READ, "the command only reads")
    return Effect(CHANGE, "nothing says that the command only reads", is_idempotent)


def risk_of_call(call: Call, tool: Tool | None, chat: ChatText) -> tuple[str, tuple[str, ...]]:
    """Return (damage of a wrong call, one of `RISKS`, the reasons in words).

    A call that reads is LOW, or HIGH if it reaches for a secret that the user did not name.
    Others begin at the lowest; sending or destroying, not being asked for, and each aggravating
    fact raise the risk by a step.
    """
    effect = effect_of(call, tool, chat.view)
    reasons = [effect.why]
    if effect.is_read:
        if _SECRET.search(_texts(call)) and not _SECRET.search(chat.sources.users.text):
            return HIGH, (*reasons, "it reaches for a secret that the user did not name")
        return LOW, tuple(reasons)
    is_asked, how = find_authorisation(call, effect, chat)
    level = 1 if effect.is_final else 0
    level += not is_asked
    reasons.append(how)
    for reason in _aggravating_facts(call, effect, chat):
        level += 1
        reasons.append(reason)
    return RISKS[min(level, len(RISKS) - 1)], tuple(reasons)


def find_authorisation(call: Call, effect: Effect, chat: ChatText) -> tuple[bool, str]:
    """Return (whether the user's own messages ask for such a call, the reason in words).

    The last four turns are read; a turn that only asks to look counts only if it has the tool's
    verb.
    """
    verb = _of_name(call.name)[1]
    own = {stem(verb)} if verb else set()
    classes = verb_classes([verb] if verb else name_words(call.name)[:1]) - {"look"}
    for turn in reversed(chat.view.turns[-4:]):
        if effect.kind == DESTROY and _CALLED_OFF.search(turn.lower()[-4_000:]):
            return True, "the user asked for it"
        words = words_of(turn)
        stems = {stem(word) for word in words}
        is_named = bool(own & stems)
        if not is_named and is_look(turn):
            continue
        if is_named or stems & _KIN_STEMS[effect.kind] or classes & verb_classes(words):
            named = [v for v in call.values[:20] if _is_target(v)]
            if named and not any(is_named_by_user(v, chat) for v in named) and effect.is_final:
                return True, "the user asked for it, and named none of its targets"
            return True, "the user asked for it"
    return False, "the user's own words do not ask for it"


def _is_target(value: Value) -> bool:
    """Return whether a value is an id, an address, a path or a name."""
    return value.kind in ("id", "mail", "path", "name") and bool(value.text)


def _aggravating_facts(call: Call, effect: Effect, chat: ChatText) -> Iterator[str]:
    """Yield, in words, each fact that makes a call riskier, such as `an amount of 5000`.

    Others are many targets or a pattern unless the user said all, a production system or a
    secret that the user did not name, and a call that has succeeded already. `effect` is that
    of the call.
    """
    for value in call.values[:40]:
        names = set(name_words(value.path))
        if names & _AMOUNTS and value.number is not None and abs(value.number) >= LARGE:
            yield f"an amount of {value.number:g}"
            break
    targets = [v for v in call.values[:60] if set(name_words(v.path)) & _RECIPIENTS]
    is_broad = len(targets) >= MANY or bool(_EVERYONE.search(_texts(call)))
    if is_broad and not says_all(chat.view):
        yield "many targets, and the user did not say all"
    if "*" in _texts(call) and effect.kind == DESTROY and not says_all(chat.view):
        yield "a pattern that matches many, and the user did not say all"
    live = set(_LIVE.findall(_texts(call)))
    if effect.is_final and live and not live & set(words_of(chat.sources.users.text)):
        yield f"it reaches {min(live)}, which the user did not name"
    if _SECRET.search(_texts(call)) and not _SECRET.search(chat.sources.users.text):
        yield "it reaches for a secret that the user did not name"
    again = any(
        c.key == call.key and c.result and not is_failure(c.result) for c in chat.view.earlier
    )
    if again and not effect.is_idempotent:
        yield "the same call has succeeded already, and nothing says that it can be repeated"


def _texts(call: Call) -> str:
    """Return the values of a call as one text in lower case, each cut to 400 characters."""
    return " ".join(value.text[:400] for value in call.values[:40])
