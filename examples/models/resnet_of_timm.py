"""A ResNet of timm on images: batch-norm frozen, the largest eigenvalue of the whole, and of its last layers."""

import timm
import torch

import hessmap as hm

torch.manual_seed(0)
model = timm.create_model("resnet10t", num_classes=3).eval()
images, labels = torch.randn(8, 3, 32, 32), torch.arange(8) % 3

problem = hm.Problem(model, "cross_entropy", images, labels, parameters=["layer4", "fc"], dtype=torch.float32)
print(problem)
top = hm.sharpness(hm.loss_hessian(problem), tolerance=1e-2)
print(f"largest eigenvalue {top.value:.3g}, a stable step of gradient descent is below {2 / top.value:.3g}")

last = hm.Problem(model, "cross_entropy", images, labels, parameters="fc", dtype=torch.float64)
found = hm.spectrum(hm.loss_hessian(last))
print(f"the last layer has {last.num_parameters} parameters and rank {hm.numerical_rank(found).value}")
