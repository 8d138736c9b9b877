"""Train a language model as a calibrator: adapter, probe, processes."""

__all__ = ["config", "probe", "processes", "states", "train"]
