"""Make nodes of a tree, and count them: a client decides how deep a text is and how many parts it has."""

from __future__ import annotations

from typing import TypeVar

from kiwi_gw.query.errors import QueryError
from kiwi_gw.query.limits import MAX_DEPTH, MAX_NODES
from kiwi_gw.query.tree import Cast, FunctionCall, Literal, Node, Path

L = TypeVar("L", Literal, Path)


class NodeFactory:
    """Make the nodes of one text. Each is counted once, when it is made: its parts are known by then. One
    that is meant twice counts twice.

    All of it raises QueryError for a node that is too deep or has too many parts.
    """

    def __init__(self) -> None:
        self._left = MAX_NODES
        self._sizes: dict[int, tuple[int, int]] = {}  # by id, of each node: its parts, and how deep it is
        self._made: list[Node] = []  # so that no id is used again

    def leaf(self, node: L) -> L:
        """Count a node without parts, or a path of which a shorter one was read before."""
        self._sizes[id(node)] = 1, 1
        self._made.append(node)
        return node

    def call(self, name: str, position: int, *arguments: Node) -> FunctionCall:
        made = FunctionCall(name, arguments, position)
        self._count(made, arguments)
        return made

    def cast(self, value: Node, to: str, position: int) -> Cast:
        made = Cast(value, to, position)
        self._count(made, (value,))
        return made

    def negated(self, node: Node, position: int) -> FunctionCall:
        return self.call("not", position, node)

    def joined(self, name: str, nodes: list[Node]) -> Node:
        """Join conditions by AND or OR as a tree of low depth: both are associative."""
        if len(nodes) == 1:
            return nodes[0]
        half = len(nodes) // 2
        left, right = self.joined(name, nodes[:half]), self.joined(name, nodes[half:])
        return self.call(name, left.position, left, right)

    def use(self, node: Node) -> None:
        """Count a whole tree: those of one text have to keep the bound together."""
        self._left -= self._sizes[id(node)][0]
        if self._left < 0:
            raise QueryError("it has too many parts", node.position)

    def _count(self, node: Node, parts: tuple[Node, ...]) -> None:
        sizes = [self._sizes[id(part)] for part in parts]
        size = 1 + sum(size for size, _ in sizes)
        depth = 1 + max((depth for _, depth in sizes), default=0)
        if size > self._left:
            raise QueryError("it has too many parts", node.position)
        if depth > MAX_DEPTH:
            raise QueryError(f"it is nested more than {MAX_DEPTH} deep", node.position)
        self._sizes[id(node)] = size, depth
        self._made.append(node)
