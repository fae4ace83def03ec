"""The course's page of differences is that of its scripts."""

from tests import course_page


def test_the_page_shows_the_scripts_of_today() -> None:
    assert course_page.PAGE.read_text() == course_page.page(), "run `make docs`"
