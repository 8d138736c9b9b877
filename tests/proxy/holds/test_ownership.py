"""Objects in upstream's store belong to the key that made them, and show nothing withheld."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from proxy.holds.named_ids import RequestTarget, ids_in_body, place_in
from tests.conftest import StartProxy
from tests.running.client_keys import OWN_KEY, bearer, make_key, wait_until_known
from tests.running.desk_client import DESK, decide
from tests.running.live_proxy import LiveProxy, error_of, question
from tests.running.responses_requests import UNSURE
from tests.servers.responses_upstream import ResponsesUpstream
from tests.servers.storing_upstream import StoringUpstream

HOLD = "{version: 1, name: strict, on_score_error: deliver, default: {hold: {queue: q}}}"
UNSURE_HELD = """
version: 1
name: strict
rules: [{name: unsure, when: {confidence: {below: 0.5}}, then: hold}]
default: deliver
"""
KEYS: dict[str, Any] = {"keys": "required", "upstream": {"api_key": OWN_KEY}}
SECRET = "secret p=0.2"
Start = Callable[..., LiveProxy]


@pytest.fixture(scope="module")
def upstream() -> Iterator[StoringUpstream]:
    with StoringUpstream() as found:
        yield found


@pytest.fixture
def start(upstream: StoringUpstream, tmp_path: Path) -> Iterator[Start]:
    started: list[LiveProxy] = []

    def begin(**options: Any) -> LiveProxy:
        folder = tmp_path / str(options.pop("folder", len(started)))
        folder.mkdir(exist_ok=True)
        started.append(LiveProxy(upstream.base_url, folder, **options))
        return started[-1]

    yield begin
    for proxy in started:
        proxy.stop()


OPEN: list[httpx.Client] = []


@pytest.fixture(autouse=True)
def closed_clients() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


def client(proxy: LiveProxy, **fields: Any) -> httpx.Client:
    """Return a client with its own key."""
    secret, _ = make_key(proxy.store_path, **fields)
    wait_until_known(proxy.base_url, secret)
    OPEN.append(httpx.Client(base_url=proxy.base_url, headers=bearer(secret), trust_env=False))
    return OPEN[-1]


def code_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, error_of(response)["code"]


# What a policy withheld


def test_a_held_completion_is_not_read_from_upstreams_store(
    start: Start, upstream: StoringUpstream
) -> None:
    """A held completion is neither in upstream's list nor
    under its id, also after a restart; other answers are.
    """
    proxy = start(policy=UNSURE_HELD, folder="same")
    held = proxy.ask(SECRET, store=True).json()["id"]
    theirs = [each["id"] for each in upstream.kept.values() if "choices" in each][-1]
    mine = proxy.ask("sure p=0.9", store=True).json()["id"]
    for _ in range(2):
        listed = proxy.http.get("/v1/chat/completions").json()["data"]
        assert mine in [each["id"] for each in listed]
        assert theirs not in [each["id"] for each in listed]
        assert proxy.http.get(f"/v1/chat/completions/{theirs}").json()["id"] == held
        assert "secret" not in proxy.http.post(f"/v1/chat/completions/{theirs}", json={}).text
        assert "secret" not in proxy.http.get(f"/v1/chat/completions/{theirs}/messages").text
        assert proxy.http.get(f"/v1/chat/completions/{mine}").json()["id"] == mine
        proxy.stop()
        proxy = start(policy=UNSURE_HELD, folder="same")


def test_a_completion_of_unknown_standing_is_not_read(
    start: Start, upstream: StoringUpstream
) -> None:
    """Where a policy is enforced, a completion without a known decision cannot be read."""
    body = question(SECRET, "ok", store=True)
    id = httpx.post(f"{upstream.base_url}/chat/completions", json=body).json()["id"]
    assert start().http.get(f"/v1/chat/completions/{id}").json()["id"] == id
    strict = start(policy=UNSURE_HELD)
    assert code_of(strict.http.get(f"/v1/chat/completions/{id}")) == (404, "unknown_id")


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/v1/conversations/c-1/items", "read_undecided"),
        ("GET", "/v1/conversations/c-1/items/i-1", "read_undecided"),
        ("GET", "/v1//Conversations/c-1//items/", "read_undecided"),
        ("GET", "/v1/responses/resp_1/input_items", "read_undecided"),
        ("POST", "/v1/batches", "batch_undecided"),
        ("POST", "/v1/messages/batches", "batch_undecided"),
    ],
)
def test_what_cannot_be_decided_on_is_refused(
    start: Start, upstream: StoringUpstream, method: str, path: str, code: str
) -> None:
    """Items and batches, which may show answers that a policy holds, are refused under a policy."""
    observing, strict = start(), start(policy=HOLD)
    assert observing.http.request(method, path, json={}).status_code == 200
    upstream.forget()
    response = strict.http.request(method, path, json={})
    body = response.json()["error"]
    assert (response.status_code, body["code"]) == (400, code)
    assert upstream.requests == []


def test_a_held_response_is_not_gone_on_with(
    start_responses: StartProxy, responses_upstream: ResponsesUpstream
) -> None:
    """A held response cannot be continued, since a model would repeat its text."""
    proxy = start_responses(policy=UNSURE % ("hold", "hold"))
    proxy.http.post("/v1/responses", json={"model": "ok", "input": SECRET})
    theirs = [*responses_upstream.stored][-1]
    again = {"model": "ok", "input": "repeat it p=0.9", "previous_response_id": theirs}
    assert code_of(proxy.http.post("/v1/responses", json=again)) == (404, "unknown_id")


def test_an_edited_response_is_not_gone_on_with(
    start_responses: StartProxy, responses_upstream: ResponsesUpstream
) -> None:
    """An edited response cannot be continued, since upstream has the text from before the edit."""
    proxy = start_responses(policy=UNSURE % ("hold", "hold"), **DESK)
    held = proxy.http.post("/v1/responses", json={"model": "ok", "input": SECRET}).json()
    theirs = [*responses_upstream.stored][-1]
    held_id = held["id"]
    assert decide(proxy, held_id, verdict="edit", content="[removed]").status_code == 200
    sent = len(responses_upstream.received)
    for id in (held_id, theirs):
        again = {"model": "ok", "input": "repeat it p=0.9", "previous_response_id": id}
        assert code_of(proxy.http.post("/v1/responses", json=again)) == (404, "unknown_id")
    assert len(responses_upstream.received) == sent


def test_a_held_response_stays_held_over_a_restart(
    responses_upstream: ResponsesUpstream, tmp_path: Path
) -> None:
    """A held response stays held after a restart, under upstream's id too."""
    policy = UNSURE_HELD.replace("default: deliver", "default: deliver\non_score_error: deliver")
    proxy = LiveProxy(responses_upstream.base_url, tmp_path, policy=policy)
    held = proxy.http.post("/v1/responses", json={"model": "ok", "input": SECRET}).json()["id"]
    theirs = [*responses_upstream.stored][-1]
    proxy.stop()
    again = LiveProxy(responses_upstream.base_url, tmp_path, policy=policy)
    got = again.http.get(f"/v1/responses/{theirs}")
    again.stop()
    assert got.json()["id"] == held
    assert "secret" not in got.text


