"""Baselines for a calibrator: lengths, names, words, stated confidences, judges and samples."""

__all__ = ["fitted", "overlap", "samples", "stated", "tfidf"]
