"""The files of an upload, listed by git's rules."""

import codecs
import ntpath
import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pathspec import GitIgnoreSpec, RegexPattern

from trainyard.client.errors import ClientError

# Settings, keys and outputs of stacks, in gitignore's patterns. The user hears of each that is left
# out: it may have another use (docs/train.md lists them).
SECRETS = (
    *("Pulumi.*.yaml", ".env", ".env.*", ".netrc", "*outputs*.json", "ray_cluster_config.yaml"),
    *("*.pem", "*.key", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".ssh/", ".aws/"),
)
# They come last in the list of excludes, so that no pattern of the user brings one back.
NEVER_UPLOADED = (
    *SECRETS,
    *(".git", ".pulumi/", ".venv/", "venv/", "__pycache__/", "*.pyc"),
    *(".mypy_cache/", ".ruff_cache/"),
)
IGNORE_FILES = (".gitignore", ".rayignore")
IN_FOLDER = re.compile(r"(?<=[^/!])/\*\*(/?) *$")
MOST_FILES = 100_000  # links to folders that hold links can make any number of names
FOLDER = "ps_d"  # group of pathspec's expressions: the end of a folder that matches
SECRET = "named like a secret"  # noqa: S105 - it says why a file is left out
KINDS = {stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket"}


@dataclass(frozen=True)
class Entry:
    """One file of an upload: its name inside the package, its size in bytes and its mode."""

    name: str
    path: Path
    size: int
    mode: int


@dataclass
class Listing:
    """The uploaded part of a folder."""

    files: list[Entry] = field(default_factory=list)  # sorted by name
    empty: list[str] = field(default_factory=list)  # names of folders that hold nothing
    folders: list[Path] = field(default_factory=list)  # all that can hold uploaded files
    # name and kind of each entry that is not uploaded, though no pattern of the user names it
    skipped: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Rule:
    """Patterns, whether each leaves out, and the folder of their names: "" or ending in `/`."""

    folder: str
    patterns: tuple[tuple[re.Pattern[str], bool], ...]

    def leaves_out(self, name: str) -> bool | None:
        """Whether a name is left out; None if no pattern matches. The last one counts.

        Names below a folder that is left out are not asked for, so a pattern counts for the folder
        and not for its content: then one that lets a folder in does not let in its files.
        """
        name = name.removeprefix(self.folder)
        for pattern, leaves_out in reversed(self.patterns):
            for match in pattern.finditer(name):
                if match.groupdict().get(FOLDER) is None or match.end(FOLDER) == len(name):
                    return leaves_out
        return None


# By the kind of their file; rules of inner folders are last.
_Rules = dict[str, tuple[_Rule, ...]]


def _leaving_out(name: str, rules: _Rules) -> list[str]:
    """Return the kinds of rules that leave a name out."""

    def said(each: tuple[_Rule, ...]) -> bool:
        answers = (rule.leaves_out(name) for rule in reversed(each))
        return next((answer for answer in answers if answer is not None), False)

    return [kind for kind, each in rules.items() if said(each)]


def of_folder(folder: Path, excludes: Sequence[str]) -> Listing:
    """Lists the upload of a folder: all but excludes and the names in .gitignore and .rayignore.

    Links are followed. Below a folder that is left out nothing is read.

    Raises:
        ClientError: something cannot be read or unpacked, or there are too many files.
    """
    found = Listing()
    root = folder.absolute()
    start: _Rules = {
        "": (_rule("", [each for each in excludes if each not in SECRETS]),),
        SECRET: (_rule("", [each for each in excludes if each in SECRETS]),),
    }
    pending = [(root, "", start, frozenset[tuple[int, int]]())]
    while pending:
        path, prefix, rules, above = pending.pop()
        opened = _opened(path, prefix, folder)
        if opened is None:  # removed since it was listed
            continue
        status, own, children = opened
        rules = rules | {file: (*rules.get(file, ()), rule) for file, rule in own.items()}
        found.folders.append(path)
        if not children and prefix:
            found.empty.append(prefix)
        here = above | {(status.st_dev, status.st_ino)}
        for child in children:
            name, inner = prefix + child, path / child
            shown = f"{name}/" if _is_folder(inner) else name  # for patterns of folders
            if leaving_out := _leaving_out(shown, rules):
                found.skipped += [f"{shown} ({SECRET})"] if leaving_out == [SECRET] else []
                continue
            its = _status(inner, name, folder)
            if its is None:
                found.skipped += [f"{name} (broken link)"] if inner.is_symlink() else []
            elif stat.S_ISDIR(its.st_mode):
                _check_name(name, folder)
                if (its.st_dev, its.st_ino) in here:
                    found.skipped.append(f"{name} (link to a folder that holds it)")
                else:
                    pending.append((inner, f"{name}/", rules, here))
            elif stat.S_ISREG(its.st_mode):
                _check_name(name, folder)
                mode = stat.S_IMODE(its.st_mode) & 0o777
                found.files.append(Entry(name, inner, its.st_size, mode))
            else:
                kind = KINDS.get(stat.S_IFMT(its.st_mode), "device")
                found.skipped.append(f"{name} ({kind})")
        if len(found.files) + len(found.folders) > MOST_FILES:
            raise ClientError(
                f"{folder} has more than {MOST_FILES} files and folders to upload, the last of "
                f"them in {prefix or '.'}: leave some out (.gitignore, .rayignore), or give the "
                "folder of the code alone"
            )
    found.files.sort(key=lambda entry: entry.name)
    found.empty.sort()
    return found


def of_module(path: Path, excludes: Sequence[str]) -> Listing:
    """Lists a module: the uploaded files of a package's folder, or one file."""
    if path.is_dir():
        return of_folder(path, excludes)
    try:
        status = path.stat()
    except OSError as error:
        raise _unreadable(path.name, path.parent, error) from None
    _check_name(path.name, path.parent)
    return Listing([Entry(path.name, path, status.st_size, status.st_mode & 0o777)])


def read(entry: Entry) -> bytes:
    """The content of a file; ClientError if it cannot be read."""
    try:
        return entry.path.read_bytes()
    except OSError as error:
        raise _unreadable(entry.name, entry.path.parent, error) from None


def _rule(folder: str, lines: Iterable[str]) -> _Rule:
    patterns: list[tuple[re.Pattern[str], bool]] = []
    for line in lines:
        if line.strip() in ("/", "!/"):  # nothing to git, everything to pathspec
            continue
        # The content of a folder to git, the folder itself to pathspec.
        inside = IN_FOLDER.sub(r"/**/*\1", line)
        try:
            found = GitIgnoreSpec.from_lines([inside]).patterns
        except (ValueError, re.error):  # such as `!` or `[z-a]`, which match nothing in git
            continue
        patterns += [
            (each.regex, each.include)
            for each in found
            if isinstance(each, RegexPattern) and each.regex and each.include is not None
        ]
    return _Rule(folder, tuple(patterns))


def _ignored(path: Path, prefix: str) -> dict[str, _Rule]:
    rules = {}
    for name in IGNORE_FILES:
        file = path / name
        if file.is_file():
            content = file.read_bytes().removeprefix(codecs.BOM_UTF8)
            text = content.decode(errors="surrogateescape")  # as names that are not UTF-8 are read
            rules[name] = _rule(prefix, text.splitlines())
    return rules


def _opened(
    path: Path, prefix: str, folder: Path
) -> tuple[os.stat_result, dict[str, _Rule], list[str]] | None:
    """A folder's status, rules and names; None if one within the upload is not there."""
    try:
        return path.stat(), _ignored(path, prefix), sorted(os.listdir(path))  # noqa: PTH208 - names alone
    except OSError as error:
        if prefix and isinstance(error, FileNotFoundError):
            return None
        raise _unreadable(prefix or ".", folder, error) from None


def _status(path: Path, name: str, folder: Path) -> os.stat_result | None:
    """The status of a file or of a link's target; None if it is missing."""
    try:
        return path.stat()
    except FileNotFoundError:  # such as an editor's temporary file
        return None
    except OSError as error:
        if path.is_symlink() and not isinstance(error, PermissionError):
            return None
        raise _unreadable(name, folder, error) from None


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _check_name(name: str, folder: Path) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        why = "is not UTF-8"
    else:
        if "\\" not in name and not ntpath.splitdrive(name)[0]:
            return
        why = "looks like a path of Windows, which Ray does not unpack"
    raise ClientError(
        f"the name {os.fsencode(name)!r} in the upload of {folder} {why}: rename it, or leave it "
        "out (.gitignore, .rayignore)"
    )


def _unreadable(name: str, folder: Path, error: OSError) -> ClientError:
    return ClientError(
        f"cannot read {name} in the upload of {folder} ({error.strerror}): make it readable, or "
        "leave it out (.gitignore, .rayignore)"
    )
