"""Rules of a policy pack, applied to each registration before anything is created.

Of a pack's folder the file rules.py is used: its RULES have a name, a level and a check, which gets
type and inputs of a resource and yields a sentence for each violation.
"""

import json
import runpy
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import EngineError
from engine.values import Properties
from trainyard.access import users_file

if TYPE_CHECKING:
    from engine.display import Display

MANDATORY = "mandatory"
DISABLED = "disabled"
LEVELS = {"advisory": "warning", MANDATORY: "error", DISABLED: ""}  # and how they are shown
ALL = "all"


class Policies:
    """The rules of a pack.

    `config` is a JSON file with levels by a rule's name, or by `all`, as the pulumi CLI takes it.

    Raises:
        EngineError: the pack or the file cannot be used.
    """

    def __init__(self, folder: Path, config: Path | None, display: "Display") -> None:
        self.refused: list[str] = []
        self._display = display
        self._rules = rules(folder)
        self._levels = levels(config, {rule.name for rule in self._rules}) if config else {}

    def check(self, urn: str, type_: str, inputs: Properties) -> None:
        """Apply all rules to a resource, and take note of mandatory ones that refuse it."""
        for rule in self._rules:
            level = self._levels.get(rule.name) or self._levels.get(ALL) or rule.level
            if level == DISABLED:
                continue
            try:
                messages = list(rule.check(type_, inputs))
            except Exception as error:  # a rule that fails lets nothing pass
                messages, level = [f"the rule raised {error!r}: mend it"], MANDATORY
            for message in messages:
                self._display.message(LEVELS[level], f"{rule.name} ({level}): {message}", urn)
                if level == MANDATORY:
                    self.refused.append(f"{rule.name} of {urn.rpartition('::')[2]}")

    def enforce(self) -> None:
        """Raise if anything was refused so far.

        Raises:
            EngineError: names the rules and resources.
        """
        if self.refused:
            raise EngineError(f"policies refuse it: {', '.join(sorted(set(self.refused)))}")


def rules(folder: Path) -> Iterable[Any]:
    """The rules of a pack.

    Raises:
        EngineError: it cannot be loaded.
    """
    path = folder / "rules.py"
    try:
        return tuple(runpy.run_path(str(path), run_name="policy_pack_rules")["RULES"])
    except Exception as error:
        raise EngineError(f"the policy pack {path} cannot be loaded: {error!r}") from None


def levels(path: Path, names: set[str]) -> dict[str, str]:
    """The levels that a file gives to rules of these names.

    Raises:
        EngineError: it cannot be read, or names an unknown rule or level.
    """
    try:
        document = json.loads(users_file.read(path))
        # The CLI also takes an object, with settings of the rule.
        found = {
            name: str(value["enforcementLevel"] if isinstance(value, dict) else value)
            for name, value in document.items()
        }
    except OSError as error:
        raise EngineError(f"the levels {path} cannot be read ({error.strerror})") from None
    except (ValueError, LookupError, AttributeError, RecursionError) as error:
        raise EngineError(f"{path} is not JSON of levels by rule ({error!r})") from None
    for name, level in found.items():
        if name not in names | {ALL}:
            raise EngineError(f"{path}: no rule is named {name!r}; there are {sorted(names)}")
        if level not in LEVELS:
            raise EngineError(f"{path}: {name} is {level!r}; it must be one of {list(LEVELS)}")
    return found
