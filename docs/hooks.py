"""What `make docs` does besides: files of the repository that pages link to, and llms.txt."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
SERVED = (
    "config/*.yml",
    "config/*.html",
    "config/monitoring/*",
    "benchmarks/results/*.svg",
    "deploy/compose/*.yml",
)
"""Files outside docs/ that pages may link to, as on a page of the repository: ../../config/zetta.yml."""

_pages: list[tuple[str, str, str, str]] = []
"""Section, title, address of the Markdown, first sentence."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Serve them below repository/."""
    _pages.clear()
    for pattern in SERVED:
        for path in sorted(ROOT.glob(pattern)):
            name = f"repository/{path.relative_to(ROOT)}"
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Note the pages in their order."""
    for item in nav.items:
        section, within = (item.title, item.children) if isinstance(item, Section) else ("", [item])
        _pages.extend((section, *_said(page)) for page in within if isinstance(page, Page))
    return nav


def _said(page: Page) -> tuple[str, str, str]:
    text = Path(str(page.file.abs_src_path)).read_text(encoding="utf-8")
    title, _, rest = text.removeprefix("# ").partition("\n")
    paragraph = " ".join(rest.strip().partition("\n\n")[0].split())
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", paragraph)
    return title, page.file.src_uri, re.split(r"(?<=[.:])\s", plain, maxsplit=1)[0]


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Let links to files of the repository lead to where they are served."""
    depth = page.file.src_uri.count("/")
    outside = re.compile(rf"\]\((?:\.\./){{{depth + 1}}}((?:config|benchmarks|deploy)/[^)#]+)\)")
    return outside.sub(lambda found: f"]({'../' * depth}repository/{found[1]})", markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Write llms.txt, and the Markdown of every page beside it."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    section = ""
    for heading, title, uri, first in _pages:
        if heading != section:
            lines += ["", f"## {heading}", ""]
            section = heading
        lines.append(f"- [{title}]({uri}): {first}")
        source = (Path(config.docs_dir) / uri).read_text(encoding="utf-8")
        (Path(config.site_dir) / uri).write_text(source, encoding="utf-8")
    (Path(config.site_dir) / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
