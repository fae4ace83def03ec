"""The plain loop to which P20 compares the job chargpt: the same model, text, seed and steps.

Prints tokens per second and the losses of each epoch as JSON. It runs in a plain process, or with
Ray alone (bench/ray_alone.py), and imports only these parts of the job: text, model, optimizer,
learning rate and seeds.
"""

import argparse
import json
import time


def train(
    text: str, epochs: int, steps_per_epoch: int, limit: int | None = None
) -> dict[str, list[float]]:
    """Train the small size in one thread.

    Args:
        text: as the job takes it.
        epochs: to train.
        steps_per_epoch: of one batch each.
        limit: only so many characters of the text.

    Returns:
        For each epoch `figures`, tokens per second, `losses` and `valid_losses`.
    """
    import torch
    from torch.nn.functional import cross_entropy
    from torch.utils.data import DataLoader

    from trainyard.data import characters
    from trainyard.epochs import seed_epoch
    from trainyard.models import char_gpt

    torch.set_num_threads(1)
    size = char_gpt.SIZES["small"]
    corpus = characters.load(text, size.block, limit=limit)
    batches = characters.RandomBatches(corpus.train, size.block, size.batch_size, steps_per_epoch)
    held_out = DataLoader(characters.Blocks(corpus.valid, size.block), size.batch_size)
    torch.manual_seed(1)
    model = char_gpt.CharGpt(size, len(corpus.vocabulary), size.dropout)
    optimizer = char_gpt.optimizer(model, learning_rate=1e-3, weight_decay=0.1)
    figures, losses, valid_losses = [], [], []
    step = 0
    for epoch in range(epochs):
        seed_epoch(1, epoch, rank=0)
        model.train()
        begun = time.perf_counter()
        total = 0.0
        for ids, following in batches:
            for group in optimizer.param_groups:
                group["lr"] = char_gpt.learning_rate(step, 1e-3, size.steps)
            loss = cross_entropy(model(ids), following)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), char_gpt.MOST_NORM)
            optimizer.step()
            total += loss.item()
            step += 1
        tokens = steps_per_epoch * size.batch_size * size.block
        figures.append(tokens / (time.perf_counter() - begun))
        losses.append(total / steps_per_epoch)
        valid, count = 0.0, 0
        model.eval()
        with torch.no_grad():
            for ids, following in held_out:
                valid += cross_entropy(model(ids), following, reduction="sum").item()
                count += following.numel()
        valid_losses.append(valid / count)
    return {"figures": figures, "losses": losses, "valid_losses": valid_losses}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--text", default="python")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--steps-per-epoch", type=int, default=250)
    parser.add_argument("--ray-alone", action="store_true")
    args = vars(parser.parse_args())
    if args.pop("ray_alone"):
        from bench import ray_alone

        ray_alone.fit(lambda: print(json.dumps(train(**args)), flush=True))
    else:
        print(json.dumps(train(**args)))
