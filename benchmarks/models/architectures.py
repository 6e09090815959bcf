"""Models of other projects and of ordinary training code, small, with random weights; nothing is downloaded.

Each is a function that gives (model, loss, data): what a user would pass to ``hm.Problem``. A loss of None is the
model's own. ``TRIED`` has them all, by name; those of a package that is not installed raise ImportError.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Setting = tuple[nn.Module, Any, Any]
TRIED: dict[str, Callable[[], Setting]] = {}
VOCABULARY, LENGTH, SAMPLES = 23, 6, 4


def tried(name: str) -> Callable[[Callable[[], Setting]], Callable[[], Setting]]:
    def add(build: Callable[[], Setting]) -> Callable[[], Setting]:
        TRIED[name] = build
        return build

    return add


def text(**more: Tensor) -> dict[str, Tensor]:
    ids = torch.randint(3, VOCABULARY, (SAMPLES, LENGTH))
    mask = torch.ones_like(ids)
    mask[0, -2:] = 0
    return {"input_ids": ids, "attention_mask": mask, **more}


def texts_with_themselves() -> list[dict[str, Tensor]]:
    batch = text()
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    return [batch | {"labels": labels}]


def texts_with_classes(count: int = 3) -> list[dict[str, Tensor]]:
    return [text(labels=torch.arange(SAMPLES) % count)]


def images(size: int = 32, channels: int = 3, classes: int = 3) -> tuple[Tensor, Tensor]:
    return torch.randn(SAMPLES, channels, size, size), torch.arange(SAMPLES) % classes


SMALL = {"vocab_size": VOCABULARY, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
WIDE = SMALL | {"intermediate_size": 12, "max_position_embeddings": 16}


def causal(kind: str, **options: Any) -> Callable[[], Setting]:
    def build() -> Setting:
        from transformers import AutoConfig, AutoModelForCausalLM

        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **options))
        return model.eval(), None, texts_with_themselves()

    return build


def classifier(kind: str, **options: Any) -> Callable[[], Setting]:
    def build() -> Setting:
        from transformers import AutoConfig, AutoModelForSequenceClassification

        config = AutoConfig.for_model(kind, num_labels=3, pad_token_id=0, **options)
        return AutoModelForSequenceClassification.from_config(config).eval(), None, texts_with_classes()

    return build


LLAMA = WIDE | {"num_key_value_heads": 1}
for kind, options in {
    "gpt2": {"vocab_size": VOCABULARY, "n_positions": 16, "n_embd": 8, "n_layer": 2, "n_head": 2},
    "llama": LLAMA,
    "mistral": LLAMA | {"sliding_window": 4},
    "qwen2": LLAMA,
    "gemma": LLAMA | {"head_dim": 4},
    "phi": WIDE,
    "gpt_neox": WIDE,
    "opt": {
        "vocab_size": VOCABULARY,
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "ffn_dim": 12,
        "num_attention_heads": 2,
        "max_position_embeddings": 16,
        "word_embed_proj_dim": 8,
    },
    "bloom": {"vocab_size": VOCABULARY, "hidden_size": 8, "n_layer": 2, "n_head": 2},
    "falcon": {"vocab_size": VOCABULARY, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2},
    "mixtral": LLAMA | {"num_local_experts": 3, "num_experts_per_tok": 2},
    "mamba": {"vocab_size": VOCABULARY, "hidden_size": 8, "num_hidden_layers": 1, "state_size": 4},
    "rwkv": {"vocab_size": VOCABULARY, "hidden_size": 8, "num_hidden_layers": 2, "context_length": 16},
    "biogpt": WIDE,
    "codegen": {"vocab_size": VOCABULARY, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 4, "rotary_dim": 4},
}.items():
    TRIED[f"{kind}, causal language model"] = causal(kind, **options)

for kind, options in {
    "bert": WIDE,
    "roberta": WIDE | {"max_position_embeddings": 32},
    "distilbert": {"vocab_size": VOCABULARY, "dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 12},
    "albert": WIDE | {"embedding_size": 8},
    "electra": WIDE | {"embedding_size": 8},
    "deberta-v2": WIDE | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "max_relative_positions": 8},
    "mpnet": WIDE,
    "xlnet": {"vocab_size": VOCABULARY, "d_model": 8, "n_layer": 2, "n_head": 2, "d_inner": 12},
    "fnet": {"vocab_size": VOCABULARY, "hidden_size": 8, "num_hidden_layers": 2, "intermediate_size": 12},
    "funnel": {"vocab_size": VOCABULARY, "block_sizes": [1, 1], "d_model": 8, "n_head": 2, "d_head": 4, "d_inner": 12},
}.items():
    TRIED[f"{kind}, classifier"] = classifier(kind, **options)


@tried("bert, token classifier")
def bert_tokens() -> Setting:
    from transformers import BertConfig, BertForTokenClassification

    batch = text()
    labels = (batch["input_ids"] % 3).masked_fill(batch["attention_mask"] == 0, -100)
    return BertForTokenClassification(BertConfig(num_labels=3, **WIDE)).eval(), None, [batch | {"labels": labels}]


@tried("bert, masked language model (tied)")
def bert_masked() -> Setting:
    from transformers import BertConfig, BertForMaskedLM

    batch = text()
    labels = batch["input_ids"].where(torch.arange(LENGTH) % 2 == 0, torch.tensor(-100))
    return BertForMaskedLM(BertConfig(**WIDE)).eval(), None, [batch | {"labels": labels}]


@tried("bert, regression")
def bert_regression() -> Setting:
    from transformers import BertConfig, BertForSequenceClassification

    model = BertForSequenceClassification(BertConfig(num_labels=1, **WIDE))
    return model.eval(), None, [text(labels=torch.randn(SAMPLES))]


@tried("t5, sequence to sequence")
def t5() -> Setting:
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 12, "num_layers": 1, "num_heads": 2}
    config = T5Config(vocab_size=VOCABULARY, decoder_start_token_id=0, **sizes)
    return T5ForConditionalGeneration(config).eval(), None, texts_with_themselves()


@tried("bart, sequence to sequence")
def bart() -> Setting:
    from transformers import BartConfig, BartForConditionalGeneration

    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 12, "decoder_ffn_dim": 12}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 16}
    config = BartConfig(vocab_size=VOCABULARY, d_model=8, decoder_start_token_id=2, **sizes, **heads)
    return BartForConditionalGeneration(config).eval(), None, texts_with_themselves()


@tried("whisper, speech to text")
def whisper() -> Setting:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 12, "decoder_ffn_dim": 12, "d_model": 8}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "num_mel_bins": 4}
    places = {"max_source_positions": 8, "max_target_positions": 16, "pad_token_id": 0, "decoder_start_token_id": 1}
    tokens = {"bos_token_id": 1, "eos_token_id": 2}
    config = WhisperConfig(vocab_size=VOCABULARY, **sizes, **heads, **places, **tokens)
    labels = torch.randint(3, VOCABULARY, (SAMPLES, LENGTH))
    batch = {"input_features": torch.randn(SAMPLES, 4, 16), "labels": labels}
    return WhisperForConditionalGeneration(config).eval(), None, [batch]


@tried("wav2vec2, draws numbers that it does not use (refused)")
def wav2vec2() -> Setting:
    from transformers import Wav2Vec2Config, Wav2Vec2ForSequenceClassification

    convolutions = {"conv_dim": (6, 6), "conv_stride": (4, 4), "conv_kernel": (6, 4), "num_feat_extract_layers": 2}
    config = Wav2Vec2Config(
        **WIDE,
        **convolutions,
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        num_labels=3,
        classifier_proj_size=4,
        mask_time_prob=0.0,
    )
    batch = {"input_values": torch.randn(SAMPLES, 160), "labels": torch.arange(SAMPLES) % 3}
    return Wav2Vec2ForSequenceClassification(config).eval(), None, [batch]


@tried("clip, contrastive (its loss looks across samples)")
def clip() -> Setting:
    from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPVisionConfig

    common = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2}
    texts = CLIPTextConfig(vocab_size=VOCABULARY, max_position_embeddings=16, projection_dim=8, **common)
    pictures = CLIPVisionConfig(image_size=16, patch_size=8, projection_dim=8, **common)
    model = CLIPModel(CLIPConfig(text_config=texts.to_dict(), vision_config=pictures.to_dict(), projection_dim=8))
    batch = text(pixel_values=torch.randn(SAMPLES, 3, 16, 16), labels=torch.zeros(SAMPLES))

    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, labels: Tensor, **inputs: Tensor) -> dict[str, Tensor]:
            found = self.model(**inputs, return_loss=True)
            return {"loss": found.loss, "logits": found.logits_per_image}

    return WithLoss().eval(), None, [batch]


@tried("clip, vision tower as classifier")
def clip_vision() -> Setting:
    from transformers import CLIPVisionConfig, CLIPVisionModel

    config = CLIPVisionConfig(
        hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8
    )

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tower, self.head = CLIPVisionModel(config), nn.Linear(8, 3)

        def forward(self, pixels: Tensor) -> Tensor:
            return self.head(self.tower(pixels).pooler_output)

    return Classifier().eval(), "cross_entropy", images(16)


def vision(kind: str, size: int = 32, **options: Any) -> Callable[[], Setting]:
    def build() -> Setting:
        from transformers import AutoConfig, AutoModelForImageClassification

        model = AutoModelForImageClassification.from_config(AutoConfig.for_model(kind, num_labels=3, **options))
        pixels, labels = images(size)
        return model.eval(), None, [{"pixel_values": pixels, "labels": labels}]

    return build


PATCHES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}
for kind, options in {
    "vit": PATCHES | {"image_size": 32, "patch_size": 16},
    "beit": PATCHES | {"image_size": 32, "patch_size": 16},
    "dinov2": {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "mlp_ratio": 2,
        "image_size": 32,
        "patch_size": 16,
    },
    "swin": {
        "image_size": 32,
        "patch_size": 4,
        "embed_dim": 8,
        "depths": [1, 1],
        "num_heads": [2, 2],
        "window_size": 4,
    },
    "convnext": {"hidden_sizes": [6, 8], "depths": [1, 1], "num_stages": 2},
    "resnet": {"embedding_size": 6, "hidden_sizes": [8, 8], "depths": [1, 1]},
    "poolformer": {
        "hidden_sizes": [6, 8],
        "depths": [1, 1],
        "num_encoder_blocks": 2,
        "patch_sizes": [7, 3],
        "strides": [4, 2],
        "padding": [2, 1],
    },
}.items():
    TRIED[f"{kind}, images (transformers)"] = vision(kind, **options)


@tried("deit, images (transformers)")
def deit() -> Setting:
    from transformers import DeiTConfig, DeiTForImageClassification

    pixels, labels = images(32)
    config = DeiTConfig(image_size=32, patch_size=16, num_labels=3, **PATCHES)
    return DeiTForImageClassification(config).eval(), None, [{"pixel_values": pixels, "labels": labels}]


for kind, options in {
    "resnet10t": {},
    "resnext26ts": {},
    "regnetx_002": {},
    "mobilenetv3_small_050": {},
    "efficientnet_lite0": {},
    "densenet121": {"growth_rate": 4, "block_config": (2, 2)},
    "convnext_atto": {"dims": (4, 8, 8, 8), "depths": (1, 1, 1, 1)},
    "vit_tiny_patch16_224": {"img_size": 32, "embed_dim": 12, "depth": 1, "num_heads": 2},
    "mixer_s32_224": {"img_size": 64},
    "levit_128s": {},
    "ghostnet_050": {},
}.items():

    def _timm(kind: str = kind, options: Any = options) -> Setting:
        import timm

        model = timm.create_model(kind, num_classes=3, **options).eval()
        for parameter in list(model.parameters())[:-8] if sum(p.numel() for p in model.parameters()) > 60_000 else []:
            parameter.requires_grad_(False)  # the last layers of a network that is large even when it is small
        return model, "cross_entropy", images(224 if "levit" in kind else 64 if "mixer" in kind else 32)

    TRIED[f"{kind} (timm)"] = _timm


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCABULARY, 6), nn.Linear(5, 9)
        self.cells = kind(6, 5, 2, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.cells(self.embed(ids))[0])


for kind in (nn.LSTM, nn.GRU, nn.RNN):
    TRIED[f"{kind.__name__}, every token"] = lambda kind=kind: (
        Recurrent(kind),
        "cross_entropy",
        (torch.randint(0, VOCABULARY, (SAMPLES, LENGTH)), torch.randint(0, 9, (SAMPLES, LENGTH))),
    )


def chain(*widths: int, activation: type[nn.Module] = nn.GELU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out), activation()]
    return nn.Sequential(*layers[:-1])


def vectors(width: int = 4, classes: int = 3) -> tuple[Tensor, Tensor]:
    return torch.randn(9, width), torch.arange(9) % classes


TRIED["transformer encoder of torch"] = lambda: (
    nn.Sequential(
        nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 12, batch_first=True), 2), nn.Linear(8, 5)
    ).eval(),
    "cross_entropy",
    (torch.randn(SAMPLES, LENGTH, 8), torch.randint(0, 5, (SAMPLES, LENGTH))),
)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.middle = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 6, 3, stride=2, padding=1)
        self.norm, self.up, self.last = nn.GroupNorm(2, 6), nn.ConvTranspose2d(6, 4, 2, stride=2), nn.Conv2d(8, 3, 1)

    def forward(self, pixels: Tensor) -> Tensor:
        outer = F.silu(self.down(pixels))
        inner = F.silu(self.norm(self.middle(outer)))
        return self.last(torch.cat([outer, self.up(inner)], 1))


TRIED["u-net, segmentation"] = lambda: (
    UNet(),
    nn.CrossEntropyLoss(ignore_index=2),
    (torch.randn(SAMPLES, 2, 8, 8), torch.randint(0, 3, (SAMPLES, 8, 8))),
)
TRIED["autoencoder of images"] = lambda: (
    nn.Sequential(nn.Conv2d(1, 3, 3, stride=2, padding=1), nn.ELU(), nn.ConvTranspose2d(3, 1, 2, stride=2)),
    nn.MSELoss(),
    (torch.randn(SAMPLES, 1, 8, 8), torch.randn(SAMPLES, 1, 8, 8)),
)


@tried("segmentation of torchvision (tuple of outputs)")
def segmentation() -> Setting:
    from torchvision.models.segmentation import lraspp_mobilenet_v3_large

    model = lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=3).eval()
    model.backbone.requires_grad_(False)
    return model, nn.CrossEntropyLoss(), (torch.randn(2, 3, 32, 32), torch.randint(0, 3, (2, 32, 32)))


for kind in ("resnet18", "mobilenet_v3_small", "squeezenet1_0", "shufflenet_v2_x0_5", "swin_t", "googlenet"):

    def _torchvision(kind: str = kind) -> Setting:
        import torchvision

        options = {"init_weights": True, "aux_logits": False} if kind == "googlenet" else {}
        model = getattr(torchvision.models, kind)(weights=None, num_classes=3, **options).eval()
        for parameter in list(model.parameters())[:-6]:
            parameter.requires_grad_(False)
        return model, "cross_entropy", images(64)

    TRIED[f"{kind} (torchvision), last layers"] = _torchvision


def _lora() -> Setting:
    from peft import LoraConfig, get_peft_model

    model, loss, data = TRIED["gpt2, causal language model"]()
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True))
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.2)
    return adapted.eval(), loss, data


TRIED["gpt2 with LoRA (peft)"] = _lora
TRIED["compiled network"] = lambda: (torch.compile(chain(4, 6, 3)), "cross_entropy", vectors())
TRIED["bfloat16 network"] = lambda: (chain(4, 6, 3).bfloat16(), "cross_entropy", vectors())
TRIED["weight_norm"] = lambda: (
    nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 6)), nn.Tanh(), nn.Linear(6, 3)),
    "cross_entropy",
    vectors(),
)
TRIED["spectral_norm"] = lambda: (
    nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 6)), nn.Tanh(), nn.Linear(6, 3)).eval(),
    "cross_entropy",
    vectors(),
)
TRIED["orthogonal parametrisation"] = lambda: (
    nn.Sequential(nn.utils.parametrizations.orthogonal(nn.Linear(4, 4)), nn.Tanh(), nn.Linear(4, 3)),
    "cross_entropy",
    vectors(),
)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix = nn.Embedding(VOCABULARY, 6), nn.GRU(6, 6, batch_first=True)
        self.head = nn.Linear(6, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.mix(self.embed(ids))[0])


def _tied() -> Setting:
    import hessmap as hm

    ids = torch.randint(0, VOCABULARY, (SAMPLES, LENGTH))
    return Tied(), hm.next_token(), (ids, ids)


TRIED["tied embeddings, next token"] = _tied


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(4, 3), nn.ModuleList(chain(4, 5, 3) for _ in range(3))

    def forward(self, inputs: Tensor) -> Tensor:
        gates = self.gate(inputs)
        top = gates.topk(2, -1)
        shares = torch.zeros_like(gates).scatter(-1, top.indices, top.values.softmax(-1))
        return (shares[:, None] * torch.stack([expert(inputs) for expert in self.experts], -1)).sum(-1)


TRIED["mixture of experts, written out"] = lambda: (Experts(), "cross_entropy", vectors())


class Rotary(nn.Module):
    """Rotations of pairs as complex numbers, as in the first Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.query, self.head = nn.Embedding(VOCABULARY, 8), nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.embed(ids)
        angles = torch.arange(ids.shape[1], dtype=hidden.dtype)[:, None] * torch.tensor([1.0, 0.5, 0.2, 0.1]).to(hidden)
        turns = torch.polar(torch.ones_like(angles), angles)

        def turned(values: Tensor) -> Tensor:
            pairs = torch.view_as_complex(values.reshape(*values.shape[:-1], -1, 2))
            return torch.view_as_real(pairs * turns).flatten(-2)

        scores = turned(self.query(hidden)) @ turned(hidden).mT
        return self.head(torch.softmax(scores, -1) @ hidden)


