"""The curvature of a GPT-2 in its LoRA adapters alone: what trains is what is differentiated."""

import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

import hessmap as hm

torch.manual_seed(0)
base = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=32, n_layer=2, n_head=2))
model = get_peft_model(base, LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True)).eval()

ids = torch.randint(0, 50, (8, 16))
problem = hm.Problem(model, None, [{"input_ids": ids, "labels": ids}])
print(problem)

# B is zero at the start, so that the outputs do not depend on A yet, and their product is all curvature there is.
hessian = hm.loss_hessian(problem)
spectrum = hm.spectrum(hessian)
print(f"eigenvalues from {spectrum.eigenvalues[-1]:.2e} to {spectrum.eigenvalues[0]:.2e}")
for name, place in problem.layout:
    block = hessian.to_dense()[place, place]
    print(f"{name.removeprefix('base_model.model.transformer.'):55s} trace {float(block.trace()):9.2e}")
