"""The rules of docs/protocol: their numbers are unique, and each cited rule exists.

Code, tests and simulations cite a rule as ``(protocol A3)``, or ``(protocol A3, W5)``.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
CHAPTERS = sorted(PROJECT.glob("docs/protocol/*.md"))
CITING = ("spark_log", "jobs", "benchmarks", "tests", "docs", "conf")

HEADING = re.compile(r'^#{2,3} <a id="([a-z]\d+)"></a>([A-Z]\d+)\. \S', re.MULTILINE)
CITATION = re.compile(r"\bprotocol[\s#*]+([A-Z]\d+(?:(?:,|,? and)[\s#*]+[A-Z]\d+)*)")
LETTER = re.compile(r"\| \[[^]]+\]\(([\w-]+\.md)\) \| ([A-Z]) \|")

SIMULATION = re.compile(r"^\*Simulation:\* (.+?)\.$", re.MULTILINE | re.DOTALL)
SIMULATED = re.compile(r'"([^"]+)"')


def rules(text: str) -> list[str]:
    """Return the numbers of the rules that a chapter states, with the anchor of each checked."""
    found = HEADING.findall(text)
    assert [anchor.upper() for anchor, _ in found] == [number for _, number in found]
    return [number for _, number in found]


def all_rules() -> list[str]:
    return [number for chapter in CHAPTERS for number in rules(chapter.read_text("utf-8"))]


def cited(text: str) -> set[str]:
    """Return the numbers of the rules that a text cites."""
    return {
        number for numbers in CITATION.findall(text) for number in re.findall(r"[A-Z]\d+", numbers)
    }


def citing_files() -> Iterator[Path]:
    for folder in CITING:
        for suffix in ("py", "pyi", "md"):
            yield from PROJECT.joinpath(folder).rglob(f"*.{suffix}")
    yield from PROJECT.glob("*.md")


def simulated_rules() -> set[str]:
    """Return the names of the rules that a simulation can leave out."""
    found: set[str] = set()
    modules = [
        path
        for top in ("spark_log", "tests")
        for path in PROJECT.joinpath(top).rglob("simulation/**/*.py")
    ]
    for path in modules:
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict):
                name = node.target.id if isinstance(node.target, ast.Name) else ""
                if name.endswith("_RULES"):
                    keys = [each for each in node.value.keys if isinstance(each, ast.Constant)]
                    found |= {str(key.value) for key in keys}
    return found


def test_each_number_is_given_once():
    numbers = all_rules()
    assert len(numbers) > 80
    assert [number for number, times in Counter(numbers).items() if times > 1] == []


def test_a_chapter_has_the_letter_that_the_index_says():
    index = (PROJECT / "docs/protocol/README.md").read_text("utf-8")
    letters = dict(LETTER.findall(index))
    assert letters.keys() == {chapter.name for chapter in CHAPTERS} - {"README.md"}
    for name, letter in letters.items():
        numbers = rules((PROJECT / "docs/protocol" / name).read_text("utf-8"))
        assert numbers == [f"{letter}{number}" for number in range(1, len(numbers) + 1)]


def test_each_cited_rule_exists():
    known = set(all_rules())
    here = Path(__file__)
    unknown = {
        f"{path.relative_to(PROJECT)}: {number}"
        for path in citing_files()
        if path != here
        for number in cited(path.read_text("utf-8")) - known
    }
    assert sorted(unknown) == []


def test_each_rule_of_a_simulation_belongs_to_a_rule_of_the_protocol():
    named = {
        " ".join(name.split())
        for chapter in CHAPTERS
        for rule in SIMULATION.findall(chapter.read_text("utf-8"))
        for name in SIMULATED.findall(rule)
    }
    simulated = simulated_rules()
    assert len(simulated) > 100
    assert sorted(named - simulated) == []
    assert sorted(simulated - named) == []


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("an append (protocol A3)", {"A3"}),
        ("two of them (protocol A3, W5)", {"A3", "W5"}),
        ("    # a line that is broken (protocol\n    # A3, and W12).", {"A3", "W12"}),
        ("the protocol has rules", set()),
        ("Kafka's protocol 3 and the protocol Arrow", set()),
    ],
)
def test_a_citation_is_found(text, numbers):
    assert cited(text) == numbers


def test_an_anchor_of_another_number_is_found():
    with pytest.raises(AssertionError):
        rules('## <a id="a1"></a>A2. A rule\n')
