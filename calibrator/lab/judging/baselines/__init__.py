"""Baselines for a calibrator: lengths, names, words, stated confidences, judges and samples."""

__all__ = ["asked_judge", "fitted", "halves", "overlap", "samples", "stated", "tfidf"]
