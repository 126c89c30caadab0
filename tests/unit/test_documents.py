"""The documents: their links lead to headings that exist, and what they say about the files is so."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ARCHITECTURE = ROOT / "docs" / "architecture.md"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def without_examples(page):
    """The lines of a page that are text: no indented block, no fenced block."""
    text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text())
    return "\n".join(line for line in text.splitlines() if not line.startswith("    "))


def anchors(page):
    headings = re.findall(r"(?m)^#+ (.+)$", without_examples(page))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_link_of_a_document_leads_somewhere(page):
    links = re.findall(r"\]\(([^)\s]+)\)", without_examples(page))
    for link in (link for link in links if "://" not in link):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_readme_names_every_document():
    named = re.findall(r"\]\(docs/([\w-]+\.md)\)", (ROOT / "README.md").read_text())
    assert sorted(named) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))


def test_every_document_that_the_code_names_exists():
    files = [path for folder in ("pinner", "api", "etc", "tools") for path in (ROOT / folder).rglob("*.py")]
    named = {name for path in files for name in re.findall(r"(?<![\w/.])docs/[\w-]+\.md", path.read_text())}
    assert {"docs/checks.md", "docs/remedies.md"} <= named
    assert all((ROOT / name).exists() for name in named)


FOLDERS = [path.parent for path in (ROOT / "pinner").glob("*/__init__.py")]


def packages(folder):
    """The rooms of a package, at every depth: ``host``, ``commands/host``."""
    return {str(init.parent.relative_to(folder)) for init in folder.rglob("__init__.py")} - {"."}


def test_the_architecture_names_every_package_of_pinner_and_no_other():
    rooms = re.findall(r"(?m)^\| (`pinner/.+?) \|", ARCHITECTURE.read_text())
    named = {name for row in rooms for name in re.findall(r"`pinner/([\w/]+)/`", row)}
    assert {folder.name for folder in FOLDERS} <= named
    assert {name for name in named if not (ROOT / "pinner" / name).is_dir()} == set()
    single = {name for row in rooms for name in re.findall(r"`pinner/(\w+)\.py`", row)}
    assert single == {path.stem for path in (ROOT / "pinner").glob("*.py")} - {"__init__"}


LARGE = re.findall(r"(?m)^\| `(\w+)/` \| (.+) \| (.+) \|$", ARCHITECTURE.read_text())


@pytest.mark.parametrize(("name", "top", "rooms"), LARGE, ids=[row[0] for row in LARGE])
def test_the_architecture_names_the_modules_and_rooms_of_each_large_folder(name, top, rooms):
    folder = ROOT / "pinner" / name
    assert set(re.findall(r"`(\w+)`", top)) == {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert set(re.findall(r"`([\w/]+)/`", rooms)) == packages(folder)


def test_the_architecture_lists_every_folder_with_rooms():
    folders = {folder.name for folder in FOLDERS if packages(folder)}
    assert {name for name, _top, _rooms in LARGE} == folders - {"migrations"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_example_of_a_setting_has_a_comment_behind_its_value(page):
    """oslo.config, and the hook script, take the comment for a part of the value: nova-compute would not start."""
    assert re.findall(r"(?m)^    (?:# )?[a-z_]+ = .* #.*$", page.read_text()) == []
