"""What all tests share."""

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="module")
def one_thread():
    """One thread for the linear algebra: on many small fits threads cost far more than they bring."""
    with threadpool_limits(1):
        yield
