"""`proxy.yaml`: what loads, what it means, and the message for each mistake."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from pydantic import ValidationError

from policies import InvalidDocumentError
from proxy.config.sections import Config, TeamConfig, find_config, load_config, load_config_policy

ROOT = Path(__file__).parents[3]
SHIPPED = ROOT / "proxy.yaml"

DESIGN = """
upstreams:
  openai:
    base_url: ${OPENAI_BASE_URL:-https://api.openai.com/v1}
    api_key: ${OPENAI_API_KEY:-}      # empty: the client's own Authorization goes upstream
  demo: {demo: true}
  others: {litellm: auto}
models:
  - {match: demo, upstream: demo}
  - {match: "gemini/*", upstream: others}
  - {match: "*", upstream: openai}
calibrator:
  checkpoint: ${PINOCCHIO_CALIBRATOR:-embedded}
  device: auto
  timeout_s: 2.0
policies: policies/packs/observe.yaml
store: sqlite:///pinocchio.db
limits: {max_body: 64MB}
"""

Load = Callable[..., Config]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Return a function that loads a configuration from text, with an environment of its own."""
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def from_text(text: str, **env: str) -> Config:
        Path("proxy.yaml").write_text(dedent(text).removeprefix("\n"), encoding="utf-8")
        return load_config(Path("proxy.yaml"), env)

    return from_text


SECRET_HERE = """
upstreams:
  one: {base_url: https://api.example.com/v1, api_key: k}
  two: {litellm: auto}
models: [{match: m, upstream: one}]
calibrator: {checkpoint: embedded, device: auto, timeout_s: 2.0}
store: sqlite:///pinocchio.db
limits: {max_body: 64MB, max_held: 100}
admin: {host: 127.0.0.1, port: 8001}
keys: required
surfaces: [chat]
webhooks: [{url: https://hooks.example.com/x, events: [held], format: slack}]
"""


def test_error_messages_contain_no_secrets(load: Load) -> None:
    """A variable with a key that is put in the wrong place is named without its value."""
    secret, messages = "sk-live-canary-9c1d", []
    for found in re.finditer(r": ([^\s{}\[\],]+)(?=[,}\n])|\[(\w+)\]", SECRET_HERE):
        place = slice(*found.span(found.lastindex or 0))
        text = SECRET_HERE[: place.start] + '"${THE_API_KEY}"' + SECRET_HERE[place.stop :]
        try:
            load(text, THE_API_KEY=secret)
        except InvalidDocumentError as error:
            messages.append(str(error))
    assert len(messages) >= 10
    assert [each for each in messages if secret in each] == []


# --- meaning of a file --------------------------------------------------------------------------


def test_the_designs_example_loads(load: Load) -> None:
    """The configuration in design and README has the meaning that they describe."""
    config = load(DESIGN)
    assert config.upstreams["openai"].base_url == "https://api.openai.com/v1"
    assert config.upstreams["demo"].demo is True
    assert config.upstreams["others"].litellm == "auto"
    assert [(route.match, route.upstream) for route in config.models] == [
        ("demo", "demo"),
        ("gemini/*", "others"),
        ("*", "openai"),
    ]
    assert (config.calibrator.checkpoint, config.calibrator.timeout_s) == ("embedded", 2.0)
    assert config.limits.max_body == 64 * 2**20


def test_the_shipped_file_says_the_defaults(load: Load) -> None:
    """The values in the shipped proxy.yaml are the defaults."""
    assert load(SHIPPED.read_text(encoding="utf-8")) == Config()


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "{}"])
def test_an_empty_file_is_the_defaults(load: Load, text: str) -> None:
    """Every section is optional."""
    assert load(text) == Config() == load_config(None)


SECTIONS = list(Config.model_fields)


@pytest.mark.parametrize("text", [f"{name}:\n  # nothing\n" for name in SECTIONS], ids=SECTIONS)
def test_a_section_that_is_commented_out_is_its_defaults(load: Load, text: str) -> None:
    """A section that is null in YAML, because all of it is commented out, has its defaults."""
    assert load(text) == Config()


