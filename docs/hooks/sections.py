"""Sections whose folder has no pages are left out of the navigation."""

import pathlib


def on_config(config):
    pages = pathlib.Path(config.docs_dir)
    config.nav = [entry for entry in config.nav if _is_there(pages, entry)]
    return config


def _is_there(pages, entry):
    path = entry if isinstance(entry, str) else next(iter(entry.values()))
    if isinstance(path, list):
        return any(_is_there(pages, page) for page in path)
    made = path in ("reference/", "changelog.md", "contributing.md")
    return made or any(pages.glob(f"{path}*.md" if path.endswith("/") else path))
