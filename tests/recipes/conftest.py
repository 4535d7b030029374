"""What tests of pages share."""

import pytest


@pytest.fixture(scope="module")
def browser():
    from tests.recipes.chromium import start

    driver = start()
    yield driver
    driver.quit()
