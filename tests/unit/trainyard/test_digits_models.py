import pytest
import torch
from hydra import compose, initialize_config_dir

from trainyard.client import scripts
from trainyard.errors import JobError
from trainyard.models import digits

WIDE = "model.hidden_dims=[4096,4096,4096,4096]"


@pytest.mark.parametrize(
    ("overrides", "least", "most"),
    [
        (["model=mlp"], 2e5, 3e5),
        (["model=cnn"], 5e3, 5e4),
        (["model=mlp", WIDE], 50e6, 55e6),  # B22: about 50 million
    ],
)
def test_models_have_the_size_that_is_asked_for(overrides, least, most):
    with initialize_config_dir(str(scripts.JOBS / "config"), version_base="1.3"):
        config = compose("train", overrides)
    with torch.device("meta"):
        model = digits.build(config.model, config.data.side)
        assert model(torch.zeros(2, 3, 16, 16)).shape == (2, 10)
    assert least < digits.count(model) < most


def test_an_unknown_model_is_named():
    with initialize_config_dir(str(scripts.JOBS / "config"), version_base="1.3"):
        config = compose("train", ["model.kind=rnn"])
    with pytest.raises(JobError, match="'rnn' is not mlp or cnn"):
        digits.build(config.model, 16)
