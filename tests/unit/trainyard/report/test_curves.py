"""Pictures of runs and searches, from records that a stranger may have written."""

import pytest

from trainyard.report import curves

EPOCHS = [
    {"epoch": i, "loss": 2.0 - i / 4, "train_acc": 0.2 * i, "valid_acc": acc, "minutes": i + 1}
    for i, acc in enumerate((0.25, 0.75, 0.5))
]


GOALS = {"valid_acc": "max"}


@pytest.fixture
def drawn(monkeypatch):
    """Pictures are figures that can be asked."""
    monkeypatch.setattr(curves, "_png", lambda figure: figure)
    return lambda history, **config: curves.of_run("first", config, history, GOALS)


def labels(axes):
    return axes.get_legend_handles_labels()[1]


def test_a_run_has_titles_units_its_test_and_its_best_epoch(drawn):
    last = EPOCHS[2] | {"test_acc": 0.875, "final_train_acc": 0.5}
    figure = drawn([*EPOCHS[:2], last], job="alexnet", epochs=9)
    assert figure.get_suptitle() == "first (alexnet)\nepoch 3 of 9, 3 min"
    loss, accuracy = figure.axes
    assert [(each.get_title(), each.get_ylabel()) for each in figure.axes] == [
        ("loss", "loss"),
        ("accuracy", "correct (%)"),
    ]
    assert labels(loss) == ["training", "best epoch: 2"]
    assert labels(accuracy) == [
        "training",
        "validation",
        "test: 87.5%",
        "final_train: 50.0%",
        "best epoch: 2",
    ]
    [marked] = [line for line in accuracy.lines if line.get_label().startswith("best")]
    assert set(marked.get_xdata()) == {2}
    figure.draw_without_rendering()
    for axes in figure.axes:
        assert axes.get_xlabel() == "epoch"
        shown = {tick.get_text() for tick in axes.get_xticklabels()}
        assert shown <= {"0", "1", "2", "3", "4"}  # never half an epoch


def test_a_run_of_one_epoch_and_figures_of_ones_own(drawn):
    record = {"epoch": 0, "loss": 1.5, "tokens_per_s": 1200.5, "perplexity": 3}
    figure = drawn([record | {"data": "digits", "minutes": 0.25}], epochs=20)
    assert figure.get_suptitle() == "first\nepoch 1 of 20, 15 s, data: digits"
    assert [axes.get_title() for axes in figure.axes] == ["loss", "tokens_per_s", "perplexity"]
    figure.draw_without_rendering()
    assert {tick.get_text() for tick in figure.axes[0].get_xticklabels()} <= {"0", "1", "2"}


def test_long_names_of_others_are_cut(drawn):  # F69
    long = "x" * 10**6
    figure = drawn([{long: 1.0, f"{long}_loss": 2}], job=long, epochs=long)
    assert len(figure.get_suptitle()) < 200
    shown = [text for axes in figure.axes for text in (axes.get_title(), *labels(axes))]
    assert max(map(len, shown)) < 100


def test_more_figures_than_fit_are_counted(drawn):
    figure = drawn([{"loss": 1.0} | {f"own_{i}": i for i in range(1000)}])
    assert len(figure.axes) == curves.MOST_PANELS
    assert figure.get_suptitle() == "first\nepoch 1; 995 more figures in metrics.jsonl"


@pytest.mark.parametrize(
    "record",
    [
        {"epoch": "one", "loss": 1.0},
        {"epoch": 0, "loss": None, "valid_acc": "0.5"},
        {"epoch": 0, "loss": 10**400, "valid_loss": 1e308, "minutes": float("inf")},
        {"epoch": 10**400, "loss": float("nan"), "train_acc": True},
        {"loss": 1.0, "$\\frac$": 2, "_hidden": 3, "$\\x$_acc": 1, "accuracy": 1},
        {},
    ],
)
def test_whatever_a_store_holds_is_drawn(record):
    picture = curves.of_run("first", {"job": "$\\bad$", "epochs": []}, [record, EPOCHS[1]], GOALS)
    assert picture.startswith(b"\x89PNG")


def test_trials_are_named_by_what_varies_best_first(monkeypatch):
    def trial(number, size, accuracies):
        values = {"batch_size": size, "rate": number / 10000, "$\\bad$": 1}
        history = [{"epoch": i, "valid_acc": each} for i, each in enumerate(accuracies)]
        return curves.Trial(f"{number:05d}", values, history)

    monkeypatch.setattr(curves, "_png", lambda figure: figure)
    trials = [trial(i, 32 + i, [0.1, 0.5 + i / 100]) for i in range(12)]
    figure = curves.of_search("search", GOALS, trials)
    [axes] = figure.axes
    assert axes.get_title() == "search: validation accuracy of 12 trials"
    [legend] = figure.legends
    named = [text.get_text() for text in legend.get_texts()]
    assert named[0] == "00011, batch_size 43, rate 0.0011"
    assert named[-1] == "00002, batch_size 34, rate 0.0002"
    assert legend.get_title().get_text() == "best first; 2 more in grey"
    figure.draw_without_rendering()


def test_of_losses_the_least_is_best(monkeypatch):
    monkeypatch.setattr(curves, "_png", lambda figure: figure)
    trials = [
        curves.Trial(str(i), {"a": i}, [{"valid_loss": each}]) for i, each in enumerate((2, 1))
    ]
    [legend] = curves.of_search("search", {"valid_loss": "min"}, trials).legends
    assert [text.get_text() for text in legend.get_texts()] == ["1, a 1", "0, a 0"]


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        ([{"a": 1, "b": 2}, {"a": 1, "b": 3}], ["b"]),
        ([{"a": 1}, {"b": 1}], ["a", "b"]),
        ([{"a": 1, "b": 2}], ["a", "b"]),
        ([{"a": [1]}, {"a": [1]}], []),
        ([], []),
    ],
)
def test_only_what_differs_varies(rows, names):
    assert curves.differing_names(rows) == names
