"""Whether a pattern is one of the RE2 syntax, and what is wrong with it in the words of that
syntax's library.

Patterns of a HyperNode are written for RE2, whose syntax is not Python's: no look-around, no back
references, other escapes.  Compiling with `re` would accept what the cluster's other readers
refuse, so the grammar is walked here.
"""

from __future__ import annotations

import functools
import re

import re2

LARGEST_REPEAT = 1000

_REPEAT = re.compile(r"\{([0-9]+)(?:(,)([0-9]*))?\}")
_GROUP_NAME = re.compile(r"[A-Za-z0-9_]+\Z")
_FLAGS = re.compile(r"\(\?(?P<flags>[imsU]*(?:-[imsU]+)?)(?P<end>[:)])")
_SCRIPT = re.compile(
    r"\^?(?:Any|C[cfos]?|L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?|[A-Z][a-z]+(?:_[A-Z][a-z]+)*)\Z"
)
_POSIX = frozenset(
    [
        "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
        "xdigit",
    ]
)  # fmt: skip


@functools.lru_cache(maxsize=256)
def is_script(name: str) -> bool:
    """Whether `\\p{name}` stands for letters.  The library knows the table; what else its own words
    say is not Go's."""
    if not _SCRIPT.match(name):
        return False
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(rf"\p{{{name}}}", options)
    except re2.error:
        return False
    return True


class _Bad(Exception):
    def __init__(self, reason: str, fragment: str) -> None:
        super().__init__(f"error parsing regexp: {reason}: `{fragment}`")


