"""Fine-tuning of a checkpoint on the verdicts of one deployment."""

__all__ = ["fine_tuning", "last_layer"]
