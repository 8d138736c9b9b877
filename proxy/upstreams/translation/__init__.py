"""Translation by litellm, for upstreams that do not speak OpenAI's format."""

__all__ = ["anthropic", "clients", "litellm_upstream"]
