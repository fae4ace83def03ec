"""GPT-2 on characters: nanoGPT's sizes, its optimizer and rate, and samples."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from trainyard.models import char_gpt
from trainyard.models.char_gpt import SIZES, CharGpt, Size

TINY = Size(1, 2, 8, block=8, batch_size=4, dropout=0.0, steps=20)


@pytest.fixture
def tiny() -> CharGpt:
    torch.manual_seed(1)
    return CharGpt(TINY, characters=5, dropout=0.0)


@pytest.mark.parametrize(
    ("name", "millions"),
    # 12 layers-widths² and the two embeddings, without biases and norms
    [("small", 0.80), ("full", 10.74)],
)
def test_sizes_are_those_of_nanogpt(name, millions):  # C14
    with torch.device("meta"):
        model = CharGpt(SIZES[name], characters=65, dropout=0.1)
    matrices = sum(each.numel() for each in model.parameters() if each.dim() >= 2)
    assert matrices / 1e6 == pytest.approx(millions, abs=0.01)
    assert model.gpt2.config.activation_function == "gelu"
    assert char_gpt.MOST_NORM == 1.0


def test_logits_are_as_losses_want_them_and_see_no_later_character(tiny):
    tiny.eval()
    ids = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2], [4, 3, 2, 1, 0, 4, 3, 2]])
    logits = tiny(ids)
    assert logits.shape == (2, 5, 8)
    assert torch.isfinite(cross_entropy(logits, ids))
    later = ids.clone()
    later[:, 5:] = 3
    torch.testing.assert_close(tiny(later)[:, :, :5], logits[:, :, :5])
    assert not torch.allclose(tiny(later)[:, :, 5:], logits[:, :, 5:])


def test_it_learns_what_follows(tiny):
    ids = torch.arange(9).remainder(5).repeat(4, 1)
    optimizer = char_gpt.optimizer(tiny, learning_rate=0.03, weight_decay=0.0)
    for _ in range(60):
        loss = cross_entropy(tiny(ids[:, :-1]), ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1
    # Longer than a block: what is seen moves on. A place of a block may be taken for another.
    text = tiny.sample([0, 1], count=6, seed=1)
    assert text == [0, 1, 2, 3, 4, 0, 1, 2]


def test_a_sample_is_of_its_seed_and_longer_than_a_block(tiny):
    text = tiny.sample([0], count=30, seed=1)
    assert len(text) == 31
    assert set(text) <= set(range(5))
    assert text == tiny.sample([0], count=30, seed=1) != tiny.sample([0], count=30, seed=2)


def test_only_matrices_decay(tiny):  # C14
    optimizer = char_gpt.optimizer(tiny, learning_rate=1e-3, weight_decay=0.1)
    decayed, others = optimizer.param_groups
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert decayed["betas"] == (0.9, 0.99)
    assert {each.dim() for each in decayed["params"]} == {2}
    assert {each.dim() for each in others["params"]} == {1}
    count = len(decayed["params"]) + len(others["params"])
    assert count == len(list(tiny.parameters()))


def test_the_learning_rate_warms_up_and_falls_to_a_tenth():  # C14
    rates = [char_gpt.learning_rate(step, 1e-3, 2000) for step in range(2500)]
    assert rates[0] == pytest.approx(1e-3 / 101)
    assert rates[100] == max(rates) == pytest.approx(1e-3)
    assert rates[1050] == pytest.approx((1e-3 + 1e-4) / 2)  # half of the way
    assert rates[2000:] == pytest.approx([1e-4] * 500)
    assert sorted(rates[:101]) == rates[:101]
    assert sorted(rates[100:], reverse=True) == rates[100:]
    assert char_gpt.learning_rate(100, 1e-3, 50) > 0  # decays that are over before the warm-up
