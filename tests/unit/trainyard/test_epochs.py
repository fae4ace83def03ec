"""The sums of epochs, and the model's shapes."""

from collections.abc import Iterator

import pytest
import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, TensorDataset

from trainyard import epochs
from trainyard.models.alexnet import IMAGE_SIZE, AlexNet

CPU = torch.device("cpu")


def toy(count: int = 10) -> tuple[nn.Module, TensorDataset]:
    torch.manual_seed(0)
    images = torch.rand(count, 3, 2, 2)
    labels = (images.mean((1, 2, 3)) > 0.5).long()
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), TensorDataset(images, labels)


def test_alexnet_takes_small_images():  # A3
    with torch.device("meta"):
        model = AlexNet(num_classes=11)
        logits = model(torch.zeros(2, 3, IMAGE_SIZE, IMAGE_SIZE))
    assert logits.shape == (2, 11)
    assert sum(p.numel() for p in AlexNet(10).parameters()) == 57_044_810


@pytest.fixture
def alone() -> Iterator[None]:
    """The only worker."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_totals_are_those_of_all_images_whatever_the_batches():
    model, data = toy()
    whole = epochs.evaluate(model, DataLoader(data, 10), CPU)
    parts = epochs.evaluate(model, DataLoader(data, 3), CPU)
    assert whole.sums[2] == 10
    torch.testing.assert_close(whole.sums, parts.sums)
    accuracy, loss = whole.of_all_workers()
    images, labels = data[:]
    assert accuracy == pytest.approx((model(images).argmax(1) == labels).float().mean().item())
    expected = nn.functional.cross_entropy(model(images), labels).item()
    assert loss == pytest.approx(expected, rel=1e-5)


def test_totals_of_all_workers_count_every_image_once(monkeypatch):  # A3
    model, data = toy()
    parts = [
        epochs.evaluate(model, DataLoader(epochs.share(data, rank, 2), 3), CPU) for rank in (0, 1)
    ]
    whole = epochs.evaluate(model, DataLoader(data, 10), CPU)
    monkeypatch.setattr(distributed, "all_reduce", lambda sums: sums.add_(parts[1].sums))
    assert parts[0].of_all_workers() == pytest.approx(whole.means())


def test_totals_keep_no_gradients():
    model, data = toy()
    images, labels = data[:]
    totals = epochs.Totals(CPU)
    logits = model(images)
    totals.add(logits, labels, nn.functional.cross_entropy(logits, labels))
    assert not totals.sums.requires_grad


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_shares_cover_every_image_once(world):
    _, data = toy()
    indices = [i for rank in range(world) for i in epochs.share(data, rank, world).indices]
    assert sorted(indices) == list(range(10))


def test_random_numbers_depend_on_seed_epoch_and_rank_only():  # F21
    def numbers(seed: int, epoch: int, rank: int) -> list[float]:
        epochs.seed_epoch(seed, epoch, rank)
        return torch.rand(3).tolist()

    assert numbers(1, 2, 0) == numbers(1, 2, 0)
    others = [numbers(1, 2, 0), numbers(2, 1, 0), numbers(1, 2, 1), numbers(2, 2, 0)]
    assert len({tuple(each) for each in others}) == 4
