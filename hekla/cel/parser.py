"""The parser: CEL's grammar, its macros, and its error messages."""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

from hekla.cel.errors import Issue, Refused
from hekla.cel.nodes import Call, Constant, ListOf, Macro, MapOf, Name, Node, Select, Struct
from hekla.cel.values import Uint

DEEPEST = 100
LONGEST = 100_000

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
    |(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
    |(?P<int>0x[0-9a-fA-F]+|[0-9]+)
    |(?P<text>(?:[bB][rR]?|[rR][bB]?)?(?:\"{3}|'{3}|"|'))
    |(?P<quoted>`[A-Za-z0-9_.\-/ ]+`)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,\[\](){}])""",
    re.VERBOSE,
)
RESERVED = frozenset(
    (
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    )
)
_BINARY = {
    "||": 1,
    "&&": 2,
    "==": 3,
    "!=": 3,
    "<": 3,
    "<=": 3,
    ">": 3,
    ">=": 3,
    "in": 3,
    "+": 4,
    "-": 4,
    "*": 5,
    "/": 5,
    "%": 5,
}
_START = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "`": "`",
    "?": "?",
}


class Token(NamedTuple):
    kind: str
    text: str
    at: int


def parse(source: str, *, bindings: bool = False) -> Node:
    """Parse an expression.  Raises Refused.  `bindings` adds `cel.bind`, which only selectors of
    devices have."""
    if len(source) > LONGEST:
        raise Refused(
            source[:80],
            [
                Issue(
                    0,
                    f"expression code point size exceeds limit: size: {len(source)}, limit {LONGEST}",
                )
            ],
        )
    parser = _Parser(source, bindings)
    found = parser.expression()
    if parser.token.kind != "end":
        parser.refuse(parser.mismatch(extra=True))
    return found


class _Parser:
    def __init__(self, source: str, bindings: bool) -> None:
        self.source = source
        self.bindings = bindings
        self.tokens: list[Token] = []
        self._scan()
        self.position = 0
        self.token = self.tokens[0]
        self.depth = 0

    # --- tokens -----------------------------------------------------------------------------------

    def _scan(self) -> None:
        at, source = 0, self.source
        while at < len(source):
            match = _TOKEN.match(source, at)
            if match is None:
                self.refuse(f"token recognition error at: '{source[at]}'", at)
            kind = str(match.lastgroup)
            end = match.end()
            if kind == "text":
                end = self._end_of_text(at, match[0])
            if kind != "space":
                self.tokens.append(Token(kind, source[at:end], at))
            at = end
        self.tokens.append(Token("end", "", len(source)))

    def _end_of_text(self, at: int, opening: str) -> int:
        prefix = opening.rstrip("'\"")
        quote = opening[len(prefix) :]
        raw = "r" in prefix.lower()
        here = at + len(opening)
        while here < len(self.source):
            if self.source.startswith(quote, here):
                return here + len(quote)
            if self.source[here] == "\\" and not raw:
                here += 1
            elif self.source[here] in "\r\n" and len(quote) == 1:
                break
            here += 1
        return self.refuse(f"token recognition error at: '{self.source[at:]}'", at)

    def next(self) -> Token:
        token = self.token
        self.position += 1
        self.token = self.tokens[min(self.position, len(self.tokens) - 1)]
        return token

    def has(self, text: str) -> bool:
        if self.token.text == text and self.token.kind in ("sign", "name"):
            self.next()
            return True
        return False

    def expect(self, text: str, more: str | None = None) -> Token:
        if self.token.text != text or self.token.kind != "sign":
            closing = self.token.kind == "end" and text in (")", "}") and more is None
            self.refuse(
                f"missing '{text}' at {self.shown()}"
                if closing
                else self.mismatch(more or f"'{text}'")
            )
        return self.next()

    def shown(self) -> str:
        return "'<EOF>'" if self.token.kind == "end" else f"'{self.token.text}'"

    def mismatch(self, wanted: str = "<EOF>", *, extra: bool = False) -> str:
        """`extraneous` where leaving the token out would do, as far as one token ahead tells."""
        what = "extraneous" if extra and self.token.kind != "end" else "mismatched"
        return f"{what} input {self.shown()} expecting {wanted}"

    def is_extraneous(self) -> bool:
        """Whether an expression could begin right after this token, so that the token is superfluous."""
        ahead = self.tokens[min(self.position + 1, len(self.tokens) - 1)]
        return ahead.kind not in ("end", "sign") or ahead.text in ("[", "(", "{", "!", "-", ".")

    def refuse(self, text: str, at: int | None = None, *, syntax: bool = True) -> NoReturn:
        where = self.token.at if at is None else at
        raise Refused(self.source, [Issue(where, f"Syntax error: {text}" if syntax else text)])

    # --- the grammar ------------------------------------------------------------------------------

    def expression(self) -> Node:
        self.depth += 1
        if self.depth > DEEPEST:
            self.refuse(f"expression recursion limit exceeded: {DEEPEST}", 0, syntax=False)
        condition = self.binary(1)
        if self.token.text == "?" and self.token.kind == "sign":
            at = self.next().at
            then = self.binary(1)
            self.expect(":")
            condition = Call(at, "_?_:_", None, [condition, then, self.expression()])
        self.depth -= 1
        return condition

    def binary(self, level: int) -> Node:
        left = self.unary()
        while True:
            token = self.token
            strength = _BINARY.get(token.text, 0) if token.kind in ("sign", "name") else 0
            if strength < level or strength == 0:
                return left
            self.next()
            right = self.binary(strength + 1)
            left = Call(
                token.at, "@in" if token.text == "in" else f"_{token.text}_", None, [left, right]
            )

    def unary(self) -> Node:
        token = self.token
        if token.kind != "sign" or token.text not in ("!", "-"):
            return self.member(self.primary())
        count = 0
        while self.token.text == token.text and self.token.kind == "sign":
            self.next()
            count += 1
            if count > DEEPEST:
                self.refuse(f"expression recursion limit exceeded: {DEEPEST}", 0, syntax=False)
        if token.text == "-" and count == 1 and self.token.kind in ("int", "float"):
            return self.member(self.number(self.next(), negative=True))
        inner = self.member(self.primary())
        return Call(token.at, f"{token.text}_", None, [inner]) if count % 2 else inner

    def primary(self) -> Node:
        token = self.token
        if token.kind in ("int", "uint", "float"):
            return self.number(self.next(), negative=False)
        if token.kind == "text":
            self.next()
            return Constant(token.at, self.text(token))
        if token.kind == "name":
            return self.name()
        if token.text == ".":
            self.next()
            return self.name(leading=True)
        if token.text == "(":
            self.next()
            found = self.expression()
            self.expect(")")
            return found
        if token.text == "[":
            return self.list_literal()
        if token.text == "{":
            return self.map_literal()
        return self.refuse(self.mismatch(_START, extra=self.is_extraneous()))

    def name(self, *, leading: bool = False) -> Node:
        token = self.token
        if token.kind != "name" or token.text == "in":
            self.refuse(self.mismatch("IDENTIFIER" if leading else _START))
        if token.text in ("true", "false", "null") and not leading:
            self.next()
            return Constant(token.at, {"true": True, "false": False, "null": None}[token.text])
        self.next()
        if token.text in RESERVED:
            self.refuse(f"reserved identifier: {token.text}", token.at, syntax=False)
        if self.token.text == "(" and self.token.kind == "sign":
            return self.called(self.token.at, None, token.text)
        if self.token.text == "{" and self.token.kind == "sign":
            return self.struct(token.text)
        return Name(token.at, token.text)

    def member(self, value: Node) -> Node:
        count = 0
        while self.token.kind == "sign" and self.token.text in (".", "["):
            count += 1
            if count > LONGEST:
                break
            token = self.next()
            if token.text == "[":
                optional = self.has("?")
                position = self.expression()
                self.expect("]")
                value = Call(token.at, "_[?_]" if optional else "_[_]", None, [value, position])
                continue
            optional = self.has("?")
            field = self.token
            if field.kind == "quoted":
                self.next()
                value = Select(token.at, value, field.text[1:-1], optional=optional)
                continue
            if field.kind != "name" or field.text in ("in", "true", "false", "null"):
                self.refuse(
                    self.mismatch("IDENTIFIER")
                    if optional
                    else f"no viable alternative at input '.{field.text}'"
                )
            self.next()
            if self.token.text == "(" and self.token.kind == "sign" and not optional:
                value = self.called(self.token.at, value, field.text)
            elif self.token.text == "{" and self.token.kind == "sign" and (path := _dotted(value)):
                value = self.struct(f"{path}.{field.text}")
            else:
                value = Select(token.at, value, field.text, optional=optional)
        return value

    def arguments(self) -> list[Node]:
        self.expect("(")
        found: list[Node] = []
        if not self.has(")"):
            found.append(self.expression())
            while self.has(","):
                found.append(self.expression())
            self.expect(")")
        return found

    def called(self, at: int, target: Node | None, name: str) -> Node:
        arguments = self.arguments()
        return self.macro(at, target, name, arguments) or Call(at, name, target, arguments)

    def list_literal(self) -> Node:
        at = self.expect("[").at
        items: list[Node] = []
        optional: set[int] = set()
        while not self.has("]"):
            if self.has("?"):
                optional.add(len(items))
            items.append(self.expression())
            if not self.has(","):
                self.expect("]", "{']', ','}")
                break
        return ListOf(at, items, frozenset(optional))

    def map_literal(self) -> Node:
        at = self.expect("{").at
        entries: list[tuple[Node, Node, bool]] = []
        while not self.has("}"):
            optional = self.has("?")
            key = self.expression()
            self.expect(":")
            entries.append((key, self.expression(), optional))
            if not self.has(","):
                self.expect("}", "{'}', ','}")
                break
        return MapOf(at, entries)

    def struct(self, name: str) -> Node:
        at = self.expect("{").at
        fields: list[tuple[int, str, Node, bool]] = []
        while not self.has("}"):
            optional = self.has("?")
            token = self.token
            if token.kind not in ("name", "quoted"):
                self.refuse(self.mismatch("{'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}"))
            self.next()
            colon = self.expect(":")
            fields.append((colon.at, token.text.strip("`"), self.expression(), optional))
            if not self.has(","):
                self.expect("}")
                break
        return Struct(at, name, fields)

    # --- macros -----------------------------------------------------------------------------------

    def macro(self, at: int, target: Node | None, name: str, arguments: list[Node]) -> Node | None:
        count = len(arguments)
        if target is None:
            if name == "has" and count == 1:
                return self.presence(at, arguments[0])
            return None
        if (
            self.bindings
            and isinstance(target, Name)
            and target.name == "cel"
            and name == "bind"
            and count == 3
        ):
            return Macro(
                at, "bind", arguments[1], [self.variable(arguments[0])], None, arguments[2]
            )
        if name in ("optMap", "optFlatMap") and count == 2:
            return Macro(at, name, target, [self.variable(arguments[0])], None, arguments[1])
        if name == "sortBy" and count == 2:
            return Macro(at, name, target, [self.variable(arguments[0])], None, arguments[1])
        simple = {
            "all": "all",
            "exists": "exists",
            "exists_one": "exists_one",
            "existsOne": "exists_one",
        }.get(name)
        if simple is not None and count in (2, 3) and not (name == "exists_one" and count == 3):
            return Macro(
                at,
                simple,
                target,
                [self.variable(one) for one in arguments[:-1]],
                None,
                arguments[-1],
            )
        if name == "filter" and count == 2:
            return Macro(at, name, target, [self.variable(arguments[0])], None, arguments[1])
        if name == "map" and count in (2, 3):
            test = arguments[1] if count == 3 else None
            return Macro(at, name, target, [self.variable(arguments[0])], test, arguments[-1])
        if name in ("transformList", "transformMap", "transformMapEntry") and count in (3, 4):
            names = [self.variable(one) for one in arguments[:2]]
            return Macro(
                at, name, target, names, arguments[2] if count == 4 else None, arguments[-1]
            )
        return None

    def presence(self, at: int, argument: Node) -> Node:
        if not isinstance(argument, Select) or argument.test:
            self.refuse("invalid argument to has() macro", argument.at, syntax=False)
        return Select(at, argument.operand, argument.field, test=True)

    def variable(self, node: Node) -> str:
        if not isinstance(node, Name):
            self.refuse("argument must be a simple name", node.at, syntax=False)
        return node.name

    # --- literals ---------------------------------------------------------------------------------

    def number(self, token: Token, *, negative: bool) -> Constant:
        sign = "-" if negative else ""
        at = token.at - len(sign)
        if token.kind == "float":
            return Constant(at, float(sign + token.text))
        text = token.text.rstrip("uU")
        value = int(sign + text, 16 if "x" in text else 10)
        if token.kind == "uint":
            if value >= 2**64:
                self.refuse("invalid uint literal", at, syntax=False)
            return Constant(at, Uint(value))
        if not -(2**63) <= value < 2**63:
            self.refuse("invalid int literal", at, syntax=False)
        return Constant(at, value)

    def text(self, token: Token) -> str | bytes:
        prefix = re.match("[a-zA-Z]*", token.text)
        assert prefix is not None
        flags = prefix[0].lower()
        body = token.text[len(flags) :]
        size = 3 if body[:3] in ('"""', "'''") and len(body) >= 6 else 1
        body = body[size:-size]
        if "r" in flags:
            return body.encode() if "b" in flags else body
        if "\\" not in body:
            return body.encode() if "b" in flags else body
        return self.unescaped(body, token.at, binary="b" in flags)

    def unescaped(self, body: str, at: int, *, binary: bool) -> str | bytes:
        found = bytearray()
        here = 0
        while here < len(body):
            sign = body[here]
            here += 1
            if sign != "\\":
                found += sign.encode()
                continue
            code = body[here : here + 1]
            here += 1
            if code in _ESCAPES and code:
                found += _ESCAPES[code].encode()
                continue
            digits, base = {"x": (2, 16), "X": (2, 16), "u": (4, 16), "U": (8, 16)}.get(
                code, (3, 8)
            )
            if base == 8:
                here -= 1
            part = body[here : here + digits]
            here += digits
            try:
                number = int(part, base) if len(part) == digits else -1
                if number < 0 or (binary and code in ("u", "U")) or (binary and number > 255):
                    raise ValueError
                found += bytes([number]) if binary else chr(number).encode()
            except (ValueError, OverflowError):
                self.refuse(
                    f"invalid {'bytes' if binary else 'string'} literal: unable to unescape string",
                    at,
                    syntax=False,
                )
        return bytes(found) if binary else found.decode()


def _dotted(node: Node) -> str:
    if isinstance(node, Name):
        return node.name
    if isinstance(node, Select) and not node.test and not node.optional:
        before = _dotted(node.operand)
        return f"{before}.{node.field}" if before else ""
    return ""
