"""Asks an OpenID issuer who somebody is: authorization code with PKCE, and a verified ID token.

The issuer's metadata and keys are fetched when somebody logs in, so that a desk starts while the
issuer is down. They are fetched again for a token with an unknown key.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import httpx
import jwt
import structlog

from proxy.config.settings.oidc import OidcConfig
from proxy.errors import NotAllowedError, ProxyError
from proxy.gate.host_check import is_loopback

log = structlog.get_logger(__name__)

ALGORITHMS: Final = (  # those that sign with the issuer's private key
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
TIMEOUT_S: Final = 10.0
KEEP_S: Final = 3_600.0  # how long metadata and keys are used, so that withdrawn keys expire
RETRY_S: Final = 3.0  # after the issuer was down, or did not have a key
LEEWAY_S: Final = 30.0  # between the issuer's clock and ours
MOST_BYTES: Final = 2**20
MOST_AT_ONCE: Final = 8  # exchanges of codes, which anybody can start
TURN_S: Final = 5.0  # how long a login waits for one of them to end
_DISCOVERY: Final = "/.well-known/openid-configuration"
_KINDS: Final = {"R": "RSA", "P": "RSA", "E": "EC"}  # key types, by the algorithm's first letter


class LoginRefusedError(NotAllowedError):
    """The issuer's answer does not belong to a login that was begun, or names no reviewer."""

    code = "login_refused"


class IssuerError(ProxyError):
    """The issuer cannot be reached, or its setup differs from the configuration."""

    status, type, code = 502, "server_error", "issuer_unusable"


@dataclass(frozen=True, slots=True)
class Metadata:
    """The addresses and the requirements that an issuer publishes."""

    authorization: str
    token: str
    keys: str
    userinfo: str | None
    end_session: str | None
    takes_basic: bool  # whether the secret goes in a header, and otherwise in the form
    names_itself: bool  # whether each answer names its issuer


