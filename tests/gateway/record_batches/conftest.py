"""Both ways to read and write records."""

import pytest

from spark_log.gateway.record_batches import NUMPY_CODEC, RecordCodec, native_codec


@pytest.fixture(params=["native", "numpy"])
def codec(request) -> RecordCodec:
    if request.param == "numpy":
        return NUMPY_CODEC
    native = native_codec()
    if native is None:
        pytest.skip("the C module was not compiled: python setup.py build_ext --inplace")
    return native
