"""The rows of the paper's ablation table, and the oracle, as configurations of one training."""

from __future__ import annotations

import re
from typing import Any

from wsdesc.learn.options import TrainOptions

FULL, ORACLE = "full", "oracle"

# What each row changes, by the paper's names: LLS learned support, LP and GP supports by a local and a global
# PointNet, LRF local frames, w the weights of matches, L_o and L_c the two terms of the loss.
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    FULL: {},
    "w/o LLS": {"descriptor": {"support": "fixed"}},
    "w/ LP": {"descriptor": {"support": "local"}},
    "w/ GP": {"descriptor": {"support": "global"}},
    "w/o LRF": {"descriptor": {"use_frames": False}},
    "w/o w": {"loss": {"use_w_f": False, "use_w_sm": False}},
    "w/o w_f": {"loss": {"use_w_f": False}},
    "w/o w_sm": {"loss": {"use_w_sm": False}},
    "w/o L_o": {"loss": {"lambda_o": 0.0}},
    "w/o L_c": {"loss": {"lambda_c": 0.0}},
}


def variant(name: str, base: TrainOptions) -> TrainOptions:
    """The options `base` with what the row of this name changes; the oracle is the batch-hard one."""
    if name == ORACLE:
        return base.model_copy(update={"oracle": "batch-hard"})
    values = base.model_dump()
    for group, changes in VARIANTS[name].items():
        values[group].update(changes)
    return TrainOptions.read(values)


def folder_name(name: str) -> str:
    """A name that every file system takes: "w/o w_f" becomes "without-w_f"."""
    return re.sub(r"\W+", "-", name.replace("w/o", "without").replace("w/", "with")).strip("-")