# Keys


@pytest.fixture
def proxy(start: Start) -> LiveProxy:
    return start(**KEYS)


def test_what_a_key_made_is_its_own(proxy: LiveProxy) -> None:
    """Another key can neither read, change, delete, list nor name an object."""
    ada, bob = client(proxy), client(proxy)
    tried = 0
    for collection in ("files", "vector_stores", "conversations", "fine_tuning/jobs", "batches"):
        id = ada.post(f"/{collection}", json={"purpose": "x"}).json()["id"]
        assert ada.get(f"/{collection}/{id}").json()["id"] == id
        assert id in [each["id"] for each in ada.get(f"/{collection}").json()["data"]]
        assert bob.get(f"/{collection}").json()["data"] == []
        for method, path in (
            *(("GET", ""), ("DELETE", ""), ("GET", "/content"), ("POST", "/cancel")),
            *(("HEAD", ""), ("POST", "")),
        ):
            for spelled in (f"/{collection}/{id}{path}", f"//{collection}/{id}/{path}?x=1"):
                assert bob.request(method, proxy.base_url + spelled).status_code == 404
                tried += 1
        assert ada.delete(f"/{collection}/{id}").json()["deleted"]
    assert tried == 60


def test_files_of_a_batch_belong_to_its_key(proxy: LiveProxy) -> None:
    """Files that upstream makes for a batch belong to the batch's key."""
    ada, bob = client(proxy), client(proxy)
    made = ada.post("/batches", json={}).json()
    assert ada.get(f"/files/{made['output_file_id']}").status_code == 200
    assert code_of(bob.get(f"/files/{made['output_file_id']}")) == (404, "unknown_id")


