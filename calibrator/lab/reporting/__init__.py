"""The reports of an evaluation: an HTML page, and the figures of a model card."""

__all__ = ["figures", "model_card", "page", "panels", "report"]
