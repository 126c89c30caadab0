from oslo_config import cfg

from pinner.model.plan.objective import MOST_WEIGHT, TERMS

NAME = "objective"
OPTIONS = [
    cfg.FloatOpt(
        kind.name,
        default=kind.weight,
        min=0.0,
        max=MOST_WEIGHT,
        help=f"Weight of the term {kind.name} in tier {kind.tier} of the objective: {kind.counts}, in {kind.unit}. A "
        "request can set another weight. 0: the term does not count.",
    )
    for kind in TERMS
]
