"""The study of kinds of faults that the inspector was not taught."""

__all__ = ["faults_study"]