TRIED["rotary embedding by view_as_complex"] = lambda: (
    Rotary(),
    "cross_entropy",
    (torch.randint(0, VOCABULARY, (SAMPLES, LENGTH)), torch.randint(0, 5, (SAMPLES, LENGTH))),
)


def graphs(kind: str) -> Callable[[], Setting]:
    """One graph a sample: its nodes, edges and labels have an axis for the sample."""

    def build() -> Setting:
        from torch_geometric import nn as layers

        class Graph(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                make = getattr(layers, kind)
                own = {"heads": 2, "concat": False} if kind == "GATConv" else {}
                self.first = make(chain(4, 6, 6)) if kind == "GINConv" else make(4, 6, **own)
                self.last = make(chain(6, 3)) if kind == "GINConv" else make(6, 3, **own)

            def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
                hidden = torch.tanh(self.first(nodes[0], edges[0]))
                return self.last(hidden, edges[0])[None]

        data = []
        for count in (5, 7):
            edges = torch.stack([torch.arange(count), torch.arange(count).roll(1)])
            data.append(((torch.randn(1, count, 4), edges[None]), torch.arange(count)[None] % 3))
        return Graph(), "cross_entropy", data

    return build


for kind in ("GCNConv", "SAGEConv", "GATConv", "GINConv"):
    TRIED[f"graph network, {kind}"] = graphs(kind)


class Tuples(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = chain(4, 6, 3)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        outputs = self.layers(inputs)
        return outputs, outputs.sum()


TRIED["a tuple of outputs"] = lambda: (Tuples(), "cross_entropy", vectors())
for activation in (nn.Hardswish, nn.Mish, nn.Softplus, nn.PReLU, nn.GLU):
    TRIED[f"activation {activation.__name__}"] = lambda activation=activation: (
        nn.Sequential(nn.Linear(4, 6), activation(), nn.Linear(3 if activation is nn.GLU else 6, 3)),
        "cross_entropy",
        vectors(),
    )


def _quantised() -> Setting:
    layer = nn.Linear(4, 3)
    layer.weight = nn.Parameter(layer.weight.detach().mul(50).to(torch.int8), requires_grad=False)
    return nn.Sequential(nn.Linear(4, 4), layer), "cross_entropy", vectors()


class Kept(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = chain(4, 4, 3)
        self.kept = [self.layers[0].weight]

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs @ self.kept[0])


TRIED["weights in int8 (refused)"] = _quantised
TRIED["a weight kept in a list (refused)"] = lambda: (Kept(), "cross_entropy", vectors())
TRIED["dropout that is on (refused)"] = lambda: (
    nn.Sequential(nn.Linear(4, 6), nn.Dropout(), nn.Linear(6, 3)),
    "cross_entropy",
    vectors(),
)
