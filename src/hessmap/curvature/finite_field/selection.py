"""What a maximum passes on: for every sample and output, the one unit that was largest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hessmap.curvature.finite_field.chain import Indices
from hessmap.curvature.finite_field.field_array import FieldArray, summed_by_place


@dataclass(frozen=True, eq=False)
class Selection:
    """``choices`` (num_samples, num_outputs) among ``num_units`` units; the derivative is of zeros and ones."""

    choices: Indices
    num_units: int

    def __getitem__(self, samples: slice) -> Selection:
        return Selection(self.choices[samples], self.num_units)

    def chosen(self, values: FieldArray) -> FieldArray:
        """The chosen rows of (num_samples or 1, num_units, ..)."""
        rows = np.arange(len(self.choices))[:, None] if len(values) > 1 else np.zeros((1, 1), dtype=np.int64)
        return values[rows, self.choices]

    def given_back(self, gradients: FieldArray) -> FieldArray:
        """Gradients (num_samples, num_outputs) at the units that were chosen, added up, zero at the others."""
        num_samples = len(gradients)
        places = np.arange(num_samples)[:, None] * self.num_units + self.choices
        total = summed_by_place(gradients.reshape(-1), places.ravel(), num_samples * self.num_units)
        return total.reshape(num_samples, self.num_units)
