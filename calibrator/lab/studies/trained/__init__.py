"""Studies that train calibrators, or fit a part of one."""

__all__ = ["beside_shipped", "calls_study", "faults_study", "opinion_study"]
