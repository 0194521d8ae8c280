"""The checker of the English of docstrings finds what only its author can complete."""

import pytest

from tests.english_contract import Module, Names, findings, unresolved


@pytest.fixture
def found(tmp_path):
    """Return a function that checks a docstring, and returns the advice."""

    def check(docstring):
        path = tmp_path / "module.py"
        path.write_text(f'"""{docstring}"""\n', encoding="utf-8")
        return [(each.line, each.advice) for each in findings(Module.read(path, Names()))]

    return check


@pytest.mark.parametrize("word", ["What", "Whose", "Who", "How", "Which", "Where"])
def test_a_docstring_that_is_a_clause(found, word):
    assert found(f"{word} a listing of the log showed.") == [(1, "begin with a noun or a verb")]


def test_a_docstring_that_is_a_question(found):
    assert found("Which of the two replicas is read?") == []


@pytest.mark.parametrize("text", ["of the log", "that was read", "whose files", "by which it is"])
def test_an_argument_without_a_noun(found, text):
    advice = "say what it is: 'path: the directory …'"
    assert found(f"Read.\n\nArgs:\n    path: {text}.\n") == [(4, advice)]
    assert found(f"A log.\n\nAttributes:\n    path (str): {text}.\n") == [(4, advice)]


def test_an_argument_with_a_noun(found):
    assert found("Read.\n\nArgs:\n    path: the directory of the log.\n") == []
    assert found("Read.\n\nReturns:\n    path: of the log.\n") == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Read, and go on.", 1),
        ("Read.\n\nThen it looks again.", 3),
        ("Read the file if it is there.", 1),
        ("Read.\n\nRaises:\n    SparkLogError: as of `observe`.\n", 4),
        ("Read it for whoever waits for it.", 1),
    ],
)
def test_words_that_are_banned(found, text, line):
    ((at, _),) = found(text)
    assert at == line


def test_docstrings_of_classes_functions_and_constants(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        '"""A module."""\n\nLIMIT = 3\n"""How many."""\n\n\n'
        'class Log:\n    """What a log is."""\n\n'
        '    def read(self):\n        """Where it is read."""\n',
        encoding="utf-8",
    )
    assert sorted(each.line for each in findings(Module.read(path, Names()))) == [4, 8, 11]


@pytest.mark.parametrize(
    ("name", "is_known"),
    [
        ("Log.append", True),
        ("append", True),
        ("Log.start", True),
        ("log.Log", True),
        ("Base.start", True),
        ("Base.append", False),
        ("Log.apend", False),
        ("nothing", False),
        ("ValueError", True),
    ],
)
def test_a_name_in_backquotes(tmp_path, name, is_known):
    path = tmp_path / "log.py"
    path.write_text(
        f'"""See `{name}`, ``nothing`` and `two words`."""\n\n\n'
        "class Base:\n    def __init__(self):\n        self.start = 0\n\n\n"
        "class Log(Base):\n    def append(self):\n        pass\n",
        encoding="utf-8",
    )
    names = Names()
    found = [each.text for each in unresolved(Module.read(path, names), names)]
    assert found == ([] if is_known else [f"`{name}`"])