@pytest.mark.parametrize(
    "body",
    [
        '{"input_file_id": "%s"}',
        '{"input_file_id": "%s", "input_file_id": "file-x"}',
        '{"input_file_id": "file-x", "input_file_id": "%s"}',
        '{"input\\u005ffile_id": "%s"}',
        '{"tools": [{"vector_store_ids": ["%s"]}]}',
        '{"conversation": {"id": "%s"}}',
        '{"input": [{"id": "%s"}]}',
        '{"input": [{"type": "item_reference", "id": "%s"}]}',
    ],
)
def test_a_body_names_no_id_of_another_key(
    proxy: LiveProxy, upstream: StoringUpstream, body: str
) -> None:
    """A body that names another key's object is refused, in any member and on every surface."""
    ada, bob = client(proxy), client(proxy)
    id = ada.post("/files", json={}).json()["id"]
    chat = body[:-1] + ', "model": "ok", "messages": [{"role": "user", "content": "p=0.9"}]}'
    upstream.forget()
    for path, text in (("/batches", body), ("/chat/completions", chat)):
        refused = bob.post(path, content=text % id, headers={"content-type": "application/json"})
        assert code_of(refused) == (404, "unknown_id")
    assert upstream.requests == []
    if "file-x" not in body:
        assert ada.post("/batches", content=body % id).status_code == 200


def test_what_nobody_is_known_to_have_made_can_be_shared(
    start: Start, upstream: StoringUpstream
) -> None:
    """An object of unknown origin can be shared by all keys where the configuration says so."""
    id = httpx.post(f"{upstream.base_url}/vector_stores", json={}).json()["id"]
    closed, sharing = start(**KEYS), start(**KEYS, shared_ids=(id[:-1] + "*",))
    assert code_of(client(closed).get(f"/vector_stores/{id}")) == (404, "unknown_id")
    bob = client(sharing)
    assert bob.get(f"/vector_stores/{id}").json()["id"] == id
    assert id in [each["id"] for each in bob.get("/vector_stores").json()["data"]]


def test_ids_are_known_after_a_restart(start: Start) -> None:
    """The owners of ids are stored, and known after a restart."""
    proxy = start(**KEYS, folder="same")
    ada, bob = client(proxy), client(proxy)
    id = ada.post("/files", json={}).json()["id"]
    proxy.stop()
    proxy = start(**KEYS, folder="same")
    ada.base_url = bob.base_url = proxy.base_url
    assert ada.get(f"/files/{id}").status_code == 200
    assert bob.get(f"/files/{id}").status_code == 404


