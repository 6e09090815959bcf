"""A recorded forward pass once more, with other samples: stopped at some of its uses."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING

from torch import Tensor

from hessmap.curvature.nested_tensors import Inputs
from hessmap.curvature.recording.layer_call import LayerCall
from hessmap.curvature.recording.recorder import Recorder
from hessmap.curvature.recording.uses import Recording

if TYPE_CHECKING:
    from hessmap.curvature.problem import Problem

AtUse = Callable[[int, LayerCall], Tensor]


def replay(problem: Problem, recording: Recording, inputs: Inputs, uses: Container[int], at_use: AtUse) -> Tensor:
    """The outputs of the problem's model, where ``at_use(number, call)`` says what the outputs of some uses are."""
    stops = _Stops(recording, uses, at_use)
    with Recorder(problem.named, stops).reading():
        return problem.forward(problem.named, inputs)


class _Stops:
    def __init__(self, recording: Recording, uses: Container[int], at_use: AtUse) -> None:
        self.decisions = recording.decisions
        self.uses = uses
        self.at_use = at_use
        self._ordinal = 0

    def layer_outputs(self, call: LayerCall) -> Tensor:
        if self._ordinal == len(self.decisions):
            raise RuntimeError("the calls of the model depend on its samples")
        use = self.decisions[self._ordinal]
        self._ordinal += 1
        if use is None or use not in self.uses:
            return call.outputs()
        return self.at_use(use, call)
