"""Labels that stand one place after the output that is to predict them, as causal language models have them."""

from __future__ import annotations

import copy

from hessmap.curvature.losses.as_loss import AnyLoss, as_loss
from hessmap.curvature.losses.cross_entropy import CrossEntropy
from hessmap.errors import InvalidInput, sentence


def next_token(loss: AnyLoss = "cross_entropy") -> CrossEntropy:
    """Cross-entropy of output t with label t + 1: the labels are the tokens of the inputs themselves.

    The first label is never asked for and the last output answers nothing, so a sample of T tokens counts T - 1; labels
    that are ``ignore_index`` (-100) count not at all. Outputs are (samples, tokens, classes).

    >>> next_token().name
    'next-token cross_entropy'
    """
    base = as_loss(loss)
    if not isinstance(base, CrossEntropy):
        remedy = 'Use next_token("cross_entropy") or next_token(nn.CrossEntropyLoss(...))'
        raise InvalidInput(sentence("shifted labels need a cross-entropy", f"the loss is '{base.name}'", remedy))
    shifted = copy.copy(base)
    shifted.name, shifted.predicts_next = f"next-token {base.name}", True
    shifted.class_axis = -1 if base.class_axis is None else base.class_axis
    return shifted
