"""The admission of requests under one configuration: key, surface, limits and routes.

A limit per key is a column and a field of `ClientKey` in `store/database/client_keys.py` (with a
migration), an option of `commands/keys.py`, and a line in `Admission._new_guest`. A limit per team
is a field of `TeamConfig` in `config/sections.py` and the same line. Counted limits are taken in
`_take`; they are counted in `gate/rate_limits.py`.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from policies import Policy
from proxy.config.sections import AttachConfig, TeamConfig
from proxy.config.settings.allowed_surfaces import check_minting, check_surface
from proxy.config.setup import Setup, problem_of
from proxy.errors import InvalidKeyError, ProxyError, RateLimitedError
from proxy.gate.host_check import check_local
from proxy.gate.rate_limits import Rate, TakesRequests
from proxy.gate.secret_keys import ATTACH, UNKNOWN_KEY, digest_of, take_secret
from proxy.http.wire.caller import CALLER, TAKE, Caller
from proxy.http.wire.http import Scope, raw_path_of
from proxy.http.wire.spelling import names_in
from proxy.routes.routes import Routes
from proxy.store.database.client_keys import ClientKey
from proxy.upstreams.loops import mark_of, pass_on

ALIVE: Final = ("/livez", "/health/liveliness", "/health/liveness")  # two names are LiteLLM's
READY: Final = ("/readyz", "/health/readiness")
PROBES: Final = frozenset((*ALIVE, *READY))  # for operators; they need no key
NO_TEAM: Final = TeamConfig()


@dataclass(frozen=True, slots=True)
class Guest:
    """The rights and routes of a key, or of callers without one, under one generation."""

    key: ClientKey | None
    caller: Caller
    rates: tuple[Rate, ...]
    routes: Routes
    surfaces: tuple[str, ...] | None  # those that it may use; None: all


class Admission:
    """The admission of requests under the generation `number`.

    `routes_for` returns the handlers for a policy and for what its callers see of it. `is_open`
    says that no key is needed because only this machine should reach the proxy.
    """

    def __init__(
        self,
        number: int,
        setup: Setup,
        buckets: TakesRequests,
        routes_for: Callable[[Policy, AttachConfig], Routes],
        is_open: bool,
    ) -> None:
        self.needs_keys = setup.config.needs_keys
        self._number = number
        self._setup = setup
        self._buckets = buckets
        self._routes_for = routes_for
        self._is_open = is_open
        self._mark = mark_of(setup.config)
        routes = routes_for(setup.policy, setup.config.attach)
        self._anyone = Guest(None, Caller(number), (), routes, setup.config.surfaces)
        self._keys: Mapping[str, ClientKey] = {}  # all keys by their digest
        self._guests: dict[str, Guest] = {}

    def enter(self, scope: Scope) -> Guest:
        """Admit a request, set the caller in its scope, and return its guest.

        Raises ProxyError for a refusal.
        """
        guest = self._anyone
        scope[CALLER] = guest.caller
        pass_on(scope, self._mark)
        if self.needs_keys:
            return guest if scope["path"] in PROBES else self._admit(scope)
        if guest.surfaces is not None:
            check_surface(names_in(raw_path_of(scope)), guest.surfaces)
        if self._is_open:
            check_local(scope["headers"])
        return guest

    def enter_again(self, guest: Guest) -> bool:
        """Admit another request of this guest with the same head as an earlier one.

        Returns False, with nothing done, where the request has to `enter`: its key has ended or the
        keys have changed. Raises RateLimitedError.
        """
        key = guest.key
        if key is None:
            if guest is not self._anyone:
                return False
        elif self._guests.get(key.id) is not guest or key.state(time.time()) != "active":
            return False
        if guest.rates:
            self._take(guest.rates)
        return True

    def _admit(self, scope: Scope) -> Guest:
        """Return the guest of the key in a request, and set its caller in the scope.

        The key is removed from the scope. Raises ProxyError for a missing or invalid key, a rate
        limit, or a surface that is not allowed.
        """
        key = self._key(take_secret(scope))
        guest = self._guest(key, scope)
        scope[CALLER] = guest.caller
        if guest.rates:
            self._take(guest.rates)
            scope[TAKE] = partial(self._take, guest.rates)
        if guest.surfaces is not None:
            check_surface(names_in(raw_path_of(scope)), guest.surfaces)
        else:
            check_minting(names_in(raw_path_of(scope)))
        return guest

    def _take(self, rates: tuple[Rate, ...]) -> None:
        """Take one request from each rate limit; raises RateLimitedError if one is exhausted."""
        if wait_s := self._buckets.take(rates):
            most = ", ".join(f"{rate} a minute for {owner}" for owner, rate in rates)
            raise RateLimitedError(f"too many requests: {most}", wait_s)

    def _key(self, secret: bytes) -> ClientKey:
        """Return the key of a secret; raises InvalidKeyError.

        Only hashes are looked up and compared, so the time that takes reveals nothing.
        """
        digest = digest_of(secret)
        key = self._keys.get(digest)
        if key is None or not hmac.compare_digest(key.digest, digest):
            raise InvalidKeyError(UNKNOWN_KEY)
        if key.role != "caller":
            raise InvalidKeyError(f"{key.id} is a key of the review desk, not of this API")
        return key

    def _guest(self, key: ClientKey, scope: Scope) -> Guest:
        """Return the key's guest; raises ProxyError where the key has ended or cannot be used."""
        state, guest = key.state(time.time()), self._guests.get(key.id)
        if guest is not None and state == "active":
            return guest
        scope[CALLER] = Caller(self._number, key.id, key.name or key.id, key.team)
        if state != "active":
            verb = {"revoked": "was revoked", "expired": "has expired"}[state]
            raise InvalidKeyError(f"the client key {key.id} {verb}")
        guest = self._guests[key.id] = self._new_guest(key)
        return guest

    def _new_guest(self, key: ClientKey) -> Guest:
        """Make the key's guest.

        Raises ProxyError where the configuration lacks its team or policy.
        """
        if problem_of(key, self._setup) is not None:  # logged by reloading.py
            text = f"the client key {key.id} cannot be used; the proxy's log says why"
            raise ProxyError(text, code="key_unusable")
        config = self._setup.config
        team = config.teams.get(key.team, NO_TEAM) if key.team else NO_TEAM
        policy = self._setup.book.load(key.policy or team.policy)
        attach = team.attach or config.attach
        if key.attach is not None:
            attach = AttachConfig.model_validate(ATTACH[key.attach])
        limits = (
            (f"key {key.id}", key.requests_per_minute),
            (f"team {key.team}", team.requests_per_minute),
        )
        rates = tuple((owner, rate) for owner, rate in limits if rate is not None)
        identity = (key.id, key.name or key.id, key.team)
        caller = Caller(self._number, *identity, key.max_held, team.max_held)
        surfaces = team.surfaces if team.surfaces is not None else config.surfaces
        if key.surfaces is not None:
            surfaces = tuple(key.surfaces.split(","))
        return Guest(key, caller, rates, self._routes_for(policy, attach), surfaces)

    def use_keys(self, keys: Iterable[ClientKey]) -> None:
        """Replace all client keys by these; guests are made again at their next request."""
        self._keys = {key.digest: key for key in keys}
        self._guests = {}
