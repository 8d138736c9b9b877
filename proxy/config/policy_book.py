"""The policies that a configuration, its teams and its keys name, each loaded once.

A client may name one of them, or a pack, in a request. That policy then applies in addition to the
client's own and never replaces it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from policies import Policy, load_policy, pack_names
from proxy.config.sections import load_policy_of
from proxy.errors import BadRequestError
from proxy.http.wire.headers import POLICY, Headers


class PolicyBook:
    """The loaded policies; `default` is for callers without their own, `folder` has the files."""

    def __init__(self, default: Policy, folder: Path | None = None) -> None:
        """Hold the default policy.

        `folder`, by default the working directory, has policies' files.
        """
        self.default = default
        self._folder = folder or Path()
        self._loaded: dict[str, Policy] = {}
        self._requested: dict[str, Policy] = {}

    def load(self, name: str | None) -> Policy:
        """Return a policy by its name, a file in the folder or a pack, and keep it for later calls.

        None gives the default policy. A file in the folder goes before a pack of that name. Raises
        InvalidDocumentError for an invalid policy or an unknown name.
        """
        if name is None:
            return self.default
        if name not in self._loaded:
            self._loaded[name] = load_policy_of(self._folder, name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[Policy]:
        """Iterate over the default policy and those that `load` has loaded, in this order."""
        return iter((self.default, *self._loaded.values()))

    def namesakes(self) -> list[str]:
        """Return a warning for each name that several loaded policies of other content share."""
        digests: dict[str, set[str]] = {}
        for policy in self:
            digests.setdefault(policy.name, set()).add(policy.digest)
        return [
            f"{len(versions)} policies are called {name!r}: {POLICY.decode()} and `explain` take "
            "the first of them; give each a name of its own"
            for name, versions in digests.items()
            if len(versions) > 1
        ]

    def requested_by(self, headers: Headers) -> Policy:
        """Return the configured policy or the pack that a request's policy header names.

        The request must hold the header. Two of them are refused, because one would be ignored
        silently, and that might be the stricter one. Raises BadRequestError, also for an unknown
        name.
        """
        name, *others = (value.decode("latin-1") for field, value in headers if field == POLICY)
        if others:
            raise BadRequestError(
                f"{POLICY.decode()} is there {1 + len(others)} times; name one policy",
                code="unusable_policy",
            )
        if name not in self._requested:
            self._requested[name] = self._find(name)
        return self._requested[name]

    def _find(self, name: str) -> Policy:
        """Return the loaded policy that is called `name`, else the pack of this name.

        Raises BadRequestError where there is neither; a client must not name a path.
        """
        for policy in self:
            if policy.name == name:
                return policy
        if name not in pack_names():  # a client must not name a path
            raise BadRequestError(
                f"no policy is called {name[:64]!r}: {POLICY.decode()} names one of the "
                f"configuration or a pack ({', '.join(pack_names())})",
                code="unknown_policy",
            )
        return load_policy(name)

    def files(self) -> set[Path]:
        """Return the files that the policies were read from, and those of their certificates."""
        sources = {Path(policy.source) for policy in self if policy.source}
        return sources | {p.certificate_path for p in self if p.certificate_path is not None}
