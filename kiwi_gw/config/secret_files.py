"""`password_file: /run/secrets/password` in place of `password`, for every secret key of every model."""

from __future__ import annotations

from kiwi_gw.config.document import Document, Path
from kiwi_gw.config.fields import fields, is_secret, step
from kiwi_gw.config.substitution import Substitution, SubstitutionError

SUFFIX = "_file"


def read_secret_files(
    annotation: object, data: object, where: Path, document: Document, files: Substitution
) -> None:
    """Replace, in place, the `*_file` twins in `data` (at `where` in the document) by what the files hold."""
    if isinstance(data, dict):
        for name, field in fields(annotation).items():
            if (
                is_secret(field.annotation)
                and name + SUFFIX in data
                and name + SUFFIX not in fields(annotation)
            ):
                _replace(name, data, where, document, files)
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in list(items):
        if isinstance(value, (dict, list)):
            for following in step(annotation, key):
                read_secret_files(following, value, (*where, key), document, files)


def _replace(
    name: str, data: dict[str, object], where: Path, document: Document, files: Substitution
) -> None:
    twin = name + SUFFIX
    here, there = (*where, name), (*where, twin)
    file = data.pop(twin)
    if file is None:
        return
    if data.get(name) is not None:
        document.spoil(here, f"both {name} and {twin} are given; keep one of them")
        return
    if there in document.broken:
        document.broken.add(here)
    elif not isinstance(file, str):
        document.spoil(there, "must be text: the path of a file that holds the secret")
        document.broken.add(here)
    else:
        if there in document.origins:
            document.origins[here] = document.origins[there]
        else:
            document.lines[here] = document.lines.get(there, 1)
        try:
            data[name] = files.read(file)
        except SubstitutionError as error:
            document.spoil(there, str(error))
            document.broken.add(here)
