import io
import tarfile

import numpy as np
import pytest
import torch

from trainyard.store import archive
from trainyard.sweep import result
from trainyard.sweep.result import Result


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (0.5, 0.5),
        ({"loss": np.float64(0.5), 1: [torch.tensor(2), (3,)]}, {"loss": 0.5, "1": [2, [3]]}),
        ("text", "text"),
        ([torch.zeros(2), {1}], [[0.0, 0.0], [1]]),
    ],
)
def test_values_come_back(value, plain):
    assert result.as_json(value) == (plain, "")


@pytest.mark.parametrize("value", [object(), np.zeros(2000), b"bytes"])
def test_a_value_that_is_no_json_comes_back_as_its_text(value):
    text, note = result.as_json(value)
    assert text == str(value)
    assert note == f"a {type(value).__name__} is not JSON: its text is returned"


def test_an_odd_part_of_a_result_takes_no_other_along():  # F74
    value = {"loss": 0.5, "per_class": np.arange(3), "net": object, "all": [1, 1j]}
    plain, note = result.as_json(value)
    texts = {"net": str(object), "all": [1, "1j"]}
    assert plain == {"loss": 0.5, "per_class": [0, 1, 2]} | texts
    assert note == "'net', 'all[1]' is not JSON: its text is returned"
    value["all"] = value
    text, note = result.as_json(value)
    assert isinstance(text, str)
    assert note == "a dict is not JSON: its text is returned"


def test_a_result_is_read_as_it_was_written():
    ended = Result(completed=False, value=[1], note="some", error="ValueError: no")
    assert result.parse_result(result.write(ended)) == ended
    for content in (b"", b"[]", b"{}", b"[" * 100_000):
        with pytest.raises(ValueError, match="no result of a point"):
            result.parse_result(content)


def test_small_files_come_first_and_the_rest_is_named(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "small").write_bytes(b"12345678")
    (tmp_path / "large").write_bytes(b"123456789")
    content, note = result.pack(tmp_path, 10)
    with tarfile.open(fileobj=io.BytesIO(content)) as packed:
        assert packed.getnames() == ["below/small"]
    assert "1 files stay on the node" in note
    assert "large" in note


def test_a_link_out_of_the_folder_comes_as_what_it_leads_to(tmp_path):
    elsewhere = tmp_path / "elsewhere.pt"
    elsewhere.write_text("weights")
    folder = tmp_path / "0"
    folder.mkdir()
    (folder / "best.pt").symlink_to(elsewhere)
    (folder / "lost.pt").symlink_to(tmp_path / "none")
    content, note = result.pack(folder, result.MOST_BYTES)
    (tmp_path / "packed.tar").write_bytes(content)
    (tmp_path / "here").mkdir()
    archive.unpack(tmp_path / "packed.tar", tmp_path / "here", most_bytes=100)
    assert (tmp_path / "here" / "best.pt").read_text() == "weights"
    assert not (tmp_path / "here" / "lost.pt").exists()
    assert note == ""