@pytest.mark.parametrize("inner", ["images: ", "engine: ", "images: {fetch: }"])
def test_a_section_in_a_section_may_be_commented_out(load: Load, inner: str) -> None:
    """A nested section may be null as well, also a team's."""
    assert load(f"calibrator: {{{inner}}}") == Config()
    assert load(f"keys: required\n{DEMO}teams: {{support: }}").teams["support"] == TeamConfig()


@pytest.mark.parametrize("section", ["calibrator", "attach", "limits"])
def test_a_section_overrides_only_what_it_names(load: Load, section: str) -> None:
    """The keys that a section does not name keep their defaults."""
    line = {"calibrator": "max_queue: 5", "attach": "body: false", "limits": "max_held: 5"}[section]
    changed, default = getattr(load(f"{section}: {{{line}}}"), section), getattr(Config(), section)
    key = line.partition(":")[0]
    assert changed.model_dump(exclude={key}) == default.model_dump(exclude={key})
    assert getattr(changed, key) in (5, False)


def test_the_environment_fills_in(load: Load) -> None:
    """`${NAME:-default}` is the variable if it is set, and the default otherwise."""
    config = load(
        DESIGN,
        OPENAI_BASE_URL="http://127.0.0.1:9/v1",
        OPENAI_API_KEY="sk-secret",
        PINOCCHIO_CALIBRATOR="fake:0.73",
    )
    assert config.upstreams["openai"].base_url == "http://127.0.0.1:9/v1"
    assert config.upstreams["openai"].api_key.get_secret_value() == "sk-secret"
    assert config.calibrator.checkpoint == "fake:0.73"


def test_the_defaults_look_at_openais_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a file, OPENAI_BASE_URL and OPENAI_API_KEY mean the same as in the shipped one."""
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert load_config(None) == load_config(SHIPPED)
    assert load_config(None).upstreams["openai"].api_key.get_secret_value() == "sk-secret"


@pytest.mark.parametrize("key", ["12345678", "'12345678'", "${KEY}", '"${KEY}"'])
def test_a_key_of_digits_is_text(load: Load, key: str) -> None:
    """An unquoted key that looks like a number is read as text."""
    text = DESIGN.replace("${OPENAI_API_KEY:-}", key)
    config = load(text, KEY="12345678")
    assert config.upstreams["openai"].api_key.get_secret_value() == "12345678"


def test_secrets_are_not_shown(load: Load) -> None:
    """The representation of a configuration hides its keys, so that it can be logged."""
    assert "sk-secret" not in repr(load(DESIGN, OPENAI_API_KEY="sk-secret"))


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("5", 5),
        ("'5'", 5),
        ("10B", 10),
        ("10KB", 10 * 2**10),
        ("64MB", 2**26),
        ("64 mb", 2**26),
        ("2GB", 2**31),
    ],
)
def test_sizes(load: Load, size: str, expected: int) -> None:
    """A size is a number of bytes, or has a unit."""
    assert load(f"limits: {{max_body: {size}}}").limits.max_body == expected


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:0", "cuda:99", "mps"])
def test_devices(load: Load, device: str) -> None:
    """A name in the form of a device's loads, whether the device exists or not."""
    assert load(f"calibrator: {{device: '{device}'}}").calibrator.device == device


def test_an_empty_list_of_keys_leaves_the_proxy_open(load: Load) -> None:
    """`keys: []` means `keys: open`."""
    assert load("keys: []").keys == load("keys: open").keys == "open"


def test_a_configuration_cannot_change() -> None:
    """A loaded configuration is immutable."""
    config = Config()
    with pytest.raises(ValidationError, match="frozen"):
        config.limits.max_body = 5


# --- mistakes -----------------------------------------------------------------------------------

LOCAL = "upstreams: {local: {base_url: http://127.0.0.1:1}}\n"

DEMO = 'upstreams: {demo: {demo: true}}\nmodels: [{match: "*", upstream: demo}]\n'

