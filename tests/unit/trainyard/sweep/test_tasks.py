"""The output of tasks of a sweep."""

import io

from trainyard.sweep import tasks
from trainyard.sweep.tasks import NumberedLines


def test_each_line_has_its_points_number_also_the_last():  # F56
    out = io.StringIO()
    stream = NumberedLines(out, 3)
    for text in ("a\nb", "c\n", "\n", "no end"):
        stream.write(text)
    assert out.getvalue() == "[3] a\n[3] bc\n[3] \n"
    stream.end()
    stream.end()
    assert out.getvalue() == "[3] a\n[3] bc\n[3] \n[3] no end\n"


def test_output_without_an_end_is_passed_on_piece_by_piece():  # F56
    out = io.StringIO()
    stream = NumberedLines(out, 0)
    for _ in range(100_000):
        stream.write("\r 50 % done")
        assert stream._held <= tasks.LONGEST_LINE
    lines = out.getvalue().splitlines(keepends=False)
    assert len(out.getvalue()) > 1_000_000 > len(lines)
