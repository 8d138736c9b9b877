"""A strict YAML reader: plain values, with a sentence about every mistake."""

__all__ = ["reading", "shapes", "strict_yaml", "yaml_builder"]