MISTAKES = [
    # unknown keys
    ("upstream: {}", 1, "unknown key 'upstream'; did you mean 'upstreams'?"),
    (
        "zzz: 1",
        1,
        "unknown key 'zzz'; known here: upstreams, models, calibrator, policies, attach, store, "
        "records, audit, keys, surfaces, websockets, shared_ids, teams, admin, webhooks, limits, "
        "workers, scorer, telemetry, guardrails",
    ),
    (
        "calibrator:\n  engine:\n    kind: scorr\n    base_url: http://x",
        3,
        "calibrator.engine.kind: there is no engine 'scorr'; did you mean 'scorer'?",
    ),
    (
        "calibrator: {engine: {kind: scorer, base_url: 'http://x', tokn: 1}}",
        1,
        "calibrator.engine: unknown key 'tokn'; known here: kind, base_url, api_key, concurrency",
    ),
    (
        "calibrator:\n  engine:\n    kind: scorer",
        2,
        "calibrator.engine.base_url: is missing",
    ),
    (
        "calibrator:\n  engine: {kind: scorer, base_url: 'http://sk-x@h'}",
        2,
        "calibrator.engine.base_url: a base_url begins with http:// or https:// and ends with a "
        "host, port or path; a key belongs in api_key",
    ),
    (
        "calibrator: {device: cuda, engine: {kind: scorer, base_url: 'http://x'}}",
        1,
        "calibrator: scorer computes elsewhere; remove device and threads",
    ),
    (
        "calibrator: {checkpoint: none, engine: {kind: scorer, base_url: 'http://x'}}",
        1,
        "calibrator: 'checkpoint: none' needs no engine; remove one of them",
    ),
    (
        "calibrator: {recalibration: x, engine: {kind: scorer, base_url: 'http://x'}}",
        1,
        "calibrator: name the checkpoint that the recalibration is for",
    ),
    (
        "calibrator: {checkpoint: embedded, engine: {kind: decisions, model: typesafe/jev}}",
        1,
        "calibrator: a decision model has no checkpoint of ours; remove checkpoint",
    ),
    (
        "calibrator: {engine: {kind: vllm, base_url: 'http://x'}}",
        1,
        "calibrator: name the checkpoint whose prompt and labels vllm is asked with",
    ),
    (
        "calibrator: {engine: {kind: decisions, model: two words}}",
        1,
        "calibrator.engine.model: a model's name is at most 200 visible ASCII characters, without "
        "spaces",
    ),
    (
        "calibrator:\n  chekpoint: x",
        2,
        "calibrator: unknown key 'chekpoint'; did you mean 'checkpoint'?",
    ),
    (
        "upstreams:\n  a:\n    base_ulr: http://x\n    demo: true",
        3,
        "upstreams.a: unknown key 'base_ulr'; did you mean 'base_url'?",
    ),
    (
        "models:\n  - {match: a, upstream: demo}\n"
        "  - match: b\n    upsteam: demo\n    upstream: demo",
        4,
        "models[1]: unknown key 'upsteam'; did you mean 'upstream'?",
    ),
    (
        "upstreams: {breaker: {base_url: 'http://x/v1', breaker: {failurs: 3}}}",
        1,
        "upstreams.breaker.breaker: unknown key 'failurs'; did you mean 'failures'?",
    ),
    (
        "models: [{match: '*', upstream: openai, fallback: {to: [b], within: 3}}]",
        1,
        "models[0].fallback: unknown key 'within'; did you mean 'within_s'?",
    ),
    (
        "keys: required\nteams: {t: {attach: {heders: true}}}",
        2,
        "teams.t.attach: unknown key 'heders'; did you mean 'headers'?",
    ),
    ("attach: {header: true}", 1, "attach: unknown key 'header'; did you mean 'headers'?"),
    ("limits:\n\n  max_bodies: 1", 3, "limits: unknown key 'max_bodies'; did you mean 'max_body'?"),
    # contradictions
    (
        "upstreams:\n  a: {demo: true, base_url: http://x}",
        2,
        "upstreams.a: 'demo: true' answers by itself; remove base_url, litellm and via",
    ),
    (
        "upstreams:\n  a: {demo: true, litellm: auto}",
        2,
        "upstreams.a: 'demo: true' answers by itself; remove base_url, litellm and via",
    ),
    (
        "upstreams:\n  a: {demo: true, via: litellm}",
        2,
        "upstreams.a: 'demo: true' answers by itself; remove base_url, litellm and via",
    ),
    (
        "upstreams:\n  a: {api_key: x}",
        2,
        "upstreams.a: an upstream needs 'base_url', 'litellm' or 'demo: true'",
    ),
    (
        "upstreams:\n  a: {base_url: api.openai.com/v1}",
        2,
        "upstreams.a: base_url must begin with http:// or https://, not 'api.openai.com/v1'",
    ),
    # routes
    (
        LOCAL + "models:\n  - {match: a, upstream: local}\n  - {match: b, upstream: lokal}",
        4,
        "models[1].upstream: there is no upstream 'lokal'; did you mean 'local'?",
    ),
    (
        "models:\n  - match: b\n    upstream: zzz",
        3,
        "models[0].upstream: there is no upstream 'zzz'; known here: openai, demo",
    ),
    ("models:\n  - {upstream: demo}", 2, "models[0].match: is missing"),
    (
        "attach: {}\n" + LOCAL,
        2,
        'upstreams: say which models these answer, for example models: [{match: "*", '
        "upstream: local}]",
    ),
    # wrong values
    (
        "calibrator:\n  timeout_s: 0",
        2,
        "calibrator.timeout_s: must be more than 0",
    ),
    (
        "calibrator: {timeout_s: soon}",
        1,
        "calibrator.timeout_s: must be a number",
    ),
    (
        "calibrator: {max_queue: 1.5}",
        1,
        "calibrator.max_queue: must be a whole number",
    ),
    ("attach: {body: no}", 1, "attach.body: must be true or false"),
    ("attach: {body: 1}", 1, "attach.body: must be true or false"),
    (
        "limits: {max_body: 1.5MB}",
        1,
        "limits.max_body: a size is a whole number with B, KB, MB or GB, not '1.5MB'",
    ),
    ("limits: {max_body: 1.5}", 1, "limits.max_body: must be a whole number"),
    ("limits: {max_body: -1}", 1, "limits.max_body: must be more than 0"),
    (
        "upstreams: {a: {base_url: http://x, via: magic}}",
        1,
        "upstreams.a.via: must be 'relay' or 'litellm'",
    ),
    (
        "store: mysql://root:secret@x/y",
        1,
        "store: a store is sqlite:///PATH or postgresql://USER:PASSWORD@HOST/DATABASE, and this "
        "is 'mysql'",
    ),
    (
        "keys: [abc]",
        1,
        "keys: no keys here; say 'required' and make them with `pinocchio keys create`",
    ),
    ("keys: closed", 1, "keys: must be 'open' or 'required'"),
    ("teams: {a: {}}", 1, "teams: teams are told apart by their keys: add 'keys: required'"),
    (
        "keys: required\n" + DEMO + "teams:\n  'a b': {}",
        5,
        "teams.a b: a team's name is at most 64 of A-Z, a-z, 0-9, '.', '_' and '-'",
    ),
    (
        "keys: required\n" + DEMO + "teams:\n  a: {polici: x}",
        5,
        "teams.a: unknown key 'polici'; did you mean 'policy'?",
    ),
    (
        "keys: required\n" + LOCAL + "models: [{match: '*', upstream: local}]",
        2,
        "upstreams.local: with 'keys: required' the client's key stays here; set api_key (any "
        "word, where upstream asks for none)",
    ),
    ("policies: 5", 1, "policies: must be text"),
    *(
        (
            f"calibrator:\n  device: {device}",
            2,
            f"calibrator.device: device {device!r} cannot be used here: it is none of auto, cpu, "
            "cuda, mps, xpu",
        )
        for device in ("potato", "cuda:x", "cuda0")
    ),
    # no sections
    ("calibrator: 5", 1, "calibrator: must be a mapping"),
    ("calibrator: {images: [1]}", 1, "calibrator.images: must be a mapping"),
    ("calibrator:\n  engine: vllm", 2, "calibrator.engine: must be a mapping"),
    (
        'calibrator:\n  images:\n    fetch: "yes"',
        3,
        "calibrator.images.fetch: must be a mapping, true or false",
    ),
    ("admin: []", 1, "admin: must be a mapping, true or false"),
    ("upstreams: [demo]", 1, "upstreams: must be a mapping"),
    ("upstreams:\n  demo: true", 2, "upstreams.demo: must be a mapping"),
    (
        "upstreams:\n  demo:",
        2,
        "upstreams.demo: an upstream needs 'base_url', 'litellm' or 'demo: true'",
    ),
    ("models: {match: demo}", 1, "models: must be a list"),
    ("models:\n  - demo", 2, "models[0]: must be a mapping"),
    ("webhooks:\n  - https://x.example", 2, "webhooks[0]: must be a mapping"),
    (f"keys: required\n{DEMO}teams:\n  a: b", 5, "teams.a: must be a mapping"),
    (
        f"keys: required\n{DEMO}teams:\n  a: {{attach: no}}",
        5,
        "teams.a.attach: must be a mapping",
    ),
    # the file itself
    ("- a", 1, "a configuration is a mapping of sections"),
    ("attach: {}\nattach: {}", 2, "duplicate key 'attach', first on line 1"),
    (
        "store: ${NOWHERE}",
        1,
        "environment variable NOWHERE is not set; ${NOWHERE:-...} gives it a default",
    ),
]


