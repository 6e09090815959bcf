"""From papers to formulas: predict the rank of a Hessian, measure it, and certify it in exact arithmetic.

The rank of a linear network's Hessian is a theorem about integers (Singh, Bachmann & Hofmann 2021). Here the formula,
a numerical rank in float64 and a certified rank over a finite field meet on one network; then on a network with
activations, where only the last two exist.
"""

import hessmap as hm

# Predict: integers in, a theorem out.
network = hm.FullyConnected((6, 5, 3, 4))
prediction = hm.predict_ranks(network, loss="squared", input_rank=6, residual_rank=4)
for name, claim in (("H_o", prediction.outer_product), ("H_f", prediction.functional), ("H_L", prediction.loss)):
    print(f"rank of {name}: {claim.value} of {network.num_parameters}  ({claim.kind}; {claim.reference})")

# Measure: the same network with random weights and data that are exact in binary arithmetic.
inputs, targets = hm.datasets.dyadic(num_samples=60, dim=6, output_dim=4)
problem = hm.Problem(network.build(seed=0), "squared", inputs, targets)
measured = hm.numerical_rank(hm.loss_hessian(problem))
print(f"numerical rank {measured.value}: threshold {measured.threshold:.1e}, gap {measured.gap:.1e}")

# Certify: every float64 is a fraction, so the rank can be computed without rounding.
certified = hm.certified_rank(problem, "loss")
print(f"certified rank {certified.value}, wrong with probability below {certified.failure_bound:.0e}")
assert certified.value == measured.value == prediction.loss.value

# With activations there is no formula; the two other ways still agree.
curved = hm.Problem(hm.FullyConnected((6, 5, 3, 4), activation="relu").build(seed=0), "squared", inputs, targets)
for part in ("outer_product", "loss"):
    hessian = hm.loss_hessian(curved) if part == "loss" else hm.outer_product_hessian(curved)
    print(
        f"ReLU, {part}: measured {hm.numerical_rank(hessian).value}, certified {hm.certified_rank(curved, part).value}"
    )
