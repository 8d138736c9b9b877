"""Tells others of calls and confidences, where configured: OpenTelemetry, Langfuse, Phoenix."""

__all__ = ["scores", "telemetry"]
