"""Models of packages that know nothing of Spool, small, built from configurations in code: nothing is downloaded.

`ALL[name]()` gives a `Client` on the CPU: a model, a batch and the loss of it. `Client.step` is one training step of the plain
loop. The ResNet-50 is the examples' own, here to see what stays in its graph. Also run by bench/coverage.py.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

Batch = dict[str, Tensor]


@dataclass
class Client:
    """A model in training: what one step needs."""

    model: nn.Module
    batch: Batch
    loss_of: Callable[[nn.Module, Batch], Tensor] = lambda model, batch: model(**batch).loss
    optimiser: torch.optim.Optimizer | None = None

    def to(self, device: torch.device) -> "Client":
        self.model.train().to(device)
        self.batch = {name: tensor.to(device) for name, tensor in self.batch.items()}
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimiser = torch.optim.AdamW(trained, lr=3e-3)
        return self

    def step(self) -> Tensor:
        """One step; gives its loss, detached."""
        self.optimiser.zero_grad()
        loss = self.loss_of(self.model, self.batch)
        loss.backward()
        self.optimiser.step()
        return loss.detach()


SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
VOCABULARY = 101


def _tokens(rows: int = 3, length: int = 14) -> Tensor:
    return torch.randint(3, VOCABULARY, (rows, length))


def bert() -> Client:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(vocab_size=VOCABULARY, max_position_embeddings=32, num_labels=3, **SMALL)
    labels = torch.randint(3, (3,))
    return Client(BertForSequenceClassification(config), {"input_ids": _tokens(), "labels": labels})


def bert_padded() -> Client:
    """With a mask of padding, whose values transformers reads in every step to see whether it is needed."""
    client = bert()
    mask = torch.ones_like(client.batch["input_ids"])
    mask[1, 9:] = 0
    client.batch["attention_mask"] = mask
    return client


def gpt2() -> Client:
    from transformers import GPT2Config, GPT2LMHeadModel

    shape = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 16, "bos_token_id": 1, "eos_token_id": 2}
    tokens = _tokens()
    model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, **shape))
    return Client(model, {"input_ids": tokens, "labels": tokens})


def llama() -> Client:
    from transformers import LlamaConfig, LlamaForCausalLM

    tokens = _tokens()
    config = LlamaConfig(vocab_size=VOCABULARY, max_position_embeddings=16, num_key_value_heads=2, **SMALL)
    return Client(LlamaForCausalLM(config), {"input_ids": tokens, "labels": tokens})


def vit() -> Client:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(image_size=24, patch_size=8, num_labels=5, **SMALL)
    images = {"pixel_values": torch.randn(3, 3, 24, 24), "labels": torch.randint(5, (3,))}
    return Client(ViTForImageClassification(config), images)


def whisper() -> Client:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        num_mel_bins=20,
        max_source_positions=40,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    speech = {"input_features": torch.randn(2, 20, 80), "labels": _tokens(2, 11)}
    return Client(WhisperForConditionalGeneration(config), speech)


def lora() -> Client:
    """Llama frozen, with low-rank adapters of peft."""
    from peft import LoraConfig, get_peft_model

    client = llama()
    config = LoraConfig(r=4, lora_alpha=8, lora_dropout=0.1, target_modules=["q_proj", "v_proj"])
    client.model = get_peft_model(client.model, config)
    return client


class _Mixer(nn.Module):
    """Patches whose tokens and channels are mixed in turn, its shapes all in einops' words."""

    def __init__(self, dim: int = 24, tokens: int = 16) -> None:
        super().__init__()
        from einops.layers.torch import EinMix, Rearrange, Reduce

        self.patches = nn.Sequential(
            Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4), nn.Linear(48, dim)
        )
        self.tokens = EinMix("b t d -> b u d", weight_shape="t u", bias_shape="u", t=tokens, u=tokens)
        self.channels = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU())
        self.head = nn.Sequential(Reduce("b t d -> b d", "mean"), nn.Linear(dim, 4))

    def forward(self, images: Tensor) -> Tensor:
        from einops import einsum, pack, rearrange, reduce, repeat, unpack

        x = self.patches(images)
        x = x + self.tokens(x)
        x = x + self.channels(x)
        scores = einsum(x, x, "b t d, b u d -> b t u").softmax(-1)
        x = x + einsum(scores, x, "b t u, b u d -> b t d")
        heads = rearrange(x, "b t (n d) -> b n t d", n=3)
        peaks = repeat(reduce(heads, "b n t d -> b n d", "max"), "b n d -> b t (n d)", t=x.shape[1])
        packed, shapes = pack([x, peaks], "b * d")
        left, right = unpack(packed, shapes, "b * d")
        return self.head(left + right)


def einops() -> Client:
    def loss_of(model: nn.Module, batch: Batch) -> Tensor:
        return nn.functional.cross_entropy(model(batch["images"]), batch["labels"])

    return Client(_Mixer(), {"images": torch.randn(3, 3, 16, 16), "labels": torch.randint(4, (3,))}, loss_of)


class _Measured(nn.Module):
    """A classifier that keeps torchmetrics of its own training as submodules."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        import torchmetrics
        from torchmetrics import classification

        self.body = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, classes))
        of_classes = {"num_classes": classes, "validate_args": False}  # validating reads the labels
        self.scores = torchmetrics.MetricCollection(
            {
                "accuracy": classification.MulticlassAccuracy(**of_classes),
                "f1": classification.MulticlassF1Score(average="macro", **of_classes),
                "confusion": classification.MulticlassConfusionMatrix(**of_classes),
                "auroc": classification.MulticlassAUROC(thresholds=7, **of_classes),
            }
        )
        self.error = torchmetrics.MeanSquaredError()
        self.loss = torchmetrics.MeanMetric(nan_strategy="disable")  # the others look for NaN: a read

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        logits = self.body(inputs)
        loss = nn.functional.cross_entropy(logits, labels)
        self.scores.update(logits.detach().softmax(-1), labels)
        self.error.update(logits.detach().amax(-1), labels.float())
        self.loss.update(loss.detach())
        return loss

    def results(self) -> dict[str, Tensor]:
        """What the metrics say of all steps."""
        return {**self.scores.compute(), "error": self.error.compute(), "loss": self.loss.compute()}


def torchmetrics() -> Client:
    def loss_of(model: nn.Module, batch: Batch) -> Tensor:
        return model(batch["inputs"], batch["labels"])

    return Client(_Measured(), {"inputs": torch.randn(16, 12), "labels": torch.randint(5, (16,))}, loss_of)


def resnet50() -> Client:
    examples = str(Path(__file__).parents[3] / "examples")
    if examples not in sys.path:
        sys.path.append(examples)
    from models.resnet import resnet50 as build

    def loss_of(model: nn.Module, batch: Batch) -> Tensor:
        return nn.functional.cross_entropy(model(batch["images"]), batch["labels"])

    batch = {"images": torch.randn(2, 3, 32, 32), "labels": torch.randint(9, (2,))}
    return Client(build(), batch, loss_of)


ALL: dict[str, Callable[[], Client]] = {
    "ResNet-50": resnet50,
    "BERT": bert,
    "BERT, padded": bert_padded,
    "GPT-2": gpt2,
    "Llama": llama,
    "ViT": vit,
    "Whisper": whisper,
    "LoRA (peft)": lora,
    "mixer (einops)": einops,
    "torchmetrics": torchmetrics,
}
