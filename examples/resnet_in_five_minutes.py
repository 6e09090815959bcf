"""The curvature of a residual network in five minutes: sharpness, trace, layers, spectral density.

A small ResNet with batch norm learns the 1,797 digits that are part of the package. Everything after the training is
what you would write for a network of your own.
"""

import torch
from torch import Tensor, nn

import hessmap as hm


class Block(nn.Module):
    """Two convolutions with batch norm beside the identity."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        convolutions = [nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2)]
        self.body = nn.Sequential(
            convolutions[0], nn.BatchNorm2d(channels), nn.ReLU(), convolutions[1], nn.BatchNorm2d(channels)
        )

    def forward(self, images: Tensor) -> Tensor:
        return torch.relu(images + self.body(images))


def resnet(channels: int = 8, blocks: int = 2) -> nn.Module:
    stem = [nn.Conv2d(1, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()]
    body = [Block(channels) for _ in range(blocks)]
    return nn.Sequential(*stem, *body, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * channels, 10))


# Train it as usual.
torch.manual_seed(0)
inputs, labels = hm.datasets.digits()
images = inputs.view(-1, 1, 8, 8).float()
model = resnet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(4):
    for batch in torch.randperm(len(images)).split(128):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()

# A problem is a model, a loss and the data to take it on. The model is copied, batch norm is frozen.
problem = hm.Problem(model, "cross_entropy", images[:256], labels[:256])
hessian = hm.loss_hessian(problem)
print(problem)

# The largest eigenvalue, with its residual, and the trace, with its standard error (0: from the structure, no probes).
sharpness, trace = hm.sharpness(hessian, tolerance=1e-3), hm.trace_estimate(hessian)
print(f"sharpness {sharpness.value:.3g}, converged: {sharpness.converged}, trace {trace.value:.3g}")
print(f"gradient descent from here is stable up to a learning rate of {2 / sharpness.value:.2g}")

# Which layers carry the curvature? Mean curvature of a parameter, layer by layer.
diagonal = hm.measurement.diagonal_estimate(hessian).values
for name, entries in problem.layout:
    print(f"{name:>16}  {problem.layout.shape(name)!s:>14}  mean curvature {diagonal[entries].mean():8.1e}")

# The whole spectrum, without a dense matrix.
density = hm.density_estimate(hessian, num_probes=3, num_steps=30)
density.plot().savefig("density.png")
