"""Translation by litellm, for upstreams that do not speak OpenAI's format."""

__all__ = ["clients", "litellm_upstream"]
