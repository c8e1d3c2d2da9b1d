"""A YAML file as plain data, with the line of everything in it.

Scalars are resolved by the rules of YAML 1.2 (`on` and `yes` are text, `010` is ten), keys are always text,
and there are no dates. Substitution happens in the parsed scalars, never in the text, so a value cannot add
keys, lists or lines. After it a plain scalar is resolved again (`${PORT}` gives a number); a quoted one stays
text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import yaml

from kiwi_gw.errors import Problem

Path = tuple[str | int, ...]
"""Where something is in the data: keys of mappings, indexes of lists."""

_PLAIN, _TEXT = "plain", "text"  # our own tags, for scalars without an explicit one
_STANDARD = "tag:yaml.org,2002:"
_CORE_TAGS = {_STANDARD + name for name in ("str", "int", "float", "bool", "null")}
_TAGGED = {"int": (int,), "float": (int, float), "bool": (bool,), "null": (type(None),)}
_MOST_NODES = 200_000
_DEEPEST = 50
_LARGEST_TEXT = 4 * 1024 * 1024

_INT = re.compile(r"[-+]?[0-9]{1,100}|0o[0-7]{1,100}|0x[0-9a-fA-F]{1,100}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, object] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}


@dataclass(frozen=True, slots=True)
class DocumentLocations:
    """Hold where everything in a document comes from.

    lines: of every path. blocks: of the first line of every literal block (`|`), whose lines are lines of the
    file. origins: environment variable by path, for what did not come from the file.
    """

    file: str
    lines: Mapping[Path, int]
    blocks: Mapping[Path, int]
    origins: Mapping[Path, str]

    def of(self, path: Path, line: int = 0) -> tuple[str, int]:
        """Return the file and the line (from 1) of what stands at `path`, or of the nearest thing around it.

        line: which line of a text, from 0. What came from the environment has the name of its variable
        instead of a file, and line 0.
        """
        near = path
        while near and near not in self.lines and near not in self.origins:
            near = near[:-1]
        if near in self.origins:
            return f"environment {self.origins[near]}", 0
        if near == path and path in self.blocks:
            return self.file, self.blocks[path] + line
        return self.file, self.lines.get(near, 1)


@dataclass(slots=True)
class Document:
    """Hold what was read, and what is wrong with it so far.

    data: mappings, lists, text, numbers, booleans and None; what could not be resolved is None.
    lines, blocks, origins: as in `DocumentLocations`.
    texts: by path, how a plain scalar with a substitution in it reads as text.
    substituted: paths whose value came from elsewhere and should not be quoted in a message.
    broken: paths whose value is already known to be wrong.
    """

    file: str
    data: object = None
    lines: dict[Path, int] = field(default_factory=dict)
    blocks: dict[Path, int] = field(default_factory=dict)
    origins: dict[Path, str] = field(default_factory=dict)
    texts: dict[Path, str] = field(default_factory=dict)
    substituted: set[Path] = field(default_factory=set)
    broken: set[Path] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)

    def complain(self, path: Path, message: str) -> None:
        """Add a problem, unless there already is one with the value at that path."""
        if path in self.broken:
            return
        file, line = DocumentLocations(self.file, self.lines, {}, self.origins).of(path)
        self.problems.append(Problem(file, line, dotted(path), message))

    @property
    def places(self) -> DocumentLocations:
        return DocumentLocations(self.file, self.lines, self.blocks, self.origins)

    def spoil(self, path: Path, message: str) -> None:
        """Add a problem that makes all others about that path pointless."""
        self.complain(path, message)
        self.broken.add(path)


def dotted(path: Path) -> str:
    """Return a path as people write it: `sources[2].topic`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if part.isprintable() and part else repr(part)
            text += f".{name}" if text else name
    return text


def resolve(text: str) -> object:
    """Read a plain scalar by the core schema of YAML 1.2."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def read(text: str, file: str, expand: Callable[[str], str]) -> Document:
    """Read the one document in `text`. Never raise: what is wrong is in `problems`.

    expand: the substitution for one scalar; raises ValueError with the message to show.
    """
    document = Document(file)
    if len(text) > _LARGEST_TEXT:
        document.problems.append(Problem(file, 1, "", "is larger than 4 MiB"))
        return document
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        message = f"holds the character U+{ord(text[error.position]):04X}, which YAML does not allow"
        document.problems.append(Problem(file, line, "", message))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line if mark else 0
        message = _syntax(error, "".join(text.split("\n")[line : line + 1]))
        document.problems.append(Problem(file, line + 1, "", message))
    except RecursionError:
        document.problems.append(Problem(file, 1, "", f"is nested more than {_DEEPEST} deep"))
    else:
        if node is not None:
            document.lines[()] = node.start_mark.line + 1
            document.data = _DataBuilder(document, expand).value(node, ())
    finally:
        if loader is not None:
            loader.dispose()
    return document


def _syntax(error: yaml.MarkedYAMLError, line: str) -> str:
    if error.context == "expected a single document in the stream":
        return "a second YAML document begins here; the file may hold only one"
    words = ", ".join(part for part in (error.context, error.problem) if part)
    if "'\\t'" in words:
        words += " (indent with blanks, not with tabs)"
    if "but got '{'" in words and "${" in line:
        words += " (between brackets, ${...} must be in quotes)"
    return f"is not valid YAML: {words}"


class _Loader(yaml.SafeLoader):
    """Compose nodes and mark plain scalars, which YAML 1.1's rules would resolve too early."""

    def resolve(self, kind: type[yaml.Node], value: str | None, implicit: object) -> str:
        if kind is yaml.ScalarNode:
            return _PLAIN if isinstance(implicit, tuple) and implicit[0] else _TEXT
        return _STANDARD + ("map" if kind is yaml.MappingNode else "seq")


