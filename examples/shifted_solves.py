"""How many products (H_o + shift I)^-1 b takes, and how far the solution is from that of a factorisation.

The number of products grows with the square root of (largest eigenvalue + shift) / shift.
"""

from pathlib import Path

import torch
from matplotlib.figure import Figure

import hessmap as hm

inputs, labels = hm.datasets.digits(num_samples=300)
model = hm.FullyConnected((64, 8, 10), activation="relu").build(seed=0)
hm.train(model, (inputs, labels), epochs=20)
problem = hm.Problem(model, "cross_entropy", inputs, labels)
H = hm.outer_product_hessian(problem)
gradient = problem.gradient()
largest = hm.sharpness(H).value

shifts = [1.0, 1e-1, 1e-2, 1e-3, 1e-4]
products = []
for shift in shifts:
    solution = hm.measurement.krylov_solve(H, gradient, shift=shift)
    exact = torch.as_tensor(hm.solve(H, gradient, shift=shift).solution)
    error = float((torch.as_tensor(solution.solution) - exact).norm() / exact.norm())
    products.append(solution.num_products)
    print(f"shift {shift:g}: {solution.num_products} products, relative error {error:.0e}")

roots = [((largest + shift) / shift) ** 0.5 for shift in shifts]
figure = Figure(figsize=(5, 3.2), layout="constrained")
axis = figure.subplots()
axis.loglog(shifts, products, "o-", label="products of krylov_solve")
axis.loglog(shifts, roots, "--", color="0.4", label="square root of (largest eigenvalue + shift) / shift")
axis.set(xlabel="shift", title=f"{H.size} parameters, largest eigenvalue {largest:.2g}")
axis.legend(fontsize="small")
Path("hessmap-runs").mkdir(exist_ok=True)
figure.savefig("hessmap-runs/shifted-solves.png", dpi=150)
