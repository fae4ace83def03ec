"""Names of runs, which are folders and prefixes everywhere; and the content of a run's folder."""

import pytest

from trainyard.store.objects import StorageError
from trainyard.tracking.run_folder import RunFolder, check_name, whole_records


@pytest.mark.parametrize("name", ["a", "alexnet-20261120-120000", "0_.x", "a" * 63])
def test_good_names(name):
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "A", "-a", ".a", "a/b", "../a", "a b", "a\n", "a" * 64, "ä", "$(x)", ".trainyard"]
)
def test_bad_names_are_refused(name):  # F39
    with pytest.raises(ValueError, match="choose another name"):
        check_name(name)


@pytest.mark.parametrize("content", ["", "[1]", "{", "7", "null", "[" * 100_000])
def test_a_configuration_that_is_none_is_said(tmp_path, content):
    (tmp_path / "first").mkdir()
    (tmp_path / "first/config.json").write_text(content)
    with pytest.raises(StorageError, match=r"config\.json is not a JSON object: restore .* --name"):
        RunFolder(tmp_path.as_uri(), "first").config()


@pytest.mark.parametrize("line", ["", "{", "7", "null", "[]", "[" * 100_000])
def test_records_count_up_to_the_first_that_is_damaged(line):
    content = f'{{"epoch": 0}}\n{{"epoch": 1}}\n{line}\n{{"epoch": 3}}\n'.encode()
    assert whole_records(content) == [{"epoch": 0}, {"epoch": 1}]
    assert whole_records(None) == []
