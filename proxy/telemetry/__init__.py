"""Sends calls and confidences to OpenTelemetry, Langfuse and Phoenix, where configured."""

__all__ = ["scores", "telemetry"]