def test_a_response_is_fetched_by_the_key_that_made_it(
    start_responses: StartProxy, responses_upstream: ResponsesUpstream
) -> None:
    """Another team, whose policy delivers, cannot read a response that the first team's holds."""
    strict = {"teams": {"a": {"policy": "finance"}, "b": {}}}
    proxy = start_responses(**KEYS, **strict)
    ada, bob = client(proxy, team="a"), client(proxy, team="b")
    ada.post("/responses", json={"model": "ok", "input": SECRET})
    theirs = [*responses_upstream.stored][-1]
    assert "secret" not in ada.get(f"/responses/{theirs}").text
    for method, path in (("GET", ""), ("POST", "/cancel"), ("DELETE", ""), ("GET", "/input_items")):
        assert code_of(bob.request(method, f"/responses/{theirs}{path}"))[0] == 404
    going_on = {"model": "ok", "input": "p=0.9", "previous_response_id": theirs}
    assert code_of(bob.post("/responses", json=going_on)) == (404, "unknown_id")


def test_a_background_stream_is_its_keys_from_its_first_event(
    start_responses: StartProxy, responses_upstream: ResponsesUpstream
) -> None:
    """A background stream is its key's from its first event, so that a client can come back."""
    proxy = start_responses(**KEYS)
    ada, bob = client(proxy), client(proxy)
    asked = {"model": "split", "input": "p=0.9", "stream": True, "background": True}
    with ada.stream("POST", "/responses", json=asked) as stream:
        read = b""
        for part in stream.iter_raw():
            read += part
            if b"\n\n" in read:
                break
        id = [*responses_upstream.stored][-1]
    assert ada.get(f"/responses/{id}").status_code == 200
    assert bob.get(f"/responses/{id}").status_code == 404


# Without keys and policies


def test_an_observing_proxy_refuses_nothing(start: Start, upstream: StoringUpstream) -> None:
    """A proxy that observes and needs no keys refuses no object."""
    observing = start()
    id = httpx.post(f"{upstream.base_url}/files", json={}).json()["id"]
    assert observing.http.get(f"/v1/files/{id}").json() == upstream.kept[f"/files/{id}"]


# Allowed surfaces


def test_surfaces_can_be_switched_off(start: Start, upstream: StoringUpstream) -> None:
    """Surfaces can be switched off for all, for a team and for a key, in any spelling."""
    teams = {"narrow": {"surfaces": ["chat"]}, "wide": {}}
    proxy = start(**KEYS, teams=teams, surfaces=("chat", "models"))
    wide, narrow = client(proxy, team="wide"), client(proxy, team="narrow")
    own = client(proxy, team="narrow", surfaces="chat,embeddings,models")
    assert wide.get("/models").status_code == 200
    assert own.post("/embeddings", json={}).status_code == 200
    upstream.forget()
    tried = 0
    for path in (
        "/files",
        "//files",
        "/Files",
        "/files/",
        "/%66iles",
        "/files.json",
        "/strange",
        "/",
    ):
        for each in (wide, narrow, own):
            assert code_of(each.get(proxy.base_url + path)) == (403, "surface_off")
            tried += 1
    assert code_of(narrow.get("/models")) == (403, "surface_off")
    assert code_of(narrow.post("/embeddings", json={})) == (403, "surface_off")
    assert upstream.requests == []
    assert tried == 24
    assert narrow.post("/chat/completions", json=question("p=0.9", "ok")).status_code == 200


def test_surfaces_hold_without_keys(start: Start) -> None:
    proxy = start(surfaces=("chat",))
    assert proxy.ask("p=0.9").status_code == 200
    assert code_of(proxy.http.get("/v1/files")) == (403, "surface_off")


