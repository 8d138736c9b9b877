"""What operators see of the traffic: metrics, spans and evaluations."""

__all__ = ["evaluation", "metrics", "outbox", "series", "telemetry"]
