"""What the inspector sees of a kind of fault that it was not taught."""

__all__ = ["faults_study"]
