"""The function that a network represents, measured: its rank, its layers, its class regions."""

from hessmap.maps.functions.bottleneck import balance, bottleneck_view
from hessmap.maps.functions.class_regions import class_regions, denoising_score
from hessmap.maps.functions.function_rank import certified_function_rank, function_rank, input_jacobians
from hessmap.maps.functions.representation_cost import representation_cost

__all__ = [
    "balance",
    "bottleneck_view",
    "certified_function_rank",
    "class_regions",
    "denoising_score",
    "function_rank",
    "input_jacobians",
    "representation_cost",
]