@pytest.mark.parametrize(("text", "line", "message"), MISTAKES, ids=[m[2][:40] for m in MISTAKES])
def test_every_mistake_has_its_line_and_sentence(
    load: Load, text: str, line: int, message: str
) -> None:
    """A mistake is reported with file, line, key and what to do, and nothing else is."""
    with pytest.raises(InvalidDocumentError) as caught:
        load(text)
    assert str(caught.value) == f"proxy.yaml:{line}: {message}"


def test_all_errors_are_reported(load: Load) -> None:
    """All mistakes are reported at once, in the order of their lines."""
    with pytest.raises(InvalidDocumentError) as caught:
        load(
            """
            limits: {max_held: 0}
            calibrator:
              devise: cpu
              timeout_s: x
            upstreams: {a: {}}
            """
        )
    assert [(problem.line, str(problem).split(": ")[1]) for problem in caught.value.problems] == [
        (1, "limits.max_held"),
        (3, "calibrator"),
        (4, "calibrator.timeout_s"),
        (5, "upstreams.a"),
    ]


def test_all_unknown_routes_are_reported(load: Load) -> None:
    """Each route to an unknown upstream is reported with its own line."""
    with pytest.raises(InvalidDocumentError) as caught:
        load("models:\n  - {match: a, upstream: x}\n  - {match: b, upstream: y}")
    assert [problem.line for problem in caught.value.problems] == [2, 3]


