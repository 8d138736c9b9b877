"""`pinocchio doctor`: look at a running installation, its calibrator and its machine."""

__all__ = ["doctor"]
