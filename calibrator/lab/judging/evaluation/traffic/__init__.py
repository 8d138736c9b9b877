"""The evaluation of a calibrator on the traffic of real apps: replies to whole conversations.

files -> sets of rows -> scores -> figures of each kind, beside baselines; changes by edits
"""

from calibrator.lab.judging.evaluation.traffic.figures import (
    Traffic,
    read_traffic_figures,
)
from calibrator.lab.judging.evaluation.traffic.measure import measure_traffic, replies_to_score
from calibrator.lab.judging.evaluation.traffic.probes import EditProbe, probes_of
from calibrator.lab.judging.evaluation.traffic.sets import TrafficSet, find_traffic, read_traffic

__all__ = [
    "EditProbe",
    "Traffic",
    "TrafficSet",
    "find_traffic",
    "measure_traffic",
    "probes_of",
    "read_traffic",
    "read_traffic_figures",
    "replies_to_score",
    "tables",
]
