"""GPT-2 on characters: Hugging Face's model, in nanoGPT's two sizes and with its optimizer.

https://github.com/karpathy/nanoGPT (README.md and config/train_shakespeare_char.py). The model is
built from a configuration; nothing is downloaded.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from trainyard.data.characters import Corpus
from trainyard.tracking.run_folder import CHECKPOINT_FILE

ARCHITECTURE = "char_gpt_"  # followed by a name of SIZES, in a checkpoint's manifest
WARM_UP_STEPS = 100
LEAST_RATE = 0.1  # of the highest learning rate, at the end
BETAS = (0.9, 0.99)  # of AdamW: a batch has few characters, so averages are over more steps
MOST_NORM = 1.0  # of the gradient
TEMPERATURE = 0.8  # of a sample
TOP_K = 200


class Size(NamedTuple):
    """A model and its defaults for training."""

    layers: int
    heads: int
    width: int
    block: int  # characters that the model sees at once
    batch_size: int
    dropout: float
    steps: int  # until the learning rate is lowest


SIZES = {
    "small": Size(4, 4, 128, block=64, batch_size=12, dropout=0.0, steps=2000),
    "full": Size(6, 6, 384, block=256, batch_size=64, dropout=0.2, steps=5000),
}


class CharGpt(nn.Module):
    """GPT-2 for one vocabulary of characters, with the weights of a `GPT2LMHeadModel`."""

    def __init__(self, size: Size, characters: int, dropout: float | None = None) -> None:
        """Draws the weights.

        Args:
            size: of SIZES.
            characters: of the vocabulary.
            dropout: of embeddings, attention and residuals, in 0..1; None is the size's.
        """
        # Takes seconds to import, and only workers need it.
        from transformers import GPT2Config, GPT2LMHeadModel  # noqa: PLC0415

        super().__init__()
        dropout = size.dropout if dropout is None else dropout
        self.block = size.block
        self.gpt2 = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=characters,
                n_positions=size.block,
                n_embd=size.width,
                n_layer=size.layers,
                n_head=size.heads,
                activation_function="gelu",  # nanoGPT's, which is one kernel
                embd_pdrop=dropout,
                attn_pdrop=dropout,
                resid_pdrop=dropout,
                use_cache=False,
                bos_token_id=None,  # GPT-2's own are beyond this vocabulary
                eos_token_id=None,
            )
        )

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Maps ids (batch, at most `block`) to logits (batch, characters, the same length)."""
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=ids.is_cuda):
            logits: torch.Tensor = self.gpt2(ids).logits
        return logits.float().transpose(1, 2)

    def sample(self, ids: list[int], count: int, seed: int) -> list[int]:
        """Continues a text of at least one id by `count` characters; returns all of its ids."""
        return [*ids, *self.written(ids, count, seed)]

    @torch.no_grad()
    def written(self, ids: list[int], count: int, seed: int) -> Iterator[int]:
        """Yields the ids that follow a text of at least one id, each as soon as it is drawn."""
        self.eval()
        generator = torch.Generator().manual_seed(seed)
        device = next(self.parameters()).device
        text = list(ids)
        for _ in range(count):
            seen = torch.tensor([text[-self.block :]], device=device)
            logits = self(seen)[0, :, -1].cpu() / TEMPERATURE
            likely = logits.topk(min(TOP_K, len(logits)))
            drawn = torch.multinomial(likely.values.softmax(0), 1, generator=generator)
            text.append(int(likely.indices[drawn]))
            yield text[-1]


def sample(network: CharGpt, corpus: Corpus, prompt: str, count: int, seed: int) -> str:
    """Return `count` characters after a prompt, or after the first one of the vocabulary."""
    begun = corpus.encode(prompt or corpus.vocabulary[0])
    return corpus.decode(network.sample(begun, count, seed))


def description(size: str, vocabulary: str, job: str) -> dict[str, Any]:
    """Return the description of a model in a checkpoint's manifest, for `trainyard.load`.

    `size` is a name of SIZES; an id is an index into the vocabulary.
    """
    return {
        "job": job,
        "architecture": ARCHITECTURE + size,
        "classes": list(vocabulary),
        "file": CHECKPOINT_FILE,
        "prefix": "",
    }


def optimizer(model: nn.Module, learning_rate: float, weight_decay: float) -> torch.optim.AdamW:
    """Return AdamW that decays matrices and embeddings, but not biases or norms."""
    matrices = [each for each in model.parameters() if each.dim() >= 2]
    others = [each for each in model.parameters() if each.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=BETAS)


def set_rate(optimizer: torch.optim.Optimizer, step: int, highest: float, steps: int) -> None:
    """Sets an optimizer to the rate of a step; arguments as for `learning_rate`."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step, highest, steps)


def learning_rate(step: int, highest: float, steps: int) -> float:
    """Return the rate of a step, from 0: a linear warm-up, then a cosine down to a tenth.

    The rate is lowest after `steps`, and stays there.
    """
    if step < WARM_UP_STEPS:
        return highest * (step + 1) / (WARM_UP_STEPS + 1)
    done = min(1.0, (step - WARM_UP_STEPS) / max(1, steps - WARM_UP_STEPS))
    return highest * (LEAST_RATE + (1 - LEAST_RATE) * 0.5 * (1 + math.cos(math.pi * done)))
