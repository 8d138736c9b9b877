"""Commands of researchers, one file each."""

__all__ = ["progress", "recalibrate", "score_and_train", "terminal"]
