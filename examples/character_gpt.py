"""Train a small GPT on characters and see how the curvature of its layers changes.

The text is that of Python's own help (``pydoc_data.topics``): nothing is downloaded. At some steps the curvature is
mapped on the same few sequences; the picture shows the mean curvature of a parameter in every kind of layer, and the
sharpness of the whole network.
"""

from pathlib import Path
from pydoc_data.topics import topics

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import hessmap as hm
from hessmap.records import whole_of
from hessmap.views.plots import write_figure

CONTEXT, WIDTH, HEADS, BLOCKS = 16, 16, 2, 2
STEPS, MAPPED_AT = 200, (0, 50, 200)


class Block(nn.Module):
    """Attention and an MLP, each behind a layer norm and beside the identity; names as in GPT-2."""

    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(WIDTH, 3 * WIDTH), "c_proj": nn.Linear(WIDTH, WIDTH)})
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, inputs: Tensor) -> Tensor:
        heads = self.attn["c_attn"](self.ln_1(inputs)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2)
        inputs = inputs + self.attn["c_proj"](mixed)
        return inputs + self.mlp(self.ln_2(inputs))


class CharacterGPT(nn.Module):
    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.ln_f, self.lm_head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocabulary, bias=False)

    def forward(self, characters: Tensor) -> Tensor:
        found = self.wte(characters) + self.wpe(torch.arange(characters.shape[1]))
        return self.lm_head(self.ln_f(self.blocks(found)))


text = "\n".join(topics.values())[:200_000]
alphabet = sorted(set(text))
characters = torch.tensor([alphabet.index(character) for character in text])


def sequences(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random pieces of the text, and the characters that follow each of theirs."""
    starts = torch.randint(len(characters) - CONTEXT - 1, (count, 1), generator=generator)
    pieces = characters[starts + torch.arange(CONTEXT + 1)]
    return pieces[:, :-1], pieces[:, 1:]


def main() -> None:
    """Train, map the curvature at some steps, and draw it."""
    torch.manual_seed(0)
    model = CharacterGPT(len(alphabet))
    generator = torch.Generator().manual_seed(0)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    few = sequences(8, generator)
    maps: dict[int, hm.records.CurvatureMap] = {}
    for step in range(STEPS + 1):
        if step in MAPPED_AT:
            problem = hm.Problem(model, "cross_entropy", *few, dtype=torch.float32)  # a label at every character
            found = maps[step] = hm.map(problem, seconds=4, title=f"after {step} steps")
            sharpness = whole_of(found.network).sharpness.value
            print(f"step {step}: risk {found.network.risk:.2f}, sharpness {sharpness:.3g}, {' '.join(found.summary)}")
        inputs, targets = sequences(32, generator)
        optimiser.zero_grad()
        cross_entropy(model(inputs).mT, targets).backward()
        optimiser.step()

    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for kind in dict.fromkeys(layer.kind for layer in maps[0].network.layers):
        curvature = []
        for made in maps.values():
            layers = [layer for layer in made.network.layers if layer.kind == kind]
            curvature.append(sum(layer.trace for layer in layers) / sum(layer.num_parameters for layer in layers))
        left.plot(list(maps), curvature, "o-", label=kind)
    left.set_yscale("symlog", linthresh=1e-5)
    left.set_title("trace of H_L over the number of parameters, by kind of layer", fontsize=9)
    right.plot(list(maps), [whole_of(made.network).sharpness.value for made in maps.values()], "o-", color="black")
    right.set_title("largest eigenvalue of H_L of the whole network", fontsize=9)
    right.set_ylim(bottom=0)
    for axes in (left, right):
        axes.set_xlabel("step")
    left.legend(fontsize=7)
    print("drawn to", write_figure(figure, Path("hessmap-runs/character_gpt.png"), salt="gpt"))


if __name__ == "__main__":
    main()
