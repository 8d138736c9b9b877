"""What a calibrator has to beat: lengths, names, words, stated confidences, judges, samples."""

__all__ = ["asked_judge", "fitted", "halves", "overlap", "samples", "stated", "tfidf"]
