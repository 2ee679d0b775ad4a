"""The door to this room: an expression with its variables' types in, something to evaluate out.

    program = compile_expression("self.replicas <= 5", {"self": declared(schema)}, wanted=(BOOL,))
    program({"self": tree})

An expression that does not parse or does not fit raises Refused, an evaluation that goes wrong
raises Failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hekla.cel import program
from hekla.cel.checker import FIRST_SLOT, Checker
from hekla.cel.errors import Failed, Issue, Refused, TooCostly
from hekla.cel.nodes import Call, Constant, ListOf, Name, Node, names_in, walk
from hekla.cel.parser import parse
from hekla.cel.types import DYN, STRING, Type, formal
from hekla.cel.values import Duration, Timestamp, Uint

STRUCTS: dict[str, Type] = {
    "Object": Type("Object"),
    "JSONPatch": Type(
        "JSONPatch",
        fields={
            "op": ("op", STRING),
            "path": ("path", STRING),
            "from": ("from", STRING),
            "value": ("value", DYN),
        },
    ),
}
"""What the expressions of a mutating policy may write beside maps."""


class WrongType(Exception):
    """A valid expression whose type cannot be used where it stands."""


class Program:
    """A compiled expression."""

    __slots__ = ("names", "run", "size", "source", "type", "variables")

    def __init__(self, source: str, variables: Sequence[str], node: Node, size: int) -> None:
        self.source = source
        self.variables = tuple(variables)
        self.type = node.type
        self.names = names_in(node)
        self.run = program.compiled(node)
        self.size = size

    def __call__(self, values: Mapping[str, Any], steps: int = program.STEPS) -> Any:
        """Evaluate the program.  Raises Failed.  A variable that is missing from `values` fails
        when it is read."""
        return self.spend(values, [steps])

    def spend(self, values: Mapping[str, Any], budget: list[int]) -> Any:
        """Evaluate the program, and take its steps from a budget that several expressions share."""
        frame: program.Frame = [None] * self.size
        given = frame[0] = min(budget[0], program.STEPS)
        missing = program.MISSING
        for place, name in enumerate(self.variables, FIRST_SLOT):
            frame[place] = values.get(name, missing)
        try:
            return self.run(frame)
        except RecursionError:
            raise TooCostly from None
        except (TypeError, AttributeError, OverflowError) as error:
            # a value that is not what its declared type promised: an object that no schema has
            # checked
            raise Failed("no such overload") from error
        finally:
            budget[0] -= given - frame[0] + 1


def compile_expression(
    source: str,
    variables: Mapping[str, Type],
    wanted: Sequence[Type] = (),
    structs: Mapping[str, Type] | None = None,
    *,
    bindings: bool = False,
) -> Program:
    """Compile an expression.  Raises Refused, and WrongType if its result has none of the wanted
    types."""
    node = parse(source, bindings=bindings)
    checker = Checker(source, variables, structs)
    kind = checker.check(node)
    _check_literals(source, node)
    if wanted and not any(_is(kind, one) for one in wanted):
        raise WrongType(mismatch(kind, wanted))
    try:
        return Program(source, list(variables), node, checker.size)
    except RecursionError:
        raise Refused(source, [Issue(0, "expression recursion limit exceeded")]) from None


def mismatch(kind: Type, wanted: Sequence[Type]) -> str:
    if len(wanted) == 1:
        return f"must evaluate to {formal(wanted[0])} but got {formal(kind)}"
    return f"must evaluate to one of [{' '.join(map(formal, wanted))}] but got {formal(kind)}"


def _is(kind: Type, wanted: Type) -> bool:
    return wanted is DYN or kind == wanted


def _check_literals(source: str, root: Node) -> None:
    """Check literal times, durations and patterns before anything runs."""
    issues: list[Issue] = []
    for node in walk(root):
        if not isinstance(node, Call) or not node.arguments:
            continue
        last = node.arguments[-1]
        if (
            node.function == "format"
            and isinstance(node.target, Constant)
            and isinstance(last, ListOf)
        ):
            issues += _format_issues(node, node.target.value, last)
            continue
        if not isinstance(last, Constant) or not isinstance(last.value, str):
            continue
        try:
            if node.function == "duration":
                Duration.read(last.value)
            elif node.function == "timestamp":
                Timestamp.read(last.value)
            elif node.function == "matches":
                from hekla.cel.library.regex import pattern

                pattern(last.value)
        except Failed:
            issues.append(Issue(last.at, f"invalid {node.function} argument"))
    if issues:
        raise Refused(source, issues)


_SAMPLES: dict[str, Any] = {
    "int": 1,
    "uint": Uint(1),
    "double": 1.5,
    "string": "a",
    "bool": True,
    "bytes": b"a",
    "null": None,
}


def _format_issues(node: Call, text: Any, arguments: ListOf) -> list[Issue]:
    """Check a format string with a sample value of each argument's type, where that is known."""
    if not isinstance(text, str) or not all(item.type.name in _SAMPLES for item in arguments.items):
        return []
    values = [_SAMPLES[item.type.name] for item in arguments.items]
    work = node.candidates[0].work
    try:
        work(text, values)
        return []
    except Failed as error:
        place = 0
        for place in range(len(values) + 1):
            try:
                work(text, values[:place])
            except Failed as other:
                if str(other) == str(error) and "out of range" not in str(error):
                    break
        at = (
            arguments.items[place - 1].at
            if values and place > 0 and "out of range" not in str(error)
            else arguments.at
        )
        return [Issue(at, str(error))]


def uses(source: str, name: str) -> bool:
    """Whether an expression uses a variable; False if it does not parse."""
    try:
        return any(isinstance(node, Name) and node.name == name for node in walk(parse(source)))
    except Refused:
        return False
