"""The learning coefficient of a model: how many directions its loss sees from where it was trained to."""

from hessmap.maps.learning.estimate import learning_coefficient_estimate

__all__ = ["learning_coefficient_estimate"]