# Reading requests


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("v1 files", RequestTarget(("files",))),
        ("v1 files f", RequestTarget(("files",), "f")),
        (
            "V1 Chat Completions X messages",
            RequestTarget(("chat", "completions"), "X", ("messages",)),
        ),
        ("v1 fine_tuning jobs j events", RequestTarget(("fine_tuning", "jobs"), "j", ("events",))),
        ("v1 threads runs", RequestTarget(("threads",), None, ("runs",))),
        ("v1 embeddings", RequestTarget(None)),
        ("v1", RequestTarget(None)),
    ],
)
def test_a_path_says_where_it_goes(path: str, place: RequestTarget) -> None:
    assert place_in(path.split()) == place


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
@pytest.mark.parametrize(
    "body",
    [
        {"input": [{"type": "item_reference", "id": "msg_A"}]},
        {"input": [{"type": "item_reference", "id": "msg_A", "x": None}]},
        {"input": [{"type": "item_reference", "id": "msg_A", "content": "more"}]},
        {"input": [{"id": "msg_A"}]},
        {"input": [{"type": "reasoning", "id": "msg_A", "summary": []}]},
        {"input": [{"type": "reasoning", "id": "msg_A", "summary": [], "encrypted_content": None}]},
        {"messages": [{"role": "assistant", "audio": {"id": "msg_A"}}]},
        {"file_id": "msg_A"},
        {"input": {"type": "item_reference", "id": "msg_A"}},
        {"input": [[{"id": "msg_A"}]]},
        {"input": [{"ID": "msg_A", "Type": "item_reference", "text": "x"}]},
        {"previousResponseId": "msg_A"},
        {"previous-response-id": "msg_A"},
        {"conversation": {"Id": "msg_A"}},
    ],
)
async def test_ids_are_found_however_a_body_names_them(body: Any, encoding: str) -> None:
    """Ids are found in each way in which a body can name them, in several members and encodings."""
    assert "msg_A" in await ids_in_body(json.dumps(body).encode(encoding))


@pytest.mark.parametrize(
    "body", [b'{"file_id":"f",}', b'{"file_id":"f"} // x', b"{file_id: f}", b"x"]
)
async def test_json_that_only_some_can_read_is_refused(proxy: LiveProxy, body: bytes) -> None:
    """JSON that only some readers accept is refused where ids belong to keys; other types pass."""
    ada = client(proxy)
    json_type, plain = {"content-type": "application/json"}, {"content-type": "text/plain"}
    refused = ada.post("/vector_stores", content=body, headers=json_type)
    assert code_of(refused) == (400, "invalid_json")
    relayed = ada.post("/vector_stores", content=body, headers=plain)
    assert "x-pinocchio-error" not in relayed.headers


def test_a_form_names_ids(proxy: LiveProxy) -> None:
    """Ids in forms are found, as some upstreams read forms in place of JSON."""
    ada, bob = client(proxy), client(proxy)
    id = ada.post("/files", json={"purpose": "x"}).json()["id"]
    assert code_of(bob.post("/vector_stores", data={"file_ids": id})) == (404, "unknown_id")
    relayed = ada.post("/vector_stores", data={"file_ids": id})
    assert "x-pinocchio-error" not in relayed.headers


@pytest.mark.parametrize(
    "path",
    [
        *("/realtime/client_secrets", "/realtime/sessions", "/Realtime/calls", "/chatkit/sessions"),
        *("/realtimeapi/sessions", "/ephemeral_keys", "/auth/Keys", "/keys", "/client_secrets"),
        *("/projects/p/api_keys", "/auth/grant", "/some/new/access_tokens.json"),
    ],
)
def test_no_key_gets_a_credential_of_upstreams(
    start: Start, upstream: StoringUpstream, path: str
) -> None:
    """A request for upstream's own credential is refused unless its surface is allowed."""
    upstream.requests.clear()
    refused = client(start(**KEYS)).post(path, json={})
    assert code_of(refused) == (403, "surface_off")
    assert ("POST", path) not in upstream.requests
    allowed = client(start(**KEYS, surfaces=["realtime", "other"])).post(path, json={})
    assert "x-pinocchio-error" not in allowed.headers


def test_texts_name_nothing() -> None:
    """Ids in messages, arguments, schemas or metadata are no references."""
    schema = {"type": "object", "properties": {"file_id": {"type": "string"}}}
    body = {
        "messages": [{"role": "user", "content": '{"file_id": "a"}', "tool_call_id": "b"}],
        "tools": [{"function": {"name": "f", "parameters": schema}}],
        "metadata": {"file_id": "c"},
        "input": [{"type": "message", "id": "d", "content": "e"}],
    }
    assert asyncio.run(ids_in_body(json.dumps(body).encode())) == set()
