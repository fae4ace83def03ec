"""Files of this project that are not Python modules: Pulumi.yaml, requirements/, docker/.

In a checkout they are next to the packages. `pip install` puts them into share/trainyard of its
environment (`data-files` of pyproject.toml).
"""

from importlib import metadata
from pathlib import Path

SETTINGS = "Pulumi.yaml"
CHECKOUT = Path(__file__).resolve().parents[1]


def _installed() -> Path:
    files = metadata.files("trainyard") or []
    found = next((each for each in files if each.parts[-2:] == ("trainyard", SETTINGS)), None)
    if found is None:
        raise FileNotFoundError("share/trainyard of the package is not there: install it again")
    return Path(str(found.locate())).resolve().parent


IN_CHECKOUT = (CHECKOUT / SETTINGS).is_file()
FOLDER = CHECKOUT if IN_CHECKOUT else _installed()
