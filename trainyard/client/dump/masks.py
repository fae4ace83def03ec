"""Replaces secrets in texts: those that are known, however they are written, and what looks so."""

import base64
import json
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus

HIDDEN = "***"
LEAST = 4  # characters of a secret: fewer protect nothing, and are in every text
LEAST_CODED = 8  # characters of base64: fewer may be any text
WORD = re.compile(r"[\w.-]{20,}", re.ASCII)  # the parts of a secret file that others could use
NAME = re.compile(r"[a-z_]+")  # no secret but a name, such as of a setting
OF_A_SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSPHRASE)(_ID)?$")  # names of variables
# What looks like a secret, known or not, and what is left of it: a job's users have their own.
LIKELY = [
    (re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[^-]{0,20000}(-----[A-Z ]*-----)?"), ""),
    (re.compile(r"(?i)\b((?:proxy-)?authorization|cookie)(\W{1,5})[^\r\n]{4,}"), r"\1\2"),
    (re.compile(r"(?i)\b(bearer|basic|token)(\s+|%20)[\w.~+/=-]{8,}"), r"\1\2"),
    (re.compile(r"(://)[^/\s@]{1,400}(?=@)"), r"\1"),
    (
        re.compile(
            r"(?i)((?:token|secret|passw(?:or)?d|passphrase|api_?key|access_?key|credential|"
            r"signature)[\w-]{0,20}[\"'\\]{0,4}\s{0,3}(?:[=:]|%3D)\s{0,3}[\"'\\]{0,4})"
            r"[^\s\"'&,;\\]{4,}"
        ),
        r"\1",
    ),
    (re.compile(r"\b(?:AKIA|hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[abp]-)[\w-]{16,}"), ""),
]


class Masks:
    """Hides secrets, and the long words of the texts that a state keeps secret: some are files."""

    def __init__(self, secrets: Iterable[str], kept: Iterable[str] = ()) -> None:
        # So are variables of this process, by their names.
        own = [value for name, value in os.environ.items() if OF_A_SECRET.search(name.upper())]
        words = {text.strip() for text in (*secrets, *own) if len(text.strip()) >= LEAST}
        for text in (*words, *kept):
            alone = [text] if len(text) >= LEAST_CODED and not text.split()[1:] else []
            words |= {w for w in (*alone, *WORD.findall(text)) if not NAME.fullmatch(w)}
        # One secret may hold another.
        self._plain = sorted({form for w in words for form in _forms(w)}, key=len, reverse=True)
        self._coded = {form for w in words for form in _in_base64(w)}

    def hide(self, text: str) -> str:
        """Return a text without secrets."""
        for form in self._plain:
            if form in text:
                text = text.replace(form, HIDDEN)
        for form in self._coded:
            if form in text:  # with the whole run of base64, whose ends are of the secret too
                run = rf"(?<![\w+/=-])[\w+/=-]*{re.escape(form)}[\w+/=-]*"
                text = re.sub(run, HIDDEN, text, flags=re.ASCII)
        for likely, left in LIKELY:
            text = likely.sub(left + HIDDEN, text)
        return text


def without_variables(value: Any) -> Any:
    """Return a value of JSON without the variables of jobs, which may be secrets."""
    if isinstance(value, dict):
        return {k: HIDDEN if k == "env_vars" else without_variables(v) for k, v in value.items()}
    return [*map(without_variables, value)] if isinstance(value, list) else value


def _forms(word: str) -> Iterator[str]:
    yield from (word, json.dumps(word)[1:-1], repr(word)[1:-1], word.encode().hex())
    yield from (quote(word, safe=""), quote(word), quote_plus(word))


def _in_base64(word: str) -> Iterator[str]:
    """Yield what each place of a text's base64 has of a secret, without what neighbours change."""
    for shift in range(3):
        coded = base64.b64encode(b"\0" * shift + word.encode()).rstrip(b"=").decode()
        inner = coded[(0, 2, 3)[shift] :][:-1]
        if len(inner) >= LEAST_CODED:
            yield from (inner, inner.replace("+", "-").replace("/", "_"))
