"""The requests of points, and equal points: Hydra composes, nothing is sent."""

from unittest.mock import Mock

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.types import RunMode

from hydra_plugins.ray_launcher import _composed as composed
from hydra_plugins.ray_launcher._once import Once
from trainyard.client import scripts

CONFIG = str(scripts.JOBS / "config")


def points(*overrides, name="train", launcher="ray", batch=((),), code="code"):
    with initialize_config_dir(CONFIG, version_base="1.3", job_name="job"):
        loader = GlobalHydra.instance().config_loader()
        config = loader.load_configuration(
            name, [f"hydra/launcher={launcher}", *overrides], RunMode.MULTIRUN
        )
        overridden = [list(each) for each in batch]
        found = composed.compose(Once(loader), config, overridden, 0, lambda _: code)
    return [each.point for each in found]


@pytest.mark.parametrize(
    ("name", "accelerator", "bundle"),
    [
        ("train", "cpu", {"CPU": 1}),
        ("train", "gpu", {"CPU": 1, "GPU": 1}),
        ("train", "tpu", {"CPU": 1, "TPU": 1}),  # B20: one chip of a node that has four
        ("train_lightning", "tpu", {"CPU": 1, "TPU": 4}),  # B21: all of them
    ],
)
def test_a_point_asks_for_what_its_accelerator_needs(name, accelerator, bundle):
    (point,) = points(name=name, batch=[[f"accelerator={accelerator}"]])  # B17
    assert point.bundle == bundle


def test_a_point_is_the_same_at_any_time_and_another_with_other_code_or_settings():  # F54
    batch = [["optimizer.lr=1"], ["optimizer.lr=2"], ["optimizer.lr=1"]]
    first, second, third = (point.identity for point in points(batch=batch))
    assert len({first, second, third}) == 3
    assert [point.identity for point in points(batch=batch)] == [first, second, third]
    assert points(batch=batch, code="other")[0].identity != first
    assert points("+hydra.job.env_set.SEED='1'", batch=batch)[0].identity != first
    assert points(batch=[["optimizer.lr=1", "train.epochs=7"]])[0].identity != first


def test_unknown_settings_are_refused_by_name():
    for wrong in ("hydra.launcher.nmu_cpus=1", "hydra.launcher.unit=thread"):
        with pytest.raises(HydraException, match=wrong.partition("=")[0].rpartition(".")[2]):
            points(wrong)


def test_the_other_launcher_takes_the_same_configuration():  # B28
    with initialize_config_dir(CONFIG, version_base="1.3"):
        config = compose("train", ["hydra/launcher=submitit_local"], return_hydra_config=True)
    assert config.hydra.launcher._target_.endswith("LocalLauncher")


def test_a_point_that_the_sweeper_has_composed_is_not_composed_again():
    loader = Mock(**{"load_sweep_config.side_effect": lambda *_: object()})
    once = Once(loader)
    looked_at = once.load_sweep_config(None, ["x=1"])
    assert once.take(None, ["x=1"]) is looked_at
    assert loader.load_sweep_config.call_count == 1
    # The launcher's changes are not in other configurations.
    assert once.take(None, ["x=1"]) is not looked_at
    assert loader.load_sweep_config.call_count == 2
