"""A BERT classifier as Hugging Face has it: its own loss, batches of dictionaries, curvature while it trains."""

import torch
from transformers import BertConfig, BertForSequenceClassification

import hessmap as hm

torch.manual_seed(0)
config = BertConfig(
    vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=2
)
model = BertForSequenceClassification(config)  # random weights; nothing is downloaded

# A text is positive if token 7 is in it.
ids = torch.randint(1, 40, (64, 12))
ids[::2, 5] = 7
labels = (ids == 7).any(1).long()
batches = [{"input_ids": ids[part], "labels": labels[part]} for part in torch.arange(64).split(16)]

optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(31):
    if epoch % 15 == 0:
        model.eval()  # dropout off, for the measurement
        problem = hm.Problem(model, None, batches, dtype=torch.float32)
        top = hm.sharpness(hm.loss_hessian(problem), tolerance=1e-2)
        print(f"epoch {epoch}: risk {problem.risk():.4f}, largest eigenvalue {top.value:.3f}")
    model.train()
    for batch in batches:
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()

print(next(note for note in problem.notes if "own loss" in note))
