"""A Chromium for the tests of the page: the one that is here, else one that is fetched, once."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from filelock import FileLock
from playwright.sync_api import sync_playwright

PATH_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

APT = ("apt-get", "-qq", "-y")
PACKAGES = ("chromium", "fontconfig", "fonts-wqy-microhei")
DEBIAN = ((*APT, "update"), (*APT, "install", "--no-install-recommends", *PACKAGES))
"""Some 10 s, and 100 MB. Only for root: a container of CI, not somebody's machine."""

PLAYWRIGHT = ((sys.executable, "-m", "playwright", "install", "chromium"),)

NO_SANDBOX = ["--no-sandbox"]
"""It cannot make its sandbox as root or in a container, and meets nothing but our own page."""


def find_or_fetch() -> str:
    """Where Chromium is; empty if it is nowhere and could not be fetched. Only one process fetches at a time."""
    with FileLock(Path(tempfile.gettempdir()) / "fillmask-tests-chromium.lock"):
        if not (found() and chinese_font()):
            for command in DEBIAN if os.geteuid() == 0 and shutil.which("apt-get") else PLAYWRIGHT:
                subprocess.run(command, check=False, capture_output=True, timeout=100)
        return found()


def found() -> str:
    named = next((path for name in PATH_NAMES if (path := shutil.which(name))), "")
    if named:
        return named
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return own if Path(own).exists() else ""


def chinese_font() -> bool:
    """Without one a PDF has boxes in place of characters, and nothing can be read in it."""
    lister = shutil.which("fc-list")
    return bool(lister and subprocess.run((lister, ":lang=zh"), check=False, capture_output=True).stdout)
