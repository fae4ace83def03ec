"""Replaces secrets in texts: those that are known, however they are written, and what looks so."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

HIDDEN = "***"
LEAST = 4  # characters of a secret: fewer protect nothing, and are in every text
LEAST_CODED = 8  # characters of base64: fewer may be any text
WORD = re.compile(r"[\w.-]{20,}", re.ASCII)  # the parts of a secret file that others could use
NAME = re.compile(r"[a-z_]+")  # no secret but a name, such as of a setting
OF_A_SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSPHRASE)(_ID)?$")  # names of variables
CODED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=")

# What looks like a secret, known or not: a job's users have their own.
KEY_FILE = re.compile(
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----.{0,20000}?(-----END [A-Z ]{0,30}KEY-----|\Z)",
    re.DOTALL,
)
HEADER = re.compile(r"(?i)\b((?:proxy-)?authorization|cookie)(\W{1,5})[^\r\n]{4,}")
SCHEME = re.compile(r"(?i)\b(bearer|basic|token)(\s+|%20)[\w.~+/=-]{8,}")
LOGIN = re.compile(r"(?<=://)[^/\s@]{1,400}@")
NAMED = re.compile(
    r"(?i)((?:token|secret|passw(?:or)?d|passphrase|api_?key|access_?key|credential|signature)"
    r"[\w-]{0,20})([\"'\\]{0,4}\s{0,3}(?:[=:]|%3D)\s{0,3}[\"'\\]{0,4})[^\s\"'&,;\\]{4,}"
)
ISSUED = re.compile(r"\b(?:AKIA|hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[abp]-)[\w-]{16,}")


class Masks:
    """Hides secrets.

    Args:
        secrets: texts that are secret as a whole.
        kept: the secret texts of a state: also files and names, in which only long words are.
    """

    def __init__(self, secrets: Iterable[str], kept: Iterable[str] = ()) -> None:
        words = {text.strip() for text in secrets if len(text.strip()) >= LEAST}
        for text in (*words, *kept):
            alone = [text] if len(text) >= LEAST_CODED and not text.split()[1:] else []
            words |= {w for w in (*alone, *WORD.findall(text)) if not NAME.fullmatch(w)}
        plain, coded = set[str](), set[str]()
        for word in words:
            plain |= {*_forms(word)}
            coded |= {*_in_base64(word)}
        # One secret may hold another.
        self._plain = sorted(plain, key=len, reverse=True)
        self._coded = sorted(coded, key=len, reverse=True)

    def hide(self, text: str) -> str:
        """Return a text without secrets."""
        for form in self._plain:
            if form in text:
                text = text.replace(form, HIDDEN)
        for form in self._coded:
            if form in text:
                text = _without(text, form)
        text = KEY_FILE.sub(HIDDEN, text)
        text = HEADER.sub(rf"\1\2{HIDDEN}", text)
        text = SCHEME.sub(rf"\1\2{HIDDEN}", text)
        text = LOGIN.sub(f"{HIDDEN}@", text)
        return ISSUED.sub(HIDDEN, NAMED.sub(rf"\1\2{HIDDEN}", text))


def of_environment(variables: Mapping[str, str] | None = None) -> list[str]:
    """Return the values of this process's variables that are secrets by their names."""
    found = os.environ if variables is None else variables
    return [value for name, value in found.items() if OF_A_SECRET.search(name.upper())]


def without_variables(value: Any) -> Any:
    """Return a value of JSON in which no job's variables have a value: they may be secrets."""
    if isinstance(value, list):
        return [without_variables(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: dict.fromkeys(each, HIDDEN)
        if key == "env_vars" and isinstance(each, dict)
        else without_variables(each)
        for key, each in value.items()
    }


def _forms(word: str) -> Iterator[str]:
    yield from (word, word.strip(), json.dumps(word)[1:-1], repr(word)[1:-1])
    yield from (quote(word, safe=""), quote(word), quote_plus(word), word.encode().hex())


def _in_base64(word: str) -> Iterator[str]:
    """Yield what each place of a text's base64 has of a secret, without what neighbours change."""
    for shift in range(3):
        coded = base64.b64encode(b"\0" * shift + word.encode()).rstrip(b"=").decode()
        inner = coded[(0, 2, 3)[shift] :][:-1]
        if len(inner) >= LEAST_CODED:
            yield from (inner, inner.replace("+", "-").replace("/", "_"))


def _without(text: str, form: str) -> str:
    """Return a text without the runs of base64 that hold a form: their ends are of the secret."""
    kept, end = list[str](), 0
    while (at := text.find(form, end)) >= 0:
        start, stop = at, at + len(form)
        while start > end and ord(text[start - 1]) in CODED:
            start -= 1
        while stop < len(text) and ord(text[stop]) in CODED:
            stop += 1
        kept += [text[end:start], HIDDEN]
        end = stop
    return "".join([*kept, text[end:]])
