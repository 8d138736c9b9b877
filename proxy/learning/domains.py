"""The domain of a reply, where the operator or a trusted client names one.

A domain is a fact for rules, and the key of a curve where a recalibration goes `by: domain`. The
`domain:` of the caller's team or of the model's route comes before the client's
`x-pinocchio-domain`. Rules see the client's domain where neither is configured. It picks a curve
only with `calibrator.client_domains: true`, since any client can then choose its own confidence.
"""

from __future__ import annotations

from proxy.config.sections import Config
from proxy.upstreams.router import Router


class Domains:
    """The domains of one configuration; `router` is made from the same one."""

    def __init__(self, config: Config, router: Router) -> None:
        self._teams = {name: team.domain for name, team in config.teams.items() if team.domain}
        self._router = router
        self._names_any = bool(self._teams) or any(route.domain for route in config.models)
        self._trusts_clients = config.calibrator.client_domains

    def fact(self, model: str, team: str | None, told: str | None) -> str | None:
        """Return the domain for rules and the record, or None.

        `told` is the one that the client names.
        """
        return self._domain_in_config(model, team) or told

    def of_curve(self, model: str, team: str | None, told: str | None) -> str | None:
        """Return the domain that may pick the curve of a recalibration, or None."""
        return self._domain_in_config(model, team) or (told if self._trusts_clients else None)

    def _domain_in_config(self, model: str, team: str | None) -> str | None:
        if not self._names_any:
            return None
        own = self._teams.get(team) if team else None
        return own or self._router.domain_of(model)


def picks_curves(config: Config) -> bool:
    """Return whether any reply can have a domain that picks a curve."""
    named = [each.domain for each in config.teams.values()]
    return config.calibrator.client_domains or any([*named, *(r.domain for r in config.models)])


NONE_PICKS = (
    "the recalibration goes by domain and nothing says which domain a reply has: give models or "
    "teams a `domain`, or say `calibrator: {client_domains: true}` where every client may choose"
)
