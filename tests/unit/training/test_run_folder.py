"""Names of runs, which are folders and prefixes everywhere."""

import pytest

from training.run_folder import check_name


@pytest.mark.parametrize("name", ["a", "alexnet-20261120-120000", "0_.x", "a" * 63])
def test_good_names(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "A", "-a", ".a", "a/b", "../a", "a b", "a\n", "a" * 64, "ä", "$(x)", ".trainyard"]
)
def test_bad_names_are_refused(name: str) -> None:  # F39
    with pytest.raises(ValueError, match="choose another name"):
        check_name(name)
