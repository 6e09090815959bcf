"""A promise about unseen data: certify a trained model of your own, keep the certificate, check it again."""

import copy

import torch
from torch import nn

import hessmap as hm

torch.manual_seed(0)
inputs, labels = hm.datasets.digits(num_samples=1500)
data = hm.datasets.two_halves(hm.datasets.Data((inputs - 0.3) / 0.4, labels))
model = nn.Sequential(nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, 2)).double()
initial = copy.deepcopy(model)  # before training: the centre of the prior
hm.train(model, data, epochs=30, learning_rate=0.02)

certificate = hm.certify(model, initial, data, iterations=400, num_draws=20_000)
print(f"with confidence {certificate.confidence:.1%} the error on unseen data is at most {certificate.bound:.1%}")
verification = certificate.verify(model, data, initial_model=initial)
print(f"{verification.verdict}: new draws give {verification.bound:.1%}")
assert certificate.bound < 0.45
