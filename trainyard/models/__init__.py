"""Models that the jobs train, and their loading from checkpoints."""

from typing import Any

from torch import nn

from trainyard.models import char_gpt
from trainyard.models.alexnet import AlexNet

# Keys of the weights in a job's file: with Lightning, and without.
STATES = ("state_dict", "model")


def build(architecture: str, classes: int) -> nn.Module:
    """Return an untrained network, for images (batch, 3, side, side) or characters' ids.

    The architecture is alexnet, mobilenet_v2, resnet18, char_gpt_small or char_gpt_full; it has a
    logit for each class.

    Raises:
        ValueError: an unknown architecture.
    """
    # torchvision takes a second to import, and AlexNet does not need it.
    if architecture == "alexnet":
        return AlexNet(classes)
    if architecture == "mobilenet_v2":
        from torchvision.models import mobilenet_v2  # noqa: PLC0415

        network: nn.Module = mobilenet_v2(num_classes=classes)
        return network
    if architecture == "resnet18":
        from trainyard.models.resnet import resnet18  # noqa: PLC0415

        return resnet18(classes)
    sizes = {char_gpt.ARCHITECTURE + name: size for name, size in char_gpt.SIZES.items()}
    if architecture in sizes:
        return char_gpt.CharGpt(sizes[architecture], classes)
    raise ValueError(
        f"architecture {architecture!r} is not one of alexnet, mobilenet_v2, resnet18, "
        f"{', '.join(sizes)}: the checkpoint is of a newer version than this code"
    )


def load(
    saved: dict[str, Any], model: dict[str, Any], network: nn.Module | None = None
) -> nn.Module:
    """Return the network with the saved weights, on the CPU, in evaluation mode.

    Without a network, `model` of the checkpoint's manifest says which to build.

    Raises:
        ValueError: an unknown architecture, or the weights are missing.
        RuntimeError: the weights do not fit the architecture.
    """
    state = next((saved[name] for name in STATES if name in saved), None)
    if state is None:
        raise ValueError(f"{model.get('file')} has none of {', '.join(STATES)}, which hold weights")
    prefix = model.get("prefix", "")
    weights = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
    if network is None:
        network = build(model["architecture"], len(model["classes"]))
    network.load_state_dict(weights)
    return network.eval()


def epochs(saved: dict[str, Any]) -> int | None:
    """Return how many epochs the saved model has learned, if its job says so."""
    if "history" in saved:
        return len(saved["history"])
    return saved["epoch"] + 1 if "epoch" in saved else None
