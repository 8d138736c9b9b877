"""An evaluation as a page and as the figures of a model card."""

__all__ = ["figures", "model_card", "page", "panels", "report"]