class Issuer:
    """A client of one issuer, for one event loop; raises LoginRefusedError and IssuerError."""

    def __init__(self, config: OidcConfig) -> None:
        self.config = config
        host = urlsplit(config.issuer).hostname or ""
        self._client = httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=not is_loopback(host))
        self._metadata: Metadata | None = None
        self._metadata_until = 0.0
        self._failure: tuple[float, IssuerError] | None = None
        self._keys: list[dict[str, Any]] = []
        self._keys_at = -KEEP_S
        self._asking = asyncio.Lock()
        self._exchanges = asyncio.Semaphore(MOST_AT_ONCE)

    async def aclose(self) -> None:
        """Close the connections to the issuer."""
        await self._client.aclose()

    async def metadata(self) -> Metadata:
        """Return the issuer's metadata, fetched at most once in `KEEP_S` seconds.

        Raises IssuerError, which is logged; after a failure the same error is raised again for
        `RETRY_S` seconds.
        """
        async with self._asking:
            if self._metadata is not None and time.monotonic() < self._metadata_until:
                return self._metadata
            if self._failure is not None and time.monotonic() < self._failure[0] + RETRY_S:
                raise self._failure[1]
            try:
                fetched = await self._fetch_metadata()
            except IssuerError as error:
                self._failure = time.monotonic(), error
                log.error("issuer_unusable", reason=error.message)
                raise
            self._metadata, self._metadata_until = fetched, time.monotonic() + KEEP_S
            return fetched

    async def login_url(self, state: str, nonce: str, verifier: str, back: str) -> str:
        """Return the issuer's address to log in; `back` is the address to return to.

        `state`, `nonce` and the PKCE `verifier` are secrets of this login. Raises IssuerError.
        """
        digest = hashlib.sha256(verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self.config.client_id,
            "redirect_uri": back,
            "scope": " ".join(self.config.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        return _with_query((await self.metadata()).authorization, query)

    def logout_url(self, back: str) -> str | None:
        """Return the issuer's address to log out and come `back`, or None if it is not known."""
        if self._metadata is None or self._metadata.end_session is None:
            return None
        query = {"client_id": self.config.client_id, "post_logout_redirect_uri": back}
        return _with_query(self._metadata.end_session, query)

    async def check_answer(self, answer: Mapping[str, str]) -> None:
        """Refuse an answer that another issuer gave, by its `iss` (RFC 9207).

        Raises LoginRefusedError.
        """
        issuer = answer.get("iss")
        if issuer is None and not (await self.metadata()).names_itself:
            return
        if issuer != self.config.issuer:
            raise LoginRefusedError("this answer does not come from the issuer that was asked")

    async def claims(self, code: str, verifier: str, nonce: str, back: str) -> dict[str, Any]:
        """Exchange a code, and return the verified claims of its ID token by name.

        Groups that the token leaves out are fetched with the access token. At most `MOST_AT_ONCE`
        exchanges run at a time. Raises LoginRefusedError, or IssuerError where the issuer fails or
        is too slow.
        """
        try:
            async with asyncio.timeout(TURN_S):
                await self._exchanges.acquire()
        except TimeoutError as error:
            text = f"{self.config.title} is slow, and {MOST_AT_ONCE} logins wait for it: try again"
            log.error("issuer_unusable", reason=text)
            raise IssuerError(text) from error
        try:
            tokens = await self._exchange_code(code, verifier, back)
            token_claims = await self.check_token(str(tokens.get("id_token", "")), nonce)
            userinfo = (await self.metadata()).userinfo
            if claim(token_claims, self.config.groups_claim) is None and userinfo is not None:
                token_claims = await self._complete_claims(
                    token_claims, userinfo, tokens.get("access_token")
                )
        finally:
            self._exchanges.release()
        return token_claims

    async def check_token(self, token: str, nonce: str) -> dict[str, Any]:
        """Verify an ID token and return its claims; raises LoginRefusedError.

        This issuer must have signed it, for this client and, by its `nonce`, for this login.
        """
        try:
            header = jwt.get_unverified_header(token)
            algorithm = header.get("alg")
            if algorithm not in ALGORITHMS:
                raise LoginRefusedError(f"the ID token is signed with {str(algorithm)[:20]!r}")
            key = await self._key(header.get("kid"), algorithm)
            claims: dict[str, Any] = jwt.decode(
                token,
                jwt.PyJWK(key, algorithm),
                algorithms=[algorithm],
                audience=self.config.client_id,
                issuer=self.config.issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except jwt.PyJWTError as error:
            raise LoginRefusedError(f"the ID token cannot be used: {error}") from error
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise LoginRefusedError("the ID token belongs to another login")
        party = claims.get("azp")
        has_others = claims["aud"] not in (self.config.client_id, [self.config.client_id])
        if (has_others or party is not None) and party != self.config.client_id:
            raise LoginRefusedError("the ID token is for another client")
        return claims

    async def keys(self) -> list[dict[str, Any]]:
        """Fetch the issuer's current public keys, as JSON Web Keys; raises IssuerError."""
        status, body = await self._request_json("GET", (await self.metadata()).keys)
        keys = body.get("keys")
        if status != 200 or not isinstance(keys, list):
            raise IssuerError(f"{self.config.title} has no keys (status {status})")
        return [each for each in keys if isinstance(each, dict)]

    # --- requests to the issuer -----------------------------------------------------------------

    async def _fetch_metadata(self) -> Metadata:
        """Fetch the issuer's metadata.

        Raises IssuerError if it is missing or names another issuer.
        """
        issuer = self.config.issuer
        status, fields = await self._request_json("GET", issuer.rstrip("/") + _DISCOVERY)
        if status != 200:
            raise IssuerError(f"{issuer} has no {_DISCOVERY} (status {status})")
        if fields.get("issuer") != issuer:
            text = f"{issuer} calls itself {str(fields.get('issuer'))[:200]!r}"
            raise IssuerError(f"{text}: admin.oidc.issuer must be written like that")
        methods = fields.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        return Metadata(
            authorization=_address(fields, "authorization_endpoint", issuer),
            token=_address(fields, "token_endpoint", issuer),
            keys=_address(fields, "jwks_uri", issuer),
            userinfo=_named_address(fields, "userinfo_endpoint", issuer),
            end_session=_named_address(fields, "end_session_endpoint", issuer),
            takes_basic="client_secret_basic" in methods,
            names_itself=fields.get("authorization_response_iss_parameter_supported") is True,
        )

    async def _exchange_code(self, code: str, verifier: str, back: str) -> dict[str, Any]:
        """Exchange a code for tokens, and return the answer's members, such as `id_token`.

        Raises LoginRefusedError for a code that was used or is too old, else IssuerError, which is
        logged.
        """
        metadata, config = await self.metadata(), self.config
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": back}
        form["code_verifier"] = verifier
        secret, headers = config.client_secret.get_secret_value(), {"accept": "application/json"}
        if secret and metadata.takes_basic:
            pair = f"{quote(config.client_id, safe='')}:{quote(secret, safe='')}"
            headers["authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        else:
            form |= {"client_id": config.client_id} | ({"client_secret": secret} if secret else {})
        status, body = await self._request_json("POST", metadata.token, data=form, headers=headers)
        if status == 200:
            return body
        reason = str(body.get("error", f"status {status}"))[:100]
        if reason == "invalid_grant":
            raise LoginRefusedError("this login was used before, or took too long: log in again")
        log.error("issuer_unusable", reason=f"the code was not exchanged: {reason}")
        raise IssuerError(f"{config.title} gave no token: {reason}")

    async def _complete_claims(
        self, claims: dict[str, Any], url: str, access_token: object
    ) -> dict[str, Any]:
        """Return claims by name: those of the token, and others that the userinfo endpoint has.

        The token's win. Raises LoginRefusedError if the endpoint fails or answers about another
        person.
        """
        headers = {"authorization": f"Bearer {access_token}", "accept": "application/json"}
        status, userinfo = await self._request_json("GET", url, headers=headers)
        if status != 200 or userinfo.get("sub") != claims["sub"]:
            raise LoginRefusedError("what the issuer knows about this person cannot be read")
        return {**userinfo, **claims}

    async def _key(self, id: object, algorithm: str) -> dict[str, Any]:
        """Return the public key that a token names by `id` and `algorithm`.

        The keys are fetched again when they are old, or for an unknown one. Raises
        LoginRefusedError if not exactly one fits.
        """
        now = time.monotonic()
        keys = _matching_keys(self._keys, id, algorithm)
        if now > self._keys_at + KEEP_S or (not keys and now > self._keys_at + RETRY_S):
            self._keys, self._keys_at = await self.keys(), time.monotonic()
            keys = _matching_keys(self._keys, id, algorithm)
        if len(keys) != 1:
            raise LoginRefusedError("the ID token's key is not among the issuer's keys")
        return keys[0]

    async def _request_json(
        self, method: str, url: str, **options: Any
    ) -> tuple[int, dict[str, Any]]:
        """Send a request, and return (the answer's status, its JSON object).

        The object is empty where the answer is not one. Raises IssuerError where the issuer cannot
        be reached, is too slow or sends more than `MOST_BYTES`.
        """
        body = b""
        try:
            async with (
                asyncio.timeout(TIMEOUT_S),
                self._client.stream(method, url, **options) as answer,
            ):
                async for part in answer.aiter_bytes():
                    body += part
                    if len(body) > MOST_BYTES:
                        raise IssuerError(f"{_host(url)} answers with more than {MOST_BYTES} bytes")
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise IssuerError(f"{_host(url)} cannot be reached: {type(error).__name__}") from error
        try:
            fields = json.loads(body)
        except ValueError:
            fields = {}
        return answer.status_code, fields if isinstance(fields, dict) else {}


async def checked_issuer(config: OidcConfig) -> int:
    """Fetch an issuer's keys now and return their number; raises IssuerError."""
    issuer = Issuer(config)
    try:
        return len(await issuer.keys())
    finally:
        await issuer.aclose()


def claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim by its name, or None; dots lead to a claim inside others, as `roles.desk`."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _named_address(fields: Mapping[str, Any], name: str, issuer: str) -> str | None:
    """Return an address that an issuer names, or None where it names none; see `_address`."""
    return _address(fields, name, issuer) if fields.get(name) else None


def _address(fields: Mapping[str, Any], name: str, issuer: str) -> str:
    """Return an address that an issuer's metadata names; raises IssuerError if it is unusable.

    It must use https if the issuer does.
    """
    url = str(fields.get(name) or "")
    is_safe = url.startswith("https://") or not issuer.startswith("https://")
    if not url.startswith(("https://", "http://")) or not is_safe:
        raise IssuerError(f"{issuer} names no usable {name}")
    return url


def _matching_keys(keys: list[dict[str, Any]], id: object, algorithm: str) -> list[dict[str, Any]]:
    """Return the keys that may have signed a token with this key id (None: any) and algorithm."""
    kind = _KINDS.get(algorithm[0]) if algorithm != "EdDSA" else "OKP"
    return [
        key
        for key in keys
        if key.get("kty") == kind
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
        and (id is None or key.get("kid") == id)
    ]


def _with_query(url: str, query: Mapping[str, str]) -> str:
    """Return a URL with query parameters appended."""
    return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"


def _host(url: str) -> str:
    """Return the host and port of a URL, without user and password."""
    return urlsplit(url).netloc.rpartition("@")[2]
