"""All tables of the report in order, with their rows of the checklist and their functions.

A table that trains is made only on request. `NOT_HERE` has the rows that no table can give, each
with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from calibrator.lab.paper.sections.comparisons import main_table, significance_table, stated_table
from calibrator.lab.paper.sections.elicited import elicited_table
from calibrator.lab.paper.sections.groups import (
    benchmarks_table,
    data_table,
    denied_table,
    failures_table,
    models_table,
    tiers_table,
    transfer_table,
)
from calibrator.lab.paper.sections.reading import (
    disagreement_table,
    probes_table,
    swap_table,
)
from calibrator.lab.paper.sections.recalibration import (
    recalibrated_domains_table,
    recalibrated_models_table,
    stated_beside_table,
    temperature_table,
)
from calibrator.lab.paper.sections.retrained import (
    domains_table,
    families_table,
    folds_table,
    growing_sources_table,
    single_sources_table,
    size_table,
)
from calibrator.lab.paper.sections.scored import ScoredRows
from calibrator.lab.paper.sections.tables import TableContent
from calibrator.lab.paper.sections.uses import (
    costs_table,
    reviews_table,
    selection_table,
    thresholds_table,
    workflows_table,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One table; `rows` are the rows of the checklist that it answers."""

    id: str
    title: str
    rows: tuple[str, ...]
    make: Callable[[ScoredRows], TableContent]
    is_trained: bool = False


CATALOGUE: Final = (
    Entry("main", "Calibrator and baselines", ("J04", "J09", "J14", "U03", "D09"), main_table),
    Entry(
        "stated", "What models state of themselves",
        ("J01", "J02", "J03", "J05", "I01", "I02", "I03", "I05", "U02"), stated_table,
    ),
    Entry(
        "asked", "Judges, samples, log-probabilities",
        (
            *("J06", "J08", "M01", "M02", "M07", "I06", "I07", "I08", "I09", "I10", "I11"),
            *("I12", "I13", "I15", "T04"),
        ), elicited_table,
    ),
    Entry(
        "significance", "Is it more than chance?", ("H02", "H05", "H06", "J15", "U06"),
        significance_table,
    ),
    Entry("models", "By model", ("J10", "J11", "H16"), models_table),
    Entry("transfer", "By maker", ("K01", "C11"), transfer_table),
    Entry("benchmarks", "By benchmark", ("J12", "H07", "H14"), benchmarks_table),
    Entry("tiers", "By difficulty", ("J13",), tiers_table),
    Entry("data", "What the rows are of", ("C07", "C08", "C09", "C10"), data_table),
    Entry("probes", "What it looks at", ("B11", "K10", "K11", "K12", "K13", "H17"), probes_table),
    Entry(
        "disagreement", "Replies to one question", ("L01", "L02", "L03", "H15"),
        disagreement_table,
    ),
    Entry("swap", "Answers under other names", ("L04",), swap_table),
    Entry("temperature", "Temperature, Platt, isotonic", ("K15", "N04"), temperature_table),
    Entry(
        "recalibrated-models", "A hundred labels of a model", ("N01", "N02", "N03"),
        recalibrated_models_table,
    ),
    Entry("recalibrated-domains", "A hundred labels of a domain", ("N05",),
          recalibrated_domains_table),
    Entry("stated-beside", "Stated confidence beside it", ("N06",), stated_beside_table),
    Entry(
        "workflows", "Errors found, gates, reviews, tiers",
        ("O01", "O03", "O04", "O05", "O06", "H08", "H09", "H10", "H11", "H12", "U04", "U05"),
        workflows_table,
    ),
    Entry("selection", "Pairs, models, data", ("P01", "P02", "P03"), selection_table),
    Entry("thresholds", "Thresholds and harm", ("Q02", "Q03", "H13"), thresholds_table),
    Entry("reviews", "Errors found by reviews", ("Q06",), reviews_table),
    Entry("costs", "Tiers and their costs", ("Q01", "Q04", "Q05", "Q07", "Q08"), costs_table),
    Entry("failures", "Where it is most wrong", ("S01", "S02", "S04"), failures_table),
    Entry("denied", "Replies that state 100 %", ("O02",), denied_table),
    Entry(
        "growing-sources", "Replies of more and more models", ("K02",), growing_sources_table, True
    ),
    Entry("single-sources", "Replies of one model", ("K03",), single_sources_table, True),
    Entry("families", "A maker's models left out", ("K04",), families_table, True),
    Entry("benchmark-folds", "Five benchmarks left out", ("K05",), folds_table, True),
    Entry("domains", "A domain left out", ("K06", "N05"), domains_table, True),
    Entry("size", "More training rows", ("K08", "U07"), size_table, True),
)  # fmt: skip

NOT_HERE: Final = {
    "K07": "needs rows with images beside rows of text",
    "K09": "needs a language model of each size, trained on the same rows",
    "K14": "of a language model: pinocchio study elicitations",
    "P04": "steps of a working are not scored: the paper found 0.53 AUROC",
    "R02": "needs rows with generated images, and a calibrator that reads them",
    "R03": "needs the same, with a training for each image model left out",
}
