"""As for the library: no job reads the settings of anyone who runs the tests."""

from tests.unit.trainyard.conftest import _no_settings_of_the_caller

__all__ = ["_no_settings_of_the_caller"]
