"""Trains a small network on scikit-learn's digits: change it into your job.

train submit JOB --name first -- --epochs 10    # again: it resumes; then `train serve first`
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import Subset, TensorDataset, random_split

from trainyard import job, options, supervised

parser = options.arguments(epochs=5, batch_size=64, learning_rate=1e-2)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))


def data() -> list[Subset[tuple[torch.Tensor, ...]]]:  # to learn, and to measure
    digits = load_digits()
    images, labels = torch.tensor(digits.data / 16).float(), torch.tensor(digits.target)
    return random_split(TensorDataset(images, labels), [0.8, 0.2], torch.Generator().manual_seed(1))


def accuracy(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return (outputs.argmax(1) == labels).float().mean()


def train_worker(session: job.Session) -> None:
    supervised.train(session, network, data, nn.functional.cross_entropy, valid_acc=accuracy)


def predict(inputs: list[list[float]], model: nn.Module) -> object:  # images of 64 numbers, 0 to 1
    return model(torch.tensor(inputs).float()).argmax(1).tolist()


if __name__ == "__main__":
    job.run(train_worker, "JOB", parser, fixed=("seed",), goals={"valid_acc": "max"})
