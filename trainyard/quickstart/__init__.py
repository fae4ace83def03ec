"""A user's own project: what `train init` writes, and training on one GPU box that runs Ray.

    from trainyard.quickstart import TorchTrainer, initialize_ray_with_syncer

    syncer = initialize_ray_with_syncer(base_dir, src_dir, config_file, results_dir)
    TorchTrainer(train_loop, run_config=RunConfig(name="first")).fit(syncer)

docs/box.md explains it.
"""

from typing import Any

__all__ = ["Synced", "TorchTrainer", "Tuner", "initialize_ray_with_syncer", "one_message"]


def __getattr__(name: str) -> Any:
    """Imports Ray with the first name that is used: `train init` does not need it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from trainyard.quickstart import syncer, trainers  # noqa: PLC0415

    return getattr(syncer if hasattr(syncer, name) else trainers, name)
