"""Settings for the tests of recipes."""

import pytest

from recipes import folder


@pytest.fixture(autouse=True, scope="session")
def memory_given_back():
    """A run tells the C library to keep what it frees; tests of other things come after it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder, "keep_freed_memory", lambda: None)
        yield
