"""`config`: reads and changes a stack's settings file as `pulumi config` does.

Comments, order and quotes of the file stay.
"""

import io
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import yaml as yaml_1_1
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq, TaggedScalar
from ruamel.yaml.error import CommentMark, YAMLError
from ruamel.yaml.scalarstring import (
    DoubleQuotedScalarString,
    FoldedScalarString,
    LiteralScalarString,
)
from ruamel.yaml.tokens import CommentToken

from engine.crypto import Crypter
from engine.errors import EngineError
from engine.project import (
    Project,
    StackSettings,
    as_json,
    check_type,
    salt_of_settings,
    with_namespace,
)
from trainyard.access import settings_file, users_file

KEY = re.compile(r'[^\s:.\[\]"]+(:[^\s:.\[\]"]+)?')
SEGMENT = re.compile(r'(?:^|\.)([^\s.\[\]"]+)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]')
LARGEST = 1 << 63  # from here on the CLI reads a number as an inexact one
SECURE = "secure"  # a mapping of this key alone is a secret
# A text of several lines has no comment in its line: what follows has no line feed before it.
BLOCKS = (FoldedScalarString, LiteralScalarString)
COLLECTIONS = (CommentedMap, CommentedSeq)
TEXT_TAGS = tuple(f"tag:yaml.org,2002:{kind}" for kind in ("str", "merge", "value"))
Path_ = tuple[str | int, ...]


