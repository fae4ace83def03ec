"""Provider of docker resources: networks, volumes, images and containers of one Docker Engine.

Where inputs and state are enough, Docker is not used: an `up` that finds nothing to do neither
imports its SDK nor asks a daemon.
"""

import threading
from collections.abc import Callable
from typing import Any

from engine.docker import machine, schema
from engine.docker.schema import PREFIX, TABLES, canonical, differing, fill, without_notes
from engine.errors import UnsupportedError
from engine.providers import Actions, Diff, Live, Say
from engine.schema import faults_of
from engine.values import Properties

# The plugin's notes on how to read its own state: wrong once the outputs are ours.
PLUGIN_NOTES = {"__meta", "__pulumi_raw_state_delta"}

_importing = threading.Lock()


class DockerProvider:
    """Resources of one type; `say` shows a message, `settings` are the provider's.

    Raises:
        UnsupportedError: the engine does not know the type.
    """

    def __init__(self, type_: str, say: Say, settings: Callable[[], Properties] = dict) -> None:
        if type_ not in TABLES:
            raise UnsupportedError(f"resources of the type {type_}")
        self._type = type_
        self._say = say
        self._settings = settings
        self._table = TABLES[type_]
        self._found: Actions | None = None

    def check(self, _olds: Properties, news: Properties) -> tuple[Properties, list[str]]:
        given = without_notes(news)  # properties whose changes the program ignores
        faults = faults_of(given, self._table, self._type.rpartition(":")[2])
        return fill(given, self._table), faults

    def diff(self, _id: str, olds: Properties, news: Properties) -> Diff:
        changed = differing(self._table, olds, news)
        replaces = [key for key in changed if self._table[key].replaces]
        # No two can have one name; a new image takes the name over. Like the plugin, report none
        # of this where only the program asks to replace.
        same_name = olds.get("name") == news.get("name") and self._table is not schema.IMAGE
        first = same_name or self._table is schema.CONTAINER
        return Diff(
            changes=bool(changed),
            replaces=replaces,
            delete_before_replace=bool(replaces) and first,
        )

    def create(self, news: Properties) -> Live:
        return self._actions().create(news)

    def find(self, news: Properties) -> Live | None:
        return self._actions().find(news)

    def read(self, id_: str, olds: Properties) -> Live | None:
        """Unchanged values stay as they were written, so that only real drift is a change."""
        live = self._actions().read(id_, olds)
        if live is None:
            return None
        noted = {key: value for key, value in olds.items() if key not in PLUGIN_NOTES}
        found = live.outputs
        known = found.keys() | (noted.keys() & self._table.keys())
        different = {key for key in known if canonical(noted.get(key)) != canonical(found.get(key))}
        if not different:
            return Live(id=live.id, outputs=olds)
        same = {key: value for key, value in noted.items() if key not in different}
        drifted = bool(different & self._table.keys())
        return Live(id=live.id, outputs=found | same, drifted=drifted)

    def update(self, id_: str, olds: Properties, news: Properties) -> Properties:
        return self._actions().update(id_, olds, news)

    def delete(self, id_: str, olds: Properties) -> None:
        self._actions().delete(id_, olds)

    def _actions(self) -> Actions:
        # One thread at a time: others would meet the SDK half imported.
        with _importing:
            if self._found is None:
                self._found = _actions_of(self._type, self._say, self._settings())
            return self._found


def _actions_of(type_: str, say: Say, settings: Properties) -> Actions:
    from engine.docker.connection import connect  # noqa: PLC0415 - as above
    from engine.docker.container import Container  # noqa: PLC0415 - imports the SDK
    from engine.docker.objects import Image, Network, Volume  # noqa: PLC0415 - as above

    kinds: dict[str, Callable[[Any, Say], Actions]] = {
        f"{PREFIX}network:Network": Network,
        f"{PREFIX}volume:Volume": Volume,
        f"{PREFIX}remoteImage:RemoteImage": Image,
        f"{PREFIX}container:Container": Container,
    }
    return kinds[type_](connect(machine.connection_of(settings)), say)
