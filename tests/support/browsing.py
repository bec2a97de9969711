"""Pages of ours in a real browser."""

import re
from pathlib import Path
from typing import Any


class Page:
    """A page that was loaded, and everything that went wrong in it."""

    def __init__(self, browser: Any, path: Path, width: int, scheme: str, motion: str = "no-preference"):
        size = {"width": width, "height": 900}
        context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion=motion)
        self.errors, self.requests = [], []
        self.page = context.new_page()
        self.page.on(
            "console", lambda line: self.errors.append(line.text) if line.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def colour(self, name: str) -> float:
        """Brightness of a colour of the page's body."""
        text = self.page.evaluate(f"getComputedStyle(document.body).{name}")
        return sum(map(int, re.findall(r"\d+", text)[:3])) / 3
