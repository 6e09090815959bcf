"""Measure the Hessians of a linear network on the digits, and hold their ranks against the prediction."""

import hessmap as hm

network = hm.FullyConnected(widths=(64, 12, 10))
inputs, labels = hm.datasets.digits(num_samples=300)
problem = hm.Problem(network.build(seed=0), "squared", inputs, labels)

input_rank = hm.numerical_rank(inputs)
prediction = hm.predict_ranks(network, loss="squared", input_rank=input_rank.value)
print(f"the inputs have rank {input_rank.value}; some pixels are never used")

hessians = {
    "outer_product": hm.outer_product_hessian(problem),
    "functional": hm.functional_hessian(problem),
    "loss": hm.loss_hessian(problem),
}
for part, hessian in hessians.items():
    measured = hm.numerical_rank(hessian)
    predicted = getattr(prediction, part)
    print(f"{part:>13}: measured {measured.value} (gap {measured.gap:.1e}), predicted {predicted.value}")
    assert measured.decidable
    assert measured.value == predicted.value

top = hm.spectrum(hessians["loss"]).eigenvalues[:3]
print("largest eigenvalues of the loss Hessian:", ", ".join(f"{value:.4g}" for value in top))
