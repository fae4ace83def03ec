"""Rebuilds a script's argparse parser from its syntax tree, without running the script.

With it the client refuses bad arguments before it uploads anything. A wrong refusal is worse than
none: a script that might accept other arguments than the rebuilt parser is not checked.
"""

import argparse
import ast
import re
from contextlib import suppress
from typing import Any, NoReturn

from trainyard import options
from trainyard.client.console import warn
from trainyard.client.errors import guess

OF_ARGPARSE = (
    "ArgumentDefaultsHelpFormatter",
    "RawDescriptionHelpFormatter",
    "BooleanOptionalAction",
    "SUPPRESS",
)
OURS = ("arguments", "at_least", "between", "matching", "absolute_path", "worker_count")
MAKERS = ("argparse.ArgumentParser", "arguments", "options.arguments")


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, with the nearest option and where the others are."""

    def error(self, message: str) -> NoReturn:
        """Ends with the code of argparse's errors."""
        unknown = re.findall(r" (--[\w-]+)", message if message.startswith("unrec") else "")
        near = "".join(guess(word, self._option_string_actions) for word in unknown)
        warn(f"error: {message}: {near}`{self.prog} --help` has them all")
        self.exit(2)


def read(source: bytes, prog: str) -> argparse.ArgumentParser | None:
    """Return the parser of a script; `prog` is what stands before the arguments.

    None for a script without a parser, with several, or whose arguments may differ: it uses the
    parser for more than `add_argument` at module level and parsing the command line, or an argument
    is made of more than literals, constants, types and bounds.

    Raises:
        SyntaxError: the script is not Python.
    """
    tree = ast.parse(source)
    made, added = [], []
    for statement in tree.body:
        match statement:
            case ast.Assign([ast.Name(name)], ast.Call(function) as call) if (
                ast.unparse(function) in MAKERS
            ):
                made.append((name, call))
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(), "add_argument")) as call):
                added.append(call)
    if len(made) != 1 or not _is_plain(tree, made[0][0], len(added)):
        return None
    [(name, constructor)] = made
    values = _values(tree)
    try:
        parser: argparse.ArgumentParser = _value(constructor, values)
        values[f"{name}.add_argument"] = parser.add_argument
        for call in added:
            _value(call, values)
        parser.format_help()
    except (LookupError, TypeError, ValueError, argparse.ArgumentError, re.error):
        return None
    if parser.fromfile_prefix_chars or not parser.exit_on_error:
        return None
    parser.prog = prog
    return parser


def _is_plain(tree: ast.Module, name: str, added: int) -> bool:
    """Whether a script has only this parser, and uses it in the ways that `read` understands."""
    nodes = list(ast.walk(tree))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    functions = [ast.unparse(call.func) for call in calls]
    # Functions of this library parse with a parser and do not change it.
    ours = {each for _, names in _imports(tree) for each in names}
    parsing = [ast.unparse(call) for call in calls].count(f"{name}.parse_args()") + sum(
        ast.unparse(argument) == name
        for call, function in zip(calls, functions, strict=True)
        if function.partition(".")[0] in ours
        for argument in call.args
    )
    uses = sum(isinstance(node, ast.Name) and node.id == name for node in nodes)
    return (
        sum(each.endswith("ArgumentParser") or each in MAKERS for each in functions) == 1
        and uses == 1 + added + parsing + functions.count(f"{name}.error")
        and parsing > 0
        and "argv" not in {getattr(node, "attr", getattr(node, "id", "")) for node in nodes}
    )


def _imports(tree: ast.Module) -> list[tuple[str, set[str]]]:
    """Return the modules of this library that a script imports from, each with the names."""
    return [
        (node.module, {each.name for each in node.names})
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module and not node.level
        if node.module.partition(".")[0] == "trainyard"
    ]


def _values(tree: ast.Module) -> dict[str, Any]:
    """Return what a script's arguments may be made of, by name."""
    values: dict[str, Any] = {"int": int, "float": float, "str": str}
    values["__doc__"] = ast.get_docstring(tree, clean=False)
    values |= _constants(tree)
    if any(ast.unparse(node) == "import argparse" for node in tree.body):
        values |= {f"argparse.{each}": getattr(argparse, each) for each in OF_ARGPARSE}
        values["argparse.ArgumentParser"] = _Parser
    for module, names in _imports(tree):
        if module == options.__name__:
            values |= {each: getattr(options, each) for each in names & {*OURS}}
        elif module == "trainyard" and "options" in names:
            values |= {f"options.{each}": getattr(options, each) for each in OURS}
    return values


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Return the names of values that cannot change, which the top of a script binds once."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    stored = [node.id for node in names if isinstance(node.ctx, ast.Store)]
    found = {}
    for statement in tree.body:
        match statement:
            case ast.Assign([ast.Name(name)], value) if stored.count(name) == 1:
                with suppress(TypeError, ValueError):
                    literal = ast.literal_eval(value)
                    hash(literal)  # of a list, which the script may extend, a TypeError
                    found[name] = literal
    return found


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