def test_a_file_that_is_missing_is_named() -> None:
    """A named configuration that does not exist is an error, and the defaults do not replace it."""
    with pytest.raises(InvalidDocumentError, match=r"nowhere\.yaml: there is no such file"):
        load_config(Path("nowhere.yaml"))


# --- which file, which policy -------------------------------------------------------------------


def test_the_file_in_the_folder_is_found(load: Load, tmp_path: Path) -> None:
    """`./proxy.yaml` is read if it exists, and a named file always counts before it."""
    assert find_config(None) is None
    load("{}")
    assert find_config(None) == Path("proxy.yaml")
    assert find_config(Path("other.yaml")) == Path("other.yaml")


def test_the_policy_is_a_pack_or_a_file_beside_the_configuration(
    load: Load, tmp_path: Path
) -> None:
    """A policy is a pack's name or a path from the configuration; an option counts before both."""
    Path("mine.yaml").write_text("version: 1\nname: mine\nrules: []\ndefault: deliver\n")
    config = load("policies: mine.yaml")
    assert load_config_policy(config, tmp_path / "proxy.yaml").name == "mine"
    assert load_config_policy(config, tmp_path / "proxy.yaml", "observe").name == "observe"
    assert load_config_policy(Config(), None).name == "observe"


def test_a_policy_that_is_not_there_is_named(load: Load, tmp_path: Path) -> None:
    """The message about an unknown policy lists the known ones."""
    with pytest.raises(InvalidDocumentError, match=r"helpdsk.*helpdesk"):
        load_config_policy(load("policies: helpdsk"), tmp_path / "proxy.yaml")
