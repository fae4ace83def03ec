"""Parts of a fresh machine, and its leftovers; CI runs whole ones."""

from pathlib import Path

import pytest

from tests import fresh

ROOT = Path(__file__).parents[2]


def test_packages_are_those_of_the_readme():
    assert fresh.packages((ROOT / "README.md").read_text()) == [
        *("ca-certificates", "git", "make", "python3", "python3-venv")
    ]


@pytest.mark.parametrize("lines", [0, 2])
def test_a_readme_without_one_list_is_refused(lines):
    with pytest.raises(fresh.FreshError, match=f"has {lines} lines"):
        fresh.packages("make demo\n" + "sudo apt-get install git\n" * lines)


def test_the_root_of_a_killed_run_is_removed_and_others_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(fresh, "PARENT", tmp_path)
    (tmp_path / f"{fresh.PREFIX}killed" / "etc").mkdir(parents=True)
    with fresh._folder() as first:
        assert list(tmp_path.iterdir()) == [first]
        with fresh._folder() as second:
            assert set(tmp_path.iterdir()) == {first, second}
        assert list(tmp_path.iterdir()) == [first]
    assert not list(tmp_path.iterdir())
