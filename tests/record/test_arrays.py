"""Arrow arrays made and read through their buffers equal those of pyarrow."""

import numpy as np
import pyarrow as pa
import pytest

from spark_log.record.arrays import (
    binary_array,
    bool_array,
    bools_of,
    int_array,
    int_scalar,
    ints_of,
    text_array,
    text_scalar,
)


@pytest.mark.parametrize("values", [[], [b""], [b"a", None, b"bc"], [None, None]])
def test_byte_strings_become_a_binary_array(values):
    assert binary_array(values).equals(pa.array(values, pa.binary()))


@pytest.mark.parametrize("values", [[], [""], ["a", "größe", "\U0001f600"]])
def test_strings_become_a_string_array(values):
    made = text_array(values)
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.string()))


def test_a_string_becomes_a_scalar():
    assert text_scalar("größe").equals(pa.scalar("größe"))


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()])
def test_integers_become_arrays_of_both_widths(kind):
    for values in ([], [1, -2, 3], np.arange(5)):
        assert int_array(values, kind).equals(pa.array(list(values), kind))
    assert int_array([2**31 - 1], kind)[0].as_py() == 2**31 - 1


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()])
def test_an_integer_becomes_a_scalar(kind):
    assert int_scalar(-7, kind).equals(pa.scalar(-7, kind))


def test_an_integer_that_is_too_large_is_refused():
    with pytest.raises(OverflowError):
        int_array([2**31], pa.int32())
    with pytest.raises(OverflowError):
        int_scalar(2**31, pa.int32())


@pytest.mark.parametrize("values", [[], [True], [True, False] * 9])
def test_booleans_become_an_array(values):
    made = bool_array(np.array(values, np.bool_))
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.bool_()))


@pytest.mark.parametrize("of", [slice(None), slice(3, 15), slice(9, 9)])
def test_slices_are_read_as_numpy_and_null_as_zero(of):
    numbers = [None if at % 5 == 2 else at for at in range(20)]
    column = pa.array(numbers, pa.int32())[of]
    assert ints_of(column, np.int32).tolist() == [each or 0 for each in numbers[of]]
    truths = [at % 3 == 0 for at in range(20)]
    assert bools_of(pa.array(truths)[of]).tolist() == truths[of]
