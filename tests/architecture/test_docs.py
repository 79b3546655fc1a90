"""Documentation: every link leads somewhere, every path that is named exists."""

import re
from urllib.parse import unquote

from tests.architecture.sources import ROOT, documents, say, tracked

LINK = re.compile(r"(?<!`)!?\[[^\]]*\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`((?:tenure|services|simulator|deploy|examples|proto|tests|docs)/[\w./-]+)`")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """The anchors that a page's headings make."""
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()).strip() for heading in HEADING.findall(text))
    return {heading.replace(" ", "-") for heading in plain}


def test_links_lead_somewhere() -> None:
    found = []
    for name in documents():
        page = ROOT / name
        text = page.read_text()
        for link in (first or second for first, second in LINK.findall(FENCE.sub("", text))):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = unquote(link).partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists():
                found.append(f"{name}: {link} is not there")
            elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()):
                found.append(f"{name}: {link} names no heading")
    assert not found, say("links", found)


def test_paths_that_are_named_exist() -> None:
    known = tracked()
    folders = {"/".join(name.split("/")[:depth]) for name in known for depth in range(1, name.count("/") + 1)}
    found = []
    for name in documents():
        for path in NAMED.findall((ROOT / name).read_text()):
            if path.rstrip("/") not in folders and path not in known and not (ROOT / path).exists():
                found.append(f"{name}: `{path}`")
    assert not found, say("not in the repository", found)


def test_every_decision_is_listed() -> None:
    listed = (ROOT / "docs/decisions/README.md").read_text()
    files = [name.rpartition("/")[2] for name in tracked() if re.match(r"docs/decisions/\d{4}-[\w-]+\.md$", name)]
    assert files
    assert not [name for name in files if f"]({name})" not in listed]
    numbers = [name[:4] for name in files]
    assert len(set(numbers)) == len(numbers), "a decision's number is its own"
