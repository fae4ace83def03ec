"""The AlexNet job's driver, as far as it needs no Ray."""

import pytest

from trainyard.jobs import alexnet
from trainyard.tracking.runs import Run

DONE = [{"epoch": 0, "loss": 1.8459, "train_acc": 0.3, "valid_acc": 0.30717, "minutes": 0.58}]
MEASURED = {"final_train_acc": 0.30934, "test_acc": 0.30658}


@pytest.fixture
def run(done) -> Run:
    config = {"job": "alexnet", "data": "digits", "seed": 1, "max_images": None, "epochs": 1}
    return done(config, [DONE[0] | MEASURED])


def test_its_settings_are_those_of_the_notebook():  # A3
    found = vars(alexnet.parser.parse_args([]))
    assert {name: found[name] for name in ("learning_rate", "batch_size", "epochs")} == {
        "learning_rate": 0.0001,
        "batch_size": 256,
        "epochs": 20,
    }


@pytest.mark.parametrize("arguments", [[], ["--epochs", "1"]])
def test_a_finished_run_says_so_and_ends(arguments, run, capsys):  # A35
    alexnet.main(arguments)
    out = capsys.readouterr().out
    assert "run first has finished: 1 epochs are done" in out
    assert run.url in out
    figures = ["Train ACC: 30.93%", "Validation ACC: 30.72%", "Test ACC: 30.66%"]
    assert out.splitlines()[-4:] == ["Total Training Time: 0.58 min", *figures]


def test_a_finished_run_that_is_asked_for_less_has_no_test_accuracy(run, capsys):
    run.write_metrics(DONE)
    alexnet.main([])
    assert "ACC" not in capsys.readouterr().out


def test_the_lines_of_an_epoch(capsys):  # A33 A34 A35
    alexnet.print_epoch(DONE[0] | {"train_acc": 0.30842, "valid_loss": 1.8269}, epochs=1)
    assert capsys.readouterr().out.splitlines() == [
        "{'loss': 1.8459, 'epoch': 0}",
        "Epoch: 001/001 | Train. Acc.: 30.842% | Loss: 1.8459",
        "Epoch: 001/001 | Valid. Acc.: 30.717% | Loss: 1.8269",
        "Time elapsed: 0.58 min",
    ]
