import csv
from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from trainyard.client.errors import ClientError
from trainyard.client.sweep import report
from trainyard.client.sweep.point import Point, PointOutcome
from trainyard.client.sweep.records import Record


def ended(number, value=None, error=""):
    name = str(number)
    point = Point(number=number, overrides=(f"+x={name}",), identity=name, folder=name, bundle={})
    return point, PointOutcome(value=value, error=error)


def rows(folder):
    with (folder / report.TABLE).open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("values", "metric", "mode", "order"),
    [
        ([0.3, 0.1, 0.2], None, "min", "120"),
        ([0.3, 0.1, float("nan")], None, "max", "012"),
        ([{"a": 1, "loss": 2}, {"a": 2, "loss": 1}, None], "loss", "min", "102"),
        ([{"a": "text", "b": 1}, {"b": 2}, "no number"], None, "max", "102"),
    ],
)
def test_the_best_comes_first(tmp_path, values, metric, mode, order):
    outcomes = [ended(i, value) for i, value in enumerate(values)]
    report.print_report(outcomes, tmp_path, metric, mode)
    assert "".join(row["x"] for row in rows(tmp_path)) == order
    assert (tmp_path / report.PICTURE).read_bytes().startswith(b"\x89PNG")


def test_the_picture_has_the_best_points_and_what_varies(tmp_path, monkeypatch):
    figures = []

    class Kept(Figure):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            figures.append(self)

    def point(number, *settings):
        made, outcome = ended(number, {"$\\bad$": number})
        return replace(made, overrides=("seed=1", f"+x={number}", *settings)), outcome

    monkeypatch.setattr(report, "_figure", lambda: Kept)
    points = [point(number) for number in range(50)]
    report.print_report([*points, point(50, "name=$\\bad$" + 50 * "a")], tmp_path, None, "max")
    [axes] = figures[0].axes
    names = [each.get_text() for each in axes.get_yticklabels()]
    assert names[:2] == ["[50] x=50 name=$\\bad$" + 24 * "a", "[49] x=49"]
    assert len(names) == report.MOST_ROWS
    assert axes.get_title() == "$\\bad$ of best 40 of 51 points, best first"


def test_failures_come_last_with_their_overrides(tmp_path, capsys):
    report.print_report([ended(0, error="lost"), ended(1, 5)], tmp_path, None, "min")
    assert [(row["x"], row["error"]) for row in rows(tmp_path)] == [("1", ""), ("0", "lost")]
    assert "lost" in capsys.readouterr().out


def test_without_a_number_there_is_no_picture(tmp_path):
    report.print_report([ended(0, "text")], tmp_path, None, "min")
    assert not (tmp_path / report.PICTURE).exists()


def test_a_folder_that_is_gone(tmp_path):
    with pytest.raises(ClientError, match=r"cannot write the table to .*gone"):
        report.print_report([ended(0, 1)], tmp_path / "gone", None, "min")


def test_the_table_has_the_points_of_all_batches(tmp_path):  # F54
    def record(number, **changes):
        known = {"sweep": "first", "job": "job", "folder": str(number)}
        return Record(number=number, overrides=(f"x={number}",), **known | changes)

    records = {
        "0": record(0, done=True, value=3),
        "1": record(1, error="lost"),
        "2": record(2),
        "3": record(3),
    }
    told = report.with_others([ended(3, 1)], records)
    report.print_report(told, tmp_path, None, "min")
    assert [(row["x"], row["value"], row["error"]) for row in rows(tmp_path)] == [
        *(("3", "1", ""), ("0", "3", ""), ("1", "", "lost"), ("2", "", report.NOT_ENDED))
    ]


def test_names_of_our_own_columns_and_of_settings_replace_none(tmp_path):  # F74
    results = [{"x": 3, "point": 4, "error": 5, "loss": 2}, {"x": 1, "loss": 1}]
    outcomes = [ended(number, value) for number, value in enumerate(results)]
    point, outcome = outcomes[1]
    outcomes[1] = (replace(point, overrides=("+point=7", "error=8")), outcome)
    report.print_report(outcomes, tmp_path, "loss", "min")
    shown = {"point (result)": "4", "error (result)": "5", "x (result)": "3", "x": "0"}
    mine, other = rows(tmp_path)[::-1]
    assert {name: mine[name] for name in shown} == shown
    assert mine["point"] == "0"
    names = ("point", "point (setting)", "error (setting)", "x (result)")
    assert [other[name] for name in names] == ["1", "7", "8", "1"]
    assert "error" not in other


def test_settings_are_shown_as_they_were_written(tmp_path):
    written = {"fold": "${fold}", "text": "a b,c", "path": "C\\d"}
    escaped = ("fold=$\\{fold\\}", "text=a\\ b\\,c", "path=C\\\\d")
    point, outcome = ended(0, 1)
    report.print_report([(replace(point, overrides=escaped), outcome)], tmp_path, None, "min")
    [row] = rows(tmp_path)
    assert {name: row[name] for name in written} == written
