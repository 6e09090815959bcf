"""Files of the project's root that are pages of the site as well."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PAGES = {
    "CHANGELOG.md": "project/changelog.md",
    "CODE_OF_CONDUCT.md": "project/code-of-conduct.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, target in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        text = text.replace("](docs/", "](../").replace("](research/", "](../../research/")
        for name, page in PAGES.items():
            text = text.replace(f"]({name})", f"]({Path(page).name})")
        files.append(File.generated(config, target, content=text))
    return files
