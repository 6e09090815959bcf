"""torchvision's compiled operators have no build for torch without CUDA; its Python part needs two of them declared."""

import torch

_LIBRARY = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    _LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
