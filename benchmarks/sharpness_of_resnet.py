"""What part of the time of sharpness(tolerance=1e-2) goes into products, on a ResNet18 of 11 million parameters?

ResNet18 in plain torch with random weights, 32 random images of 3 x 32 x 32, cross-entropy, float32, batch-norm frozen.
Whatever is not a product (orthogonalisation, copies, conversions) is to take less than a quarter of the products' time.
Times are those of the processor, which other programs disturb less than the clock.

    python benchmarks/sharpness_of_resnet.py [--width 64] [--samples 32]
"""

from __future__ import annotations

import argparse
import time

import torch
from harness import environment, forget_peak, peak_bytes, write
from torch import Tensor, nn

import hessmap as hm


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions beside the identity, or beside a 1 x 1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        is_same = stride == 1 and inputs == outputs
        shortcut = [] if is_same else [nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)]
        self.shortcut = nn.Sequential(*shortcut)

    def forward(self, inputs: Tensor) -> Tensor:
        inside = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(inputs)))))
        found: Tensor = torch.relu(inside + self.shortcut(inputs))
        return found


def resnet18(width: int = 64, num_classes: int = 10) -> nn.Module:
    """As in torchvision: a convolution of 7 x 7 with stride 2 and a pool first."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    inputs = width
    for outputs, stride in ((width, 1), (2 * width, 2), (4 * width, 2), (8 * width, 2)):
        layers += [BasicBlock(inputs, outputs, stride), BasicBlock(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, num_classes)).eval()


def measured(width: int, num_samples: int, tolerance: float) -> dict[str, float]:
    """Seconds of the processor for the products and for everything else, and the most memory beside the problem."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(num_samples, 3, 32, 32, generator=generator)
    labels = torch.randint(10, (num_samples,), generator=generator)
    problem = hm.Problem(resnet18(width), "cross_entropy", inputs, labels, dtype=torch.float32)
    hessian = hm.loss_hessian(problem)
    hessian.matmat(torch.ones(hessian.size, 1))  # the first one records the graph
    products, inner = [0.0, 0], hessian.matmat

    def timed_product(vectors: Tensor) -> Tensor:
        start = time.process_time()
        found = inner(vectors)
        products[0] += time.process_time() - start
        products[1] += vectors.shape[1]
        return found

    hessian.matmat = timed_product  # type: ignore[method-assign]
    before = forget_peak()
    start = time.process_time()
    found = hm.sharpness(hessian, tolerance=tolerance)
    whole = time.process_time() - start
    return {
        "num_parameters": hessian.size,
        "tolerance": tolerance,
        "sharpness": found.value,
        "residual": found.residual,
        "converged": found.converged,
        "num_products": products[1],
        "seconds_of_products": round(products[0], 2),
        "seconds_of_the_rest": round(whole - products[0], 2),
        "rest_over_products": round(whole / products[0] - 1, 3),
        "bytes_beside_the_problem": peak_bytes() - before,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--tolerance", type=float, default=1e-2)
    parser.add_argument("--name", default="sharpness_of_resnet")
    options = parser.parse_args()
    where = environment()
    case = measured(options.width, options.samples, options.tolerance)
    print(case)
    write(options.name, where, [case])
