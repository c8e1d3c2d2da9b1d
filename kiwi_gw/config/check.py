"""Check a part of the data against its model; what is wrong becomes problems of the document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from kiwi_gw.config import error_wording
from kiwi_gw.config.document import Document, Path, resolve
from kiwi_gw.config.fields import at, branches, description, fields, is_secret, secret_at

M = TypeVar("M", bound=BaseModel)


def check(
    model: type[M], data: object, where: Path, document: Document, also_known: Iterable[str] = ()
) -> M | None:
    """Make the model of `data`, which stands at `where` in the document; None if there are problems.

    A substituted scalar that reads as a number is tried as text where text is wanted.
    also_known: keys of `data` that are legal but not of the model, for the hints.
    """
    data = {} if data is None and where else data
    before = len(document.problems)
    for path, item, noun in _taken_for_another(model, data, ()):
        hidden = (*where, *path) in document.substituted or secret_at(model, path)
        document.spoil((*where, *path), f"must be {noun}, not {error_wording.describe(item, hidden)}")
    for broken in document.broken:
        if broken[: len(where)] == where:
            data = _with(data, broken[len(where) :], None)  # reported already; kept from being quoted
    while True:
        try:
            made = model.model_validate(data)
        except ValidationError as error:
            details = error.errors(include_url=False)
            retry = data
            for path in _wanting_text(details, data):
                text = document.texts.get((*where, *path))
                if text is not None and not isinstance(_value(data, path), str):
                    retry = _with(retry, path, text)
            if retry is not data:
                data = retry
                continue
            _ErrorReport(model, data, where, document, tuple(also_known)).add(details)
            return None
        except Exception as error:  # noqa: BLE001  (a plugin's validator; the user needs the line)
            document.spoil(where, f"cannot be checked: {type(error).__name__} in the plugin that reads it")
            return None
        return made if len(document.problems) == before else None


class _ErrorReport:
    def __init__(
        self, model: type[BaseModel], data: object, where: Path, document: Document, also_known: Sequence[str]
    ) -> None:
        self._model, self._data, self._where, self._document = model, data, where, document
        self._also_known = also_known

    def add(self, details: Sequence[Any]) -> None:
        located = [(_locate(self._data, detail), detail) for detail in details]
        deep = {path[:length] for path, _ in located for length in range(len(path))}
        types: dict[Path, list[str]] = {}
        for path, detail in located:
            noun = error_wording.noun(detail["type"], detail.get("ctx", {}))
            if noun is None:
                if detail["type"] != "value_error" or not self._around_broken(path):
                    self._say(path, self._message(path, detail))
            elif path not in deep:  # else another branch of a union fits and is wrong further down
                types.setdefault(path, []).append(noun)
        for path, nouns in types.items():
            value = _value(self._data, path)
            self._say(path, error_wording.wrong_type(nouns, value, self._hidden(path)))

    def _say(self, path: Path, message: str) -> None:
        place = (*self._where, *path)
        if any(place[:length] in self._document.broken for length in range(len(place) + 1)):
            return
        self._document.complain(place, message)

    def _around_broken(self, path: Path) -> bool:
        """Return whether something below is wrong already: what a model says of the whole follows from it."""
        place = (*self._where, *path)
        return any(broken[: len(place)] == place for broken in self._document.broken)

    def _message(self, path: Path, detail: Any) -> str:
        kind: str = detail["type"]
        if kind == "extra_forbidden":
            known = [key for item in at(self._model, path[:-1]) for key in fields(item)]
            secrets = [
                f"{key}_file"
                for item in at(self._model, path[:-1])
                for key, field in fields(item).items()
                if is_secret(field.annotation)
            ]
            top = self._also_known if len(path) == 1 else ()
            return error_wording.unknown_key(str(path[-1]), dict.fromkeys([*known, *secrets, *top]))
        if kind == "missing":
            return "is missing" + self._description(path)
        hidden = self._hidden(path)
        return error_wording.other(detail["msg"], detail.get("ctx", {}), _value(self._data, path), hidden)

    def _description(self, path: Path) -> str:
        for item in at(self._model, path[:-1]):
            text = description(item, str(path[-1]))
            if text:
                return f": {text.strip().splitlines()[0].rstrip('.')}"
        return ""

    def _hidden(self, path: Path) -> bool:
        return (*self._where, *path) in self._document.substituted or secret_at(self._model, path)


def _wanting_text(details: Sequence[Any], data: object) -> list[Path]:
    return [_locate(data, detail) for detail in details if detail["type"] == "string_type"]


def _locate(data: object, detail: Any) -> Path:
    """Find an error in the data. Its own location also names branches of unions, which are left out."""
    path: list[str | int] = []
    here = data
    location = detail["loc"]
    for index, part in enumerate(location):
        if isinstance(here, dict) and isinstance(part, str):
            if part in here:
                path.append(part)
                here = here[part]
            elif detail["type"] == "missing" and index == len(location) - 1:
                path.append(part)
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            path.append(part)
            here = here[part]
    return tuple(path)


def _value(data: object, path: Path) -> object:
    for part in path:
        if isinstance(data, dict) and isinstance(part, str):
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int):
            data = data[part]
        else:
            return None
    return data


def _with(data: object, path: Path, value: object) -> object:
    """Return a copy with another value at `path`; what is not on the way is shared."""
    if not path:
        return value
    part, rest = path[0], path[1:]
    if isinstance(data, dict) and part in data:
        return {**data, part: _with(data[part], rest, value)}
    if isinstance(data, list) and isinstance(part, int) and part < len(data):
        return [*data[:part], _with(data[part], rest, value), *data[part + 1 :]]
    return data


def _taken_for_another(annotation: object, data: object, path: Path) -> list[tuple[Path, object, str]]:
    """Find where pydantic would read more than YAML 1.2 does, with what is wanted there: `true` as the number
    1, the text `1_0` as the number 10, the text `yes` as true."""
    found: list[tuple[Path, object, str]] = []
    items: Iterable[tuple[str | int, object]] = ()
    if isinstance(data, dict):
        items = data.items()
    elif isinstance(data, list):
        items = enumerate(data)
    for key, value in items:
        allowed = [kind for item in at(annotation, (key,)) for kind in branches(item)]
        if isinstance(value, (bool, str)):
            noun = _wanted_instead(value, allowed)
            if noun is not None and object not in allowed:
                found.append(((*path, key), value, noun))
        elif isinstance(value, (dict, list)):
            for kind in allowed:
                found.extend(_taken_for_another(kind, value, (*path, key)))
    return found


def _wanted_instead(value: bool | str, allowed: Sequence[object]) -> str | None:
    """Return `a number` or `true or false` if that is wanted and pydantic would make it of the value, which
    YAML 1.2 reads as something else; else None."""
    number = int in allowed or float in allowed
    if isinstance(value, bool):
        return "a number" if number and bool not in allowed else None
    if str in allowed:
        return None
    meant = resolve(value.strip())
    if isinstance(meant, (bool, int, float)):
        return None  # the text of a number or of a truth value, in quotes or from the environment
    if bool in allowed and value.strip().lower() in _WORDS_OF_YAML_1_1:
        return "true or false"
    if number:
        try:
            float(value)
        except ValueError:
            return None
        return "a number"
    return None


_WORDS_OF_YAML_1_1 = ("yes", "no", "on", "off", "y", "n", "t", "f", "true", "false")
