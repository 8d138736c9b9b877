"""Scoring of files of rows on a Ray cluster."""

__all__ = ["ray_scoring"]