class SettingsFile:
    """One stack's settings file; a missing one counts as empty.

    Raises:
        EngineError: the file cannot be read or is not valid.
    """

    def __init__(self, project: Project, stack: str) -> None:
        self._project = project
        self._path = project.root / f"Pulumi.{stack}.yaml"
        self._yaml = YAML()
        self._yaml.preserve_quotes = True
        self._yaml.width = 1 << 20  # keep long lines whole
        self._yaml.indent(mapping=2, sequence=4, offset=2)
        try:
            text = users_file.read(self._path) if self._path.is_file() else ""
            settings_file.load(text, self._path.name)  # within bounds from here on
            document = self._yaml.load(text)
            _untag(document)
        except OSError as error:
            raise EngineError(f"{self._path} cannot be read: {error.strerror}") from None
        except settings_file.SettingsError as error:
            raise EngineError(str(error)) from None
        except (YAMLError, ValueError, RecursionError) as error:
            raise EngineError(f"{self._path.name} is not valid YAML: {error}") from None
        self._document = CommentedMap() if document is None else document
        if not isinstance(self._document, CommentedMap):
            raise EngineError(f"{self._path.name} must hold a mapping")
        if self._document.get("config") is None:
            self._document["config"] = CommentedMap()
        self._config = self._document["config"]
        if not isinstance(self._config, CommentedMap):
            raise EngineError(f"{self._path.name}: config must be a mapping with texts as keys")

    @property
    def salt(self) -> str:
        """The file's encryption salt, "" where it has none."""
        return salt_of_settings(self._path.name, self._document)

    def set(self, key: str, text: str, *, path: bool, crypter: Crypter | None = None) -> None:
        """Set a setting, or with `path` a part of one, such as `nodeGroups[0].name`.

        With a crypter the value is encrypted.

        Raises:
            EngineError: the key, the path or the value's type is not valid.
        """
        name, parts = _parse(key, path=path)
        try:
            settings_file.check([name, *parts, text], self._path.name, key)
        except settings_file.SettingsError as error:
            raise EngineError(f"nothing was changed: {error}") from None
        full = with_namespace(self._project.name, name)
        declared = self._project.schema.get(full, {}).get("type")
        if declared in ("array", "object") and not parts:
            part = "[0].name" if declared == "array" else ".name"
            raise EngineError(
                f"{name} is of type {declared}: set one part at a time, as with --path "
                f"'{name}{part}', or write it into {self._path.name}"
            )
        value: Any = _typed(text, whole=not parts, declared=declared)
        if crypter is not None:
            value = CommentedMap({SECURE: crypter.encrypt(text)})
            if not self.salt:
                self._set_salt(crypter.salt)
        steps = (self._entry(full) or full, *parts)
        container: Any = self._config
        for step, following in itertools.pairwise(steps):
            found = _child(container, step)
            if found is None:
                found = CommentedSeq() if isinstance(following, int) else CommentedMap()
                self._put(container, step, found, key)
            container = found
        self._put(container, steps[-1], value, key)
        if crypter is None or parts:
            whole = as_json(self._path.name, name, self._config[steps[0]], lambda *_: "")
            check_type(self._path.name, name, whole, declared)

    def remove(self, key: str, *, path: bool) -> None:
        """Remove a setting, or with `path` a part of one.

        Raises:
            EngineError: the file does not set it.
        """
        name, parts = _parse(key, path=path)
        full = with_namespace(self._project.name, name)
        steps = (self._entry(full) or full, *parts)
        containers: list[Any] = [self._config]
        for step in steps[:-1]:
            containers.append(_child(containers[-1], step))
        container, last = containers[-1], steps[-1]
        if not _has(container, last):
            raise EngineError(f"{self._path.name} does not set {key}; it sets: {self._names()}")
        comment = _below(_take_comment(container, last))
        keys = _keys(container)
        place = keys.index(last)
        del container[last]
        if len(keys) == 1:
            # Written as {}: comments that stood before the entry stand after that.
            parent = (self._document, *containers)[len(containers) - 1]
            above = parent.ca.items.pop(("config", *steps)[len(containers) - 1], [None] * 4)[3]
            comment = "".join(["\n", *(token.value for token in above or ()), comment[1:]])
            container.fa.set_flow_style()
            container.ca.comment = [_token(comment), None]
        elif place:
            _give_comment(container, keys[place - 1], comment)
        elif comment.strip():
            first = 0 if isinstance(container, CommentedSeq) else keys[1]
            container.ca.items.setdefault(first, [None] * 4)[1] = [_token(comment[1:])]

    def encrypt_again(self, former: Crypter, crypter: Crypter) -> int:
        """Encrypt all secrets with another key, and return their number."""
        secrets = {id(each): each for each in _secrets(self._config)}  # each alias once
        for each in secrets.values():
            each[SECURE] = crypter.encrypt(former.decrypt(each[SECURE]))
        if secrets or self.salt:
            self._set_salt(crypter.salt)
        return len(secrets)

    def write(self) -> None:
        """Write the file at once and durably; its form stays.

        Raises:
            EngineError: it could not be written; the former file is untouched.
        """
        stream = io.StringIO()
        self._yaml.dump(self._document, stream)
        try:
            users_file.replace(self._path, stream.getvalue())
        except OSError as error:
            raise EngineError(
                f"{self._path} could not be written ({error.strerror}); nothing was changed: make "
                "room for it and run the command again"
            ) from None

    def _set_salt(self, salt: str) -> None:
        if self.salt:
            self._document["encryptionsalt"] = salt
        else:
            self._document.insert(0, "encryptionsalt", salt)

    def _entry(self, full: str) -> str | None:
        """The setting as the file has it: with the project's name or without."""
        found = (
            key for key in self._config if with_namespace(self._project.name, str(key)) == full
        )
        return next(found, None)

    def _names(self) -> str:
        prefix = f"{self._project.name}:"
        return ", ".join(str(key).removeprefix(prefix) for key in self._config) or "nothing"

    def _put(self, container: Any, step: str | int, value: Any, key: str) -> None:
        wanted = CommentedSeq if isinstance(step, int) else CommentedMap
        if not isinstance(container, wanted) or list(container) == [SECURE]:
            kind = "an array" if isinstance(step, int) else "an object"
            raise EngineError(
                f"{key}: in {self._path.name}, the value before {step!r} is not {kind}"
            )
        if isinstance(container, CommentedSeq):
            if step == len(container):
                container.append(value)
                return
            if not 0 <= int(step) < len(container):
                raise EngineError(f"{key}: {step} is too large; the next one is {len(container)}")
        if not _has(container, step):
            container[step] = value
            return
        before = container[step]
        if not isinstance(before, COLLECTIONS) and not isinstance(value, COLLECTIONS):
            container[step] = value
            return
        # A comment in the line of a list's last item goes with the list.
        comment = _take_comment(container, step)
        if isinstance(before, COLLECTIONS) and not before.fa.flow_style():
            comment = _below(comment)
        container[step] = value
        _give_comment(container, step, comment)


def get(settings: StackSettings, project: Project, key: str, *, path: bool) -> str:
    """The text of a setting, objects and lists as JSON.

    Raises:
        EngineError: neither the stack nor the project sets it.
    """
    name, parts = _parse(key, path=path)
    full = with_namespace(project.name, name)
    if full not in settings.config:
        raise EngineError(f"{name} is not set")
    value: Any = settings.config[full]
    if parts:
        try:
            value = json.loads(value)
        except ValueError:
            value = None
        for part in parts:
            value = _child(value, part)
    if value is None:
        raise EngineError(f"{key} is not set; {name} is {settings.config[full]}")
    return value if isinstance(value, str) else json.dumps(value)


