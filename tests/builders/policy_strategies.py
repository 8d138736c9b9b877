"""Policies and facts drawn at random, for tests of rules that hold for all of them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from policies import Facts, Policy, ToolCall, parse_policy
from policies.conditions.findings import ACTS, BASES

Values = dict[str, Any]

names = st.sampled_from(["a", "b", "a1", "b2", "long-name"])
globs = st.sampled_from(["a*", "b", "*", "?", "[ab]1", "long-*"])
glob_lists = globs | st.lists(globs, min_size=1, max_size=3)
words = st.sampled_from(["x", "y", "stop", "length"])
word_lists = words | st.lists(words, min_size=1, max_size=2)
hundredths = st.integers(1, 99).map(lambda n: n / 100)
durations = st.sampled_from(["1s", "5m", "2h"])


def counts(least: int) -> st.SearchStrategy[Any]:
    return st.integers(least, 4) | st.fixed_dictionaries({"at_least": st.integers(least, 4)})


bands = (
    st.fixed_dictionaries({"below": hundredths})
    | st.fixed_dictionaries({"at_least": hundredths})
    | st.tuples(st.integers(0, 50), st.integers(51, 100)).map(
        lambda ends: {"between": [ends[0] / 100, ends[1] / 100]}
    )
)
confidences = (
    bands
    | st.fixed_dictionaries({"lowest_share": hundredths})
    | st.fixed_dictionaries({"max_error": hundredths})
)
arguments = st.dictionaries(
    st.sampled_from(["amount", "to.email", "*"]),
    globs
    | st.integers(0, 200)
    | st.booleans()
    | st.none()
    | st.fixed_dictionaries({"above": st.integers(0, 200)}, optional={"not": globs}),
    min_size=1,
    max_size=2,
)
tools = st.sampled_from(["any", "none"]) | st.lists(
    globs | st.fixed_dictionaries({"name": glob_lists}, optional={"arguments": arguments}),
    min_size=1,
    max_size=3,
)
on_request: dict[str, st.SearchStrategy[Any]] = {
    "model": glob_lists,
    "team": glob_lists,
    "key": glob_lists,
    "domain": glob_lists,
    "tags": word_lists,
    "stream": st.booleans(),
}
bases, acts = st.sampled_from(BASES), st.sampled_from(ACTS)
base_lists = bases | st.lists(bases, min_size=1, max_size=3)
act_lists = acts | st.lists(acts, min_size=1, max_size=3)
whens = st.fixed_dictionaries(
    {},
    optional=on_request
    | {
        "confidence": confidences,
        "n": counts(1),
        "finish_reason": word_lists,
        "refusal": st.booleans(),
        "length": counts(0),
        "tools": tools,
        "support": bands,
        "basis": base_lists | st.fixed_dictionaries({"only": base_lists}),
        "act": act_lists,
        "needs_facts": st.booleans(),
        "familiar": st.booleans(),
    },
)

held: dict[str, st.SearchStrategy[Any]] = {
    "expires": durations,
    "on_expiry": st.sampled_from(["reject", "deliver", "block"]),
}
holds = st.fixed_dictionaries({}, optional=held | {"queue": names}) | st.fixed_dictionaries(
    {"reply": st.sampled_from(["wait", "async"])},
    optional={"otherwise": st.sampled_from(["placeholder", "error"])},
)
plain_actions = st.sampled_from(["deliver", "clarify", "hold", "block"])
ends = (
    plain_actions
    | st.fixed_dictionaries({"hold": holds})
    | st.fixed_dictionaries({"deliver": st.fixed_dictionaries({"notice": names})})
    | st.fixed_dictionaries({"annotate": st.fixed_dictionaries({"label": names})})
    | st.fixed_dictionaries({"block": st.fixed_dictionaries({}, optional={"message": names})})
    | st.fixed_dictionaries(
        {"clarify": st.fixed_dictionaries({"ask": st.just("generate")}, optional={"model": names})}
    )
)
ladders = names | st.lists(names, min_size=1, max_size=4, unique=True)
actions = (
    ends
    | st.fixed_dictionaries(
        {
            "escalate": st.fixed_dictionaries(
                {"to": ladders},
                optional={"keep": st.sampled_from(["best", "last"]), "otherwise": ends},
            )
        }
    )
    | st.fixed_dictionaries({"escalate": st.fixed_dictionaries({"human": names}, optional=held)})
)


def _fitting(when: Values, then: Any) -> Values:
    """Return the rule, without its notice if it is about tool calls: a notice needs a text."""
    has_notice = isinstance(then, dict) and "deliver" in then
    return {"when": when, "then": "deliver" if has_notice and "tools" in when else then}


whens_and_actions = st.builds(_fitting, whens.filter(bool), actions)


@st.composite
def documents(draw: st.DrawFn, rules_at_most: int = 5) -> Values:
    """Draw the values of a valid policy that does not promise what it then delivers anyway."""
    rules = []
    for index in range(draw(st.integers(0, rules_at_most))):
        # Only the last rule may be without conditions.
        rule = draw(whens_and_actions)
        rules.append({"name": f"r{index}", **rule, "shadow": draw(st.booleans())})
    document: Values = {"version": 1, "name": "drawn", "rules": rules, "default": draw(actions)}
    if any("max_error" in rule["when"].get("confidence", {}) for rule in rules):
        document["default"] = "hold"
    optional = st.fixed_dictionaries(
        {},
        optional={
            "mode": st.sampled_from(["enforce", "shadow"]),
            "on_score_error": st.sampled_from(["deliver", "hold", {"hold": {"queue": "q"}}]),
            "ask": st.fixed_dictionaries(
                {"n": st.integers(2, 4)},
                optional={"when": st.fixed_dictionaries({}, optional=on_request)},
            ),
            "costs": st.fixed_dictionaries(
                {}, optional={"deliver": st.integers(0, 9), "queues": st.just({"q": 1.5})}
            ),
        },
    )
    return document | draw(optional)


def parsed(document: Values) -> Policy:
    """Parse the document, which is written as JSON, since JSON is YAML too."""
    return parse_policy(json.dumps(document), "drawn.yaml")


policies = documents().map(parsed)
tool_calls = st.builds(
    ToolCall,
    names,
    st.sampled_from(
        ["{}", "", "not JSON", '{"amount": 150}', '{"amount": "x", "to": [{"email": "a"}]}', "[1]"]
    ),
)
facts = st.builds(
    Facts,
    confidence=st.none() | st.integers(0, 100).map(lambda n: n / 100),
    model=names,
    tools=st.lists(tool_calls, max_size=3).map(tuple),
    stream=st.booleans(),
    finish_reason=st.none() | words,
    n=st.integers(1, 4),
    domain=st.none() | names,
    tags=st.frozensets(words, max_size=2),
    team=st.none() | names,
    key=st.none() | names,
    refusal=st.booleans(),
    length=st.integers(0, 5),
    share_below=st.none() | st.integers(0, 100).map(lambda n: n / 100),
    calibrator=st.sampled_from([None, "embedded@1"]),
    support=st.none() | st.integers(0, 100).map(lambda n: n / 100),
    basis=st.lists(bases, unique=True, max_size=3).map(tuple),
    act=st.none() | acts,
    needs_facts=st.none() | st.booleans(),
    familiar=st.none() | st.booleans(),
)