class _DataBuilder:
    def __init__(self, document: Document, expand: Callable[[str], str]) -> None:
        self._document = document
        self._expand = expand
        self._nodes = 0

    def value(self, node: yaml.Node, path: Path) -> object:
        if not self._count():
            return None
        if len(path) > _DEEPEST:
            self._document.spoil(path[:-1], f"is nested more than {_DEEPEST} deep")
            return None
        if isinstance(node, yaml.MappingNode) and node.tag == _STANDARD + "map":
            return self._mapping(node, path, {}, 0)
        if isinstance(node, yaml.SequenceNode) and node.tag == _STANDARD + "seq":
            items: list[object] = []
            for index, item in enumerate(node.value):
                self._document.lines[(*path, index)] = item.start_mark.line + 1
                items.append(self.value(item, (*path, index)))
            return items
        if isinstance(node, yaml.ScalarNode) and node.tag in (_PLAIN, _TEXT, *_CORE_TAGS):
            return self._scalar(node, path)
        self._document.spoil(path, f"the tag {node.tag!r} is not allowed here")
        return None

    def _count(self) -> bool:
        """Count one more value (an alias as often as it is used); return False when there are too many."""
        self._nodes += 1
        if self._nodes == _MOST_NODES:
            self._document.complain((), f"has more than {_MOST_NODES:,} values, its aliases resolved")
        return self._nodes < _MOST_NODES

    def _mapping(
        self, node: yaml.MappingNode, path: Path, known: dict[str, object], depth: int
    ) -> dict[str, object]:
        """Build a mapping. `known`: what a mapping that merges this one has already, and which therefore
        wins. `depth`: how many merges led here; a mapping may merge itself."""
        found = dict(known)
        own: dict[str, int] = {}
        merged: list[yaml.Node] = []
        for key, value in node.value:
            line = key.start_mark.line + 1
            name = _joined(key.value) if isinstance(key, yaml.ScalarNode) else None
            if name is None:
                self._document.complain(path, f"a key in line {line} is not plain text")
            elif name == "<<" and key.tag == _PLAIN:
                merged.append(value)
            elif name in own:
                self._document.lines.setdefault((*path, name), line)
                self._twice((*path, name), line, own[name])
            else:
                own[name] = line
                if name not in known:
                    self._document.lines[(*path, name)] = line
                    found[name] = self.value(value, (*path, name))
        for value in merged:
            for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(source, yaml.MappingNode):
                    self._document.complain(path, "'<<' merges mappings only")
                elif depth == _DEEPEST:
                    self._document.spoil(path, "'<<' merges a mapping into itself")
                elif self._count():
                    found = self._mapping(source, path, found, depth + 1)
        return found

    def _twice(self, path: Path, line: int, first: int) -> None:
        message = f"is given twice (first in line {first})"
        self._document.problems.append(Problem(self._document.file, line, dotted(path), message))

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> object:
        text = _joined(node.value)
        if text is None:
            self._document.spoil(path, "holds half of a surrogate pair, which is not text")
            return None
        literal = node.style == "|"
        if "$" in text:
            try:
                expanded = self._expand(text)
            except ValueError as error:
                self._document.spoil(path, str(error))
                return None
            if expanded != text:
                self._document.substituted.add(path)
                literal = literal and expanded.count("\n") == text.count("\n")
            if node.tag == _PLAIN:
                self._document.texts[path] = expanded
            text = expanded
        if literal:
            self._document.blocks[path] = node.start_mark.line + 2  # behind the line of the `|`
        if node.tag in (_TEXT, _STANDARD + "str"):
            return text
        value = resolve(text)
        wanted = node.tag.removeprefix(_STANDARD)
        if wanted in _TAGGED and type(value) not in _TAGGED[wanted]:
            self._document.spoil(path, f"is not what its tag '!!{wanted}' says")
            return None
        return value


def _joined(text: str) -> str | None:
    """Make one character of each surrogate pair (JSON's way to escape what is beyond 16 bits); return None if
    half of a pair stands alone."""
    if not any("\ud800" <= character <= "\udfff" for character in text):
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        return None
