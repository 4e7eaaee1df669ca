"""A headless Chromium for tests of the report page."""

from __future__ import annotations

import contextlib
import os
import shutil

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@contextlib.contextmanager
def chromium():
    """Yield playwright's browser with an installed Chromium; skips the test if there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium is installed (Debian: apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        # Chromium's sandbox does not run as root.
        root = hasattr(os, "geteuid") and os.geteuid() == 0
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"] if root else [])
        try:
            yield browser
        finally:
            browser.close()


def drawn(page) -> None:
    """Wait until the explorer has unpacked and drawn the chosen sentence."""
    page.locator("#explorer:not(:has([aria-busy=true]))").wait_for()


@contextlib.contextmanager
def opened(browser, path, fragment="", width=1300, **options):
    """Yield a page showing a file; fails if it writes to the console or requests other resources."""
    page = browser.new_page(viewport={"width": width, "height": 900}, **options)
    said, asked = [], []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    page.on("request", lambda request: asked.append(request.url))
    address = path.as_uri()
    page.goto(address + fragment)
    page.wait_for_selector("html[data-ready]")
    drawn(page)
    try:
        yield page
        assert said == []
        assert [url for url in asked if url.split("#")[0] != address and not url.startswith("data:")] == []
    finally:
        page.close()
