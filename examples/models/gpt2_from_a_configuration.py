"""A language model from a configuration: the curvature of a GPT-2 of Hugging Face, before and after some training.

Weights are random and the text is Python's own help, so that nothing is downloaded. Replace the model by
``AutoModelForCausalLM.from_pretrained(..)`` and the batches by yours.
"""

from pydoc_data.topics import topics

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import hessmap as hm

# Text as numbers, one for each character, in sequences of 32.
text = "\n".join(topics.values())[:100_000]
alphabet = sorted(set(text))
characters = torch.tensor([alphabet.index(character) for character in text])
sequences = characters[: len(characters) // 32 * 32].view(-1, 32)

torch.manual_seed(0)
config = GPT2Config(vocab_size=len(alphabet), n_positions=32, n_embd=32, n_layer=2, n_head=2, eos_token_id=0)
config.embd_pdrop = config.attn_pdrop = config.resid_pdrop = 0.0
model = GPT2LMHeadModel(config)


# Batches are dictionaries with labels: hessmap takes the model's own loss. 16 sequences are enough to follow curvature.
def curvature(batch: torch.Tensor) -> None:
    problem = hm.Problem(model, None, [{"input_ids": batch, "labels": batch}], dtype=torch.float32)
    hessian = hm.loss_hessian(problem)
    sharpness = hm.sharpness(hessian, tolerance=1e-2)
    negative = hm.measurement.negative_share(hm.density_estimate(hessian, num_probes=2, num_steps=20))
    print(f"risk {problem.risk():.2f}, sharpness {sharpness.value:.3g} (residual {sharpness.residual:.1g}),", end=" ")
    print(f"negative curvature {negative.value:.0%} +- {negative.standard_error:.0%}")


curvature(sequences[:16])
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for _ in range(60):
    batch = sequences[torch.randint(len(sequences), (16,))]
    optimizer.zero_grad()
    model(input_ids=batch, labels=batch).loss.backward()
    optimizer.step()
curvature(sequences[:16])
