"""Generated text between two marks of a file."""

import re


def replace_between(text: str, begin: str, new: str, end: str) -> str:
    """Return a text with another part between two lines, or after the first if `end` is empty.

    Raises:
        ValueError: a line is missing, or they are in another order.
    """
    found = re.fullmatch(f"(.*?{re.escape(begin)}).*?({re.escape(end)}.*)", text, re.DOTALL)
    if not found:
        marks = " and then ".join(mark.strip() for mark in (begin, end) if mark)
        raise ValueError(f"the page lacks the line {marks}: restore it")
    return found[1] + new + (found[2] if end else "")
