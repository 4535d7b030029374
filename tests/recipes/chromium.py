"""A page as its users see it: served by this process, opened in a browser without a screen."""

import importlib.util
import shutil
import socket

from recipes import demo

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MISSING = [name for name in ("gradio", "selenium") if not importlib.util.find_spec(name)]
MISSING += [] if BROWSER and DRIVER else ["chromium and chromium-driver (of Debian)"]
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900")
SECONDS = 120  # that an answer may take: the first one compiles


def start():
    """The browser, which writes down all that it asks for."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for option in OPTIONS:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    return webdriver.Chrome(options, webdriver.ChromeService(DRIVER))


def served(folder):
    """The page of a folder, at a free port, until `close()`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return demo.serve(demo.Config(str(folder), port))


def wait(browser, condition, seconds=SECONDS):
    """What the condition gives as soon as that is true."""
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.support.ui import WebDriverWait

    ignored = [StaleElementReferenceException]
    return WebDriverWait(browser, seconds, 0.2, ignored).until(lambda _: condition())


def one(browser, selector):
    """The element of a CSS selector, once it is there."""
    return wait(browser, lambda: (browser.find_elements("css selector", selector) or [None])[0])


def type_in(browser, text):
    """Types a request and sends it."""
    box = one(browser, "#input textarea")
    box.clear()
    box.send_keys(text)
    one(browser, "#ask").click()


def message(browser):
    """The sentence on the answer."""
    return one(browser, "#message").text.strip()
