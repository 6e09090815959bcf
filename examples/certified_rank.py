"""Where the spectrum has no clear cut, exact arithmetic decides: the rank of THIS network on THESE data."""

import hessmap as hm

inputs, labels = hm.datasets.digits(num_samples=200)
inputs[:, 20] *= 2.0**-16  # one pixel in another unit: its eigenvalues sink towards rounding
network = hm.FullyConnected(widths=(64, 6, 10), activation="relu")
problem = hm.Problem(network.build(seed=0), "squared", inputs, labels)

measured = hm.numerical_rank(hm.loss_hessian(problem))
print(f"measured:  {measured.value}, decidable: {measured.decidable}, smallest kept {measured.smallest_kept:.1e}")

certificate = hm.certified_rank(problem, "loss")
print(f"certified: {certificate.value} of {certificate.size}, wrong with probability {certificate.failure_bound:.0e}")
assert not measured.decidable
assert certificate.value > measured.value