def _parse(key: str, *, path: bool) -> tuple[str, Path_]:
    """A setting's name, and the path of a part in it."""
    if not path:
        if not KEY.fullmatch(key):
            raise EngineError(
                f"{key!r} is not the name of a setting, such as 'workers'; for a part of one, such "
                "as 'head.cpus', add --path"
            )
        return key, ()
    namespace, colon, rest = key.rpartition(":") if '"' not in key else ("", "", key)
    found, end = list(SEGMENT.finditer(rest)), 0
    for match in found:
        end = match.end() if match.start() == end else -1
    try:
        parts = [
            int(match[2]) if match[2] else json.loads(match[3]) if match[3] else match[1]
            for match in found
        ]
    except ValueError:  # not a text of JSON, or more digits than a number may have
        found = []
    if (
        not found
        or end != len(rest)
        or (found[0][1] is None and not found[0][3])
        or not KEY.fullmatch(name := f"{namespace}{colon}{parts[0]}")
    ):
        raise EngineError(f"{key!r} is not a valid path; write one like 'nodeGroups[0].name'")
    return name, tuple(parts[1:])


DIGITS = 20  # and sign, of the longest number


def _typed(text: str, *, whole: bool, declared: str | None) -> Any:
    """A value for the file: as `pulumi config set` does, parts are numbers where they can be."""
    is_number = re.fullmatch(r"0|[1-9]\d*|[-+]\d+", text) and (not whole or declared == "integer")
    if is_number and len(text) <= DIGITS and -LARGEST <= int(text) < LARGEST:
        return int(text)
    if text in ("true", "false") and (not whole or declared == "boolean"):
        return text == "true"
    try:
        plain_text = "\n" not in text and yaml_1_1.safe_load(text) == text
    except (yaml_1_1.YAMLError, ValueError, RecursionError):
        plain_text = False
    return text if plain_text else DoubleQuotedScalarString(text)


def _keys(container: Any) -> list[Any]:
    return list(range(len(container))) if isinstance(container, list) else list(container)


def _has(container: Any, step: str | int) -> bool:
    wanted = list if isinstance(step, int) else dict
    return isinstance(container, wanted) and step in _keys(container)


def _child(container: Any, step: str | int) -> Any:
    return container[step] if _has(container, step) else None


def _secrets(value: Any) -> Iterator[CommentedMap]:
    if isinstance(value, CommentedMap) and list(value) == [SECURE]:
        if isinstance(value[SECURE], str):
            yield value
    elif isinstance(value, COLLECTIONS):
        for step in _keys(value):
            yield from _secrets(value[step])


def _untag(value: Any) -> None:
    """Quote texts that have a tag instead, such as the CLI's `!!merge <<`."""
    if isinstance(value, COLLECTIONS):
        for step in _keys(value):
            child = value[step]
            if isinstance(child, TaggedScalar) and str(child.tag) in TEXT_TAGS:
                value[step] = DoubleQuotedScalarString(child.value)
            else:
                _untag(child)


# ruamel.yaml keeps the comments that follow an entry, those of the next one included, at the last
# scalar in it, and drops them with it.
def _last(container: Any, step: str | int) -> tuple[Any, str | int, int]:
    """The last scalar of an entry: its container and key, and the place of its comment."""
    value = container[step]
    while isinstance(value, COLLECTIONS) and value and not value.fa.flow_style():
        container, step = value, _keys(value)[-1]
        value = container[step]
    return container, step, 0 if isinstance(container, list) else 2


def _take_comment(container: Any, step: str | int) -> str:
    """Take off what follows an entry: the comment in its line, line feed, comment lines."""
    container, step, place = _last(container, step)
    entry = container.ca.items.get(step)
    token = entry[place] if entry else None
    if token is None:
        return ""
    entry[place] = None
    return f"\n{token.value}" if isinstance(container[step], BLOCKS) else str(token.value)


def _below(comment: str) -> str:
    """The comment without the part in the entry's own line."""
    return "".join(comment.partition("\n")[1:])


def _give_comment(container: Any, step: str | int, comment: str) -> None:
    if not comment.strip():
        return
    container, step, place = _last(container, step)
    entry = container.ca.items.setdefault(step, [None] * 4)
    if entry[place] is None:
        block = isinstance(container[step], BLOCKS)
        entry[place] = _token(comment.removeprefix("\n") if block else comment)
    else:
        entry[place].value = entry[place].value.rstrip("\n") + comment


def _token(text: str) -> CommentToken:
    return CommentToken(text, CommentMark(0), None)
