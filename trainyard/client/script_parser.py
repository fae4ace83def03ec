"""Rebuilds a script's argparse parser from its syntax tree, without running the script.

With it the client refuses bad arguments before it uploads anything. A wrong refusal is worse than
none: a script that might accept other arguments than the rebuilt parser is not checked.
"""

from __future__ import annotations

import argparse
import ast
import re
from typing import Any

from trainyard import options

CONSTRUCTOR = "argparse.ArgumentParser"
OF_ARGPARSE = (
    "ArgumentParser",
    "ArgumentDefaultsHelpFormatter",
    "RawDescriptionHelpFormatter",
    "BooleanOptionalAction",
    "SUPPRESS",
)
BOUNDS = ("at_least", "between", "matching")
PARSING = {"job": ("run", "begin"), "search": ("run",)}  # they take a parser and do not change it


def read(source: bytes, prog: str) -> argparse.ArgumentParser | None:
    """Return the parser of a script.

    Args:
        source: the script.
        prog: the words before the arguments.

    Returns:
        None for a script without a parser, with several, or whose arguments may differ: it uses
        the parser for more than `add_argument` at module level and parsing the command line, or an
        argument is made of more than literals, types and bounds.

    Raises:
        SyntaxError: the script is not Python.
    """
    tree = ast.parse(source)
    made = [
        node
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == CONSTRUCTOR
    ]
    if len(made) != 1:
        return None
    name = ast.unparse(made[0].targets[0])
    added = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == f"{name}.add_argument"
    ]
    values = _values(tree)
    if not _is_plain(tree, name, len(added), values):
        return None
    try:
        parser: argparse.ArgumentParser = _value(made[0].value, values)
        for call in added:
            _value(call, values | {f"{name}.add_argument": parser.add_argument})
        parser.format_help()
    except (LookupError, TypeError, ValueError, argparse.ArgumentError, re.error):
        return None
    if parser.fromfile_prefix_chars or not parser.exit_on_error:
        return None
    parser.prog = prog
    return parser


def _is_plain(tree: ast.Module, name: str, added: int, values: dict[str, Any]) -> bool:
    """Whether a script has only this parser, and uses it in the ways that `read` understands."""
    nodes = list(ast.walk(tree))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    functions = [ast.unparse(call.func) for call in calls]
    parsing = [ast.unparse(call) for call in calls].count(f"{name}.parse_args()") + sum(
        ast.unparse(argument) == name
        for call, function in zip(calls, functions, strict=True)
        if function in values
        for argument in call.args
    )
    uses = sum(isinstance(node, ast.Name) and node.id == name for node in nodes)
    return (
        sum(function.endswith("ArgumentParser") for function in functions) == 1
        and uses == 1 + added + parsing + functions.count(f"{name}.error")
        and parsing > 0
        and "argv" not in {getattr(node, "attr", getattr(node, "id", "")) for node in nodes}
    )


def _values(tree: ast.Module) -> dict[str, Any]:
    """Return what a script's arguments may be made of, and what may parse them, by name."""
    values: dict[str, Any] = {"int": int, "float": float, "str": str}
    values["__doc__"] = ast.get_docstring(tree, clean=False)
    for node in tree.body:
        if isinstance(node, ast.Import) and "argparse" in {each.name for each in node.names}:
            values |= {f"argparse.{each}": getattr(argparse, each) for each in OF_ARGPARSE}
        names = {each.name for each in node.names} if isinstance(node, ast.ImportFrom) else set()
        if ast.unparse(node).startswith("from trainyard.options import"):
            values |= {each: getattr(options, each) for each in names & {*BOUNDS}}
        elif ast.unparse(node).startswith("from trainyard import"):
            if "options" in names:
                values |= {f"options.{each}": getattr(options, each) for each in BOUNDS}
            for module in PARSING.keys() & names:
                values |= {f"{module}.{each}": None for each in PARSING[module]}
    return values


def _value(node: ast.expr, values: dict[str, Any]) -> Any:
    """Evaluate literals, the given values, and calls of them.

    Raises:
        LookupError: a name is not among the values.
        ValueError: another expression.
    """
    match node:
        case ast.Name() | ast.Attribute():
            return values[ast.unparse(node)]
        case ast.Call(func, arguments, keywords):
            return _value(func, values)(
                *(_value(each, values) for each in arguments),
                **{str(each.arg): _value(each.value, values) for each in keywords},
            )
    return ast.literal_eval(node)
