"""The pages as the tests of the docs see them: sections, links, anchors; text without marks, code and links."""

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
MARKS = re.compile(r"<!--.*?-->", re.DOTALL)
FACT = re.compile(r"<!-- fact: .+? -->.*?<!-- /fact -->", re.DOTALL)
FENCED = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"(!?)\[[^\]]*\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)


def pages() -> list[Path]:
    """README.md and all of docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def sections(page: str, level: int) -> dict[str, str]:
    """Heading of this level -> the text below it, up to the next heading of this level or a higher one."""
    found, lines = {}, re.split(rf"^(#{{1,{level}}}) (.+)$", FENCED.sub(_blank_hashes, page), flags=re.MULTILINE)
    for hashes, title, text in zip(lines[1::3], lines[2::3], lines[3::3], strict=True):
        if len(hashes) == level:
            found[title] = text
    return found


def _blank_hashes(match: re.Match[str]) -> str:
    """A comment in a shell's listing is no heading."""
    return re.sub(r"^#", " ", match[0], flags=re.MULTILINE)


def prose(text: str) -> str:
    """What the author wrote by hand: no facts, no code, no addresses of links."""
    for pattern, instead in ((FACT, " "), (FENCED, ""), (MARKS, ""), (CODE, "`")):
        text = pattern.sub(instead, text)
    return re.sub(r"\]\([^()\s]+\)", "]", text)


def anchors(page: str) -> set[str]:
    """The anchors that GitHub gives to headings."""
    counts: Counter[str] = Counter()
    found = set()
    for title in HEADING.findall(FENCED.sub("", page)):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").replace("*", "")
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        found.add(slug if not counts[slug] else f"{slug}-{counts[slug]}")
        counts[slug] += 1
    return found


def broken_links(path: Path) -> list[str]:
    """Relative links of a page to files or anchors that there aren't."""
    page = path.read_text(encoding="utf-8")
    broken = []
    for _, link in LINK.findall(CODE.sub("", FENCED.sub("", page))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = path if not name else (path.parent / name).resolve()
        if not target.exists() or not target.is_relative_to(path.parents[0] if ROOT not in path.parents else ROOT):
            broken.append(f"{link}: no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8")):
            broken.append(f"{link}: no such heading")
    return broken
