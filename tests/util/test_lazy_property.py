"""Properties that are read once, and hold up nobody."""

from threading import Event, Thread

from spark_log.util.lazy_property import lazy


class File:
    def __init__(self, answers):
        self.answers = answers
        self.reads = 0

    @lazy
    def size(self):
        """Its size."""
        self.reads += 1
        assert self.answers.wait(timeout=60)
        return 7


def answered():
    event = Event()
    event.set()
    return event


def test_the_value_is_read_once():
    file = File(answered())
    assert (file.size, file.size, file.reads) == (7, 7, 1)


def test_an_object_that_gets_no_answer_holds_up_no_other_one():
    hanging = File(Event())
    thread = Thread(target=lambda: hanging.size)
    thread.start()
    try:
        assert File(answered()).size == 7
    finally:
        hanging.answers.set()
        thread.join()


def test_it_has_the_documentation_of_its_function():
    assert File.__dict__["size"].__doc__ == "Its size."
