"""Environment variables and files inside scalars, in the syntax of Compose files.

| written | gives |
|---|---|
| `${V}` | the variable; an error if it is not set |
| `${V:-d}`, `${V-d}` | `d` if V is not set (`:-`: or empty) |
| `${V:?m}`, `${V?m}` | an error with the message `m` if V is not set (`:?`: or empty) |
| `${V:+x}`, `${V+x}` | `x` if V is set (`:+`: and not empty), else nothing |
| `${file:/path}` | what the file holds, without the line ends at its end |
| `$$` | a plain `$` |

`d`, `m`, `x` and the path may hold substitutions themselves; what a variable or a file holds is never
looked at again. Where `V` is not set but `V_FILE` is, the value is read from the file of that name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATORS = (":-", ":?", ":+", "-", "?", "+")
_DEEPEST = 16
_LARGEST_FILE = 1024 * 1024


class SubstitutionError(ValueError):
    """Report something that cannot be substituted; the message says what would be right."""


class Substitution:
    """Replace what is in `${...}`. `files`: every file that was read, in the order of first use;
    `unreadable`: whether one of them could not be."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.files: dict[Path, None] = {}
        self.unreadable = False

    def expand(self, text: str, depth: int = 0) -> str:
        """Return `text` with everything substituted. Raises SubstitutionError."""
        if depth > _DEEPEST:
            raise SubstitutionError(f"substitutions are nested more than {_DEEPEST} deep")
        pieces: list[str] = []
        position = 0
        while (dollar := text.find("$", position)) >= 0:
            pieces.append(text[position:dollar])
            following = text[dollar + 1 : dollar + 2]
            if following == "$":
                pieces.append("$")
                position = dollar + 2
            elif following == "{":
                end = _closing_brace(text, dollar + 2)
                pieces.append(self._value(text[dollar + 2 : end], depth))
                position = end + 1
            else:
                pieces.append("$")
                position = dollar + 1
        pieces.append(text[position:])
        return "".join(pieces)

    def read(self, path: str) -> str:
        """Return what a file of secrets holds, without the line ends at its end. Raises SubstitutionError."""
        file = Path(path)
        self.files[file] = None
        try:
            with file.open("rb") as stream:
                content = stream.read(_LARGEST_FILE + 1)
            if len(content) > _LARGEST_FILE:
                raise SubstitutionError(f"the file {path} is larger than 1 MiB")
            return content.decode().rstrip("\r\n")
        except OSError as error:
            self.unreadable = True
            raise SubstitutionError(f"the file {path} cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise SubstitutionError(f"the file {path} is not UTF-8 text") from error
        except ValueError as error:
            if isinstance(error, SubstitutionError):
                raise
            raise SubstitutionError(f"{path!r} is not the name of a file: {error}") from error

    def _value(self, expression: str, depth: int) -> str:
        # `${file:-x}` is a variable called `file` with a default, as in Compose.
        if expression.startswith("file:") and expression[5:6] not in ("-", "?", "+"):
            return self.read(self.expand(expression[5:], depth + 1))
        match = _NAME.match(expression)
        if match is None:
            raise SubstitutionError(f"'${{{expression}}}' names no variable; write $$ for a plain $")
        name, rest = match[0], expression[match.end() :]
        value = self._variable(name)
        if not rest:
            if value is None:
                raise SubstitutionError(
                    f"the environment variable {name} is not set; ${{{name}:-...}} gives it a default"
                )
            return value
        operator = next((item for item in _OPERATORS if rest.startswith(item)), None)
        if operator is None:
            raise SubstitutionError(
                f"'${{{expression}}}' is not understood; it may be ${{V}}, ${{V:-default}}, ${{V:?message}}, "
                "${V:+instead} or ${file:/path}"
            )
        argument = rest[len(operator) :]
        counts = value is not None and (value != "" or not operator.startswith(":"))
        if operator.endswith("+"):
            return self.expand(argument, depth + 1) if counts else ""
        if counts and value is not None:
            return value
        if operator.endswith("-"):
            return self.expand(argument, depth + 1)
        message = self.expand(argument, depth + 1) or "it is required"
        raise SubstitutionError(f"the environment variable {name} is not set: {message}")

    def _variable(self, name: str) -> str | None:
        value = self._environ.get(name)
        file = self._environ.get(f"{name}_FILE")
        if value and file:
            raise SubstitutionError(f"the environment has both {name} and {name}_FILE; keep one of them")
        if file and not value:
            return self.read(file)
        if value is not None and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise SubstitutionError(f"the environment variable {name} is not UTF-8 text") from error
        return value


def _closing_brace(text: str, start: int) -> int:
    """Return the index of the brace that ends the expression which begins at `start`."""
    depth = 1
    position = start
    while position < len(text):
        if text.startswith("$$", position):
            position += 2
            continue
        if text.startswith("${", position):
            depth += 1
            position += 2
            continue
        if text[position] == "}":
            depth -= 1
            if depth == 0:
                return position
        position += 1
    raise SubstitutionError(f"'{text[start - 2 :]}' has no closing brace; write $$ for a plain $")
