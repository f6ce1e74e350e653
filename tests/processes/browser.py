"""A real browser without a window, for pages that lie in files."""

from pathlib import Path
from typing import Any

from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

WIDE, NARROW = 1300, 360  # pixels: a desk, and a telephone
HEIGHT = 900


class Browser:
    """Opens one page after another."""

    def __init__(self, profile: Path) -> None:
        options = Options()
        options.binary_location = "/usr/bin/chromium"
        for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", f"user-data-dir={profile}"):
            options.add_argument(f"--{flag}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        # Any, because part of Selenium has no types.
        self._driver: Any = Chrome(options, Service("/usr/bin/chromedriver"))

    def open(self, path: Path, width: int = WIDE, *, dark: bool = False) -> None:
        """Show a page as a reader sees it, with all that is folded away unfolded."""
        self.resize(width)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self._driver.get(path.resolve().as_uri())
        self.ask("document.querySelectorAll('details').forEach(each => each.open = true)")

    def resize(self, width: int) -> None:
        """Give the page so much room; a window itself cannot be as narrow as a telephone."""
        size = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def ask(self, script: str, *arguments: object) -> Any:
        """What a script in the page returns."""
        return self._driver.execute_script(script, *arguments)

    def press(self, *keys: str) -> None:
        """Type these keys, one after another, into what has the focus."""
        ActionChains(self._driver).send_keys(*keys).perform()

    def roles(self) -> list[str]:
        """What each part of the page is to those who have it read out."""
        tree = self._driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})
        return [str(node["role"]["value"]) for node in tree["nodes"] if not node.get("ignored")]

    @property
    def title(self) -> str:
        """The page's."""
        return str(self._driver.title)

    def text(self) -> str:
        """All that a reader sees, each paragraph in a line."""
        return str(self.ask("return document.body.innerText"))

    def complaints(self) -> list[str]:
        """The browser's own warnings and errors since the last call."""
        told = self._driver.get_log("browser")
        return [entry["message"] for entry in told if entry["level"] in ("WARNING", "SEVERE")]

    def close(self) -> None:
        """End it."""
        self._driver.quit()
