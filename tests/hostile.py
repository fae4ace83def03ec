"""Names, messages and pickles that somebody else wrote to harm their reader (F39, F40)."""

from pathlib import Path
from typing import Any

TITLE = "\x1b]0;you have been had\x07"
LINK = "\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\"
HARM = {
    "a title": TITLE,
    "a title with ST": "\x1b]0;x\x1b\\",
    "the clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "a cleared screen": "\x1b[2J\x1b[H",
    "a question to the terminal": "\x1b[6n\x1b[c\x1bZ",
    "a string of DCS": "\x1bPq#0\x1b\\",
    "a string of APC": "\x1b_x\x1b\\",
    "another character set": "\x1b(0\x0e",
    "a reset": "\x1bc",
    "8-bit CSI": "\x9b2J",
    "8-bit OSC": "\x9d0;x\x9c",
    "backspaces": "\b\b\b\x7f",
    "a bell": "\x07\x00\x05",
    "writing turned around": "\u202egnp.exe\u2066",
    "letters that are not seen": "\u200b\u2060\xad\ufeff\u2028\U000e0041",
}
MARKDOWN = {
    "a heading": "x\n# Approved\n",
    "an underlined heading": "x\n===\n",
    "a mention": "@octocat",
    "an issue": "fixes #1, o/r#1 and GH-1",
    "a link": "[approve](http://evil)",
    "an image": "![](http://evil/x.png)",
    "an address": "http://evil www.evil.com <http://evil>",
    "HTML": "<img src=x><!-- --></code></details>",
    "the end of a span": "a` @octocat ` # b ``` c",
    "the end of a cell": "a | b",
    "the end of a block": "```\n@octocat\n# Approved\n~~~",
    "emphasis": "**a** _b_ ~~c~~ \\",
    "an entity": "&#64;octocat",
    "spaces": "  ",
    "nothing": "",
}


class Canary:
    """Pickled, it makes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)