def problem(pattern: str) -> str | None:
    """The error of the pattern; None if it is valid."""
    try:
        _Reader(pattern).read()
    except _Bad as bad:
        return str(bad)
    return None


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self.names: set[str] = set()

    def read(self) -> None:
        text = self.text
        can_repeat, repeat_start = False, -1
        while self.at < len(text):
            letter = text[self.at]
            repeat = self._repeat_end(letter)
            if repeat is not None:
                start = self.at
                if repeat < len(text) and text[repeat] == "?":
                    repeat += 1
                if repeat_start >= 0:
                    raise _Bad("invalid nested repetition operator", text[repeat_start:repeat])
                if not can_repeat:
                    raise _Bad("missing argument to repetition operator", text[start:repeat])
                self.at, repeat_start = repeat, start
                continue
            repeat_start = -1
            if self._flags():
                # Flags for what follows: what may be repeated is still what stands before them.
                continue
            can_repeat = self._atom(letter)
        if self.depth:
            raise _Bad("missing closing )", text)

    def _repeat_end(self, letter: str) -> int | None:
        """Where a repetition operator at the current place ends; None where there is none."""
        if letter in "*+?":
            return self.at + 1
        found = _REPEAT.match(self.text, self.at) if letter == "{" else None
        if found is None:
            return None
        low, high = int(found[1]), int(found[3]) if found[3] else None
        if low > LARGEST_REPEAT or (high is not None and (high > LARGEST_REPEAT or high < low)):
            raise _Bad("invalid repeat count", found[0])
        return found.end()

    def _flags(self) -> bool:
        """Step over a group of flags alone, if there is one."""
        flags = _FLAGS.match(self.text, self.at)
        if flags is None or flags["end"] != ")":
            return False
        self.at = flags.end()
        return True

    def _atom(self, letter: str) -> bool:
        """Step over one piece; whether what comes next may repeat it."""
        if letter == "(":
            return self._open()
        if letter == ")":
            if not self.depth:
                raise _Bad("unexpected )", self.text)
            self.depth -= 1
        elif letter == "[":
            self._bracket()
            return True
        elif letter == "\\":
            return self._escape_outside()
        self.at += 1
        return letter != "|"

    def _open(self) -> bool:
        text = self.text
        if not text.startswith("(?", self.at):
            self.depth, self.at = self.depth + 1, self.at + 1
            return False
        prefix = next(
            (prefix for prefix in ("(?P<", "(?<") if text.startswith(prefix, self.at)), None
        )
        if prefix:
            end = text.find(">", self.at)
            if end < 0:
                raise _Bad("invalid named capture", text[self.at :])
            name = text[self.at + len(prefix) : end]
            if not _GROUP_NAME.match(name):
                raise _Bad("invalid named capture", text[self.at : end + 1])
            if name in self.names:
                raise _Bad("duplicate capture group name", name)
            self.names.add(name)
            self.depth, self.at = self.depth + 1, end + 1
            return False
        flags = _FLAGS.match(text, self.at)
        if flags is None:
            known = 2
            while self.at + known < len(text) and text[self.at + known] in "imsU-":
                known += 1
            raise _Bad("invalid or unsupported Perl syntax", text[self.at : self.at + known + 1])
        self.depth += 1
        self.at = flags.end()
        return False

    def _escape_outside(self) -> bool:
        following = self.text[self.at + 1 : self.at + 2]
        if following == "Q":
            end = self.text.find("\\E", self.at + 2)
            self.at = len(self.text) if end < 0 else end + 2
            return True
        if following and following in "AbBz":
            self.at += 2
            return True
        self._escape()
        return True

    def _escape(self) -> str | None:
        """Step over an escape that stands for letters; the letter, or None where it is a class."""
        text, start = self.text, self.at
        if start + 1 >= len(text):
            raise _Bad("trailing backslash at end of expression", "")
        letter = text[start + 1]
        self.at = start + 2
        if letter in "dDsSwW":
            return None
        if letter in "pP":
            self._script(start)
            return None
        if letter in "01234567":
            octal = re.compile(r"[0-7]{1,3}").match(text, start + 1)
            assert octal is not None
            if letter == "0" or len(octal[0]) > 1:
                self.at = octal.end()
                return chr(int(octal[0], 8))
        elif letter == "x":
            found = re.compile(r"x(?:\{([0-9A-Fa-f]+)\}|([0-9A-Fa-f]{2}))").match(text, start + 1)
            if found is not None and int(found[1] or found[2], 16) <= 0x10FFFF:
                self.at = found.end()
                return chr(int(found[1] or found[2], 16))
            # As far as it was read when it turned out to be none.
            read = re.compile(r"x(?:\{[0-9A-Fa-f]*.?|[0-9A-Fa-f]?.?)", re.DOTALL).match(
                text, start + 1
            )
            assert read is not None
            raise _Bad("invalid escape sequence", text[start : read.end()])
        elif letter in "afnrtv":
            return {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}[letter]
        elif letter.isascii() and not letter.isalnum():
            return letter
        raise _Bad("invalid escape sequence", text[start : start + 2])

    def _script(self, start: int) -> None:
        text = self.text
        end = start + 3
        if text[start + 2 : start + 3] == "{":
            end = text.find("}", start) + 1
            if not end:
                raise _Bad("invalid character class range", text[start:])
        name = text[start + 2 : end].strip("{}")
        if not is_script(name):
            raise _Bad("invalid character class range", text[start:end])
        self.at = end

    def _bracket(self) -> None:
        text, start = self.text, self.at
        self.at += 2 if text.startswith("[^", start) else 1
        first = True
        while first or not text.startswith("]", self.at):
            if self.at >= len(text):
                raise _Bad("missing closing ]", text[start:])
            if text.startswith("[:", self.at):
                end = text.find(":]", self.at + 2)
                if end >= 0:
                    name = text[self.at + 2 : end].removeprefix("^")
                    if name not in _POSIX:
                        raise _Bad("invalid character class range", text[self.at : end + 2])
                    self.at, first = end + 2, False
                    continue
            self._range(start)
            first = False
        self.at += 1

    def _range(self, bracket: int) -> None:
        text, start = self.text, self.at
        low = self._bracket_letter(bracket)
        if low is None or not text.startswith("-", self.at) or text.startswith("-]", self.at):
            return
        if self.at + 1 >= len(text):
            raise _Bad("missing closing ]", text[bracket:])
        self.at += 1
        if text[self.at : self.at + 1] == "\\" and text[self.at + 1 : self.at + 2] in (
            "d",
            "D",
            "s",
            "S",
            "w",
            "W",
            "p",
            "P",
        ):
            raise _Bad("invalid escape sequence", text[self.at : self.at + 2])
        high = self._bracket_letter(bracket)
        if high is None or high < low:
            raise _Bad("invalid character class range", text[start : self.at])

    def _bracket_letter(self, bracket: int) -> str | None:
        if self.at >= len(self.text):
            raise _Bad("missing closing ]", self.text[bracket:])
        if self.text[self.at] == "\\":
            return self._escape()
        self.at += 1
        return self.text[self.at - 1]
