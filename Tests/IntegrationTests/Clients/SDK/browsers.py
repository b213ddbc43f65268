"""Chromium for the scripts of this folder: it trusts the certificate of a gateway by a profile of its own."""

import os
import subprocess

from axe_playwright_python.sync_playwright import Axe

# The longest wait of a page, in milliseconds.
LIMIT = 60_000


def trust(certificate, directory):
    """Make a home directory whose certificate database trusts a certificate."""
    database = f"sql:{directory}/.pki/nssdb"
    os.makedirs(f"{directory}/.pki/nssdb")
    subprocess.run(["certutil", "-N", "-d", database, "--empty-password"], check=True)
    subprocess.run(["certutil", "-d", database, "-A", "-t", "P,,", "-n", "tidemark", "-i", certificate], check=True)


def launch(playwright, chromium, directory):
    """Start Chromium with that home directory. It ignores no error of a certificate."""
    return playwright.chromium.launch(
        executable_path=chromium,
        # Root cannot use the sandbox; the pages are our own.
        args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking"],
        env={**os.environ, "HOME": directory},
    )


class Checks:
    """Counts what was checked, and collects what no page may do: errors, violations of its policy, other hosts."""

    def __init__(self, origin):
        self.origin = origin
        self.count = 0
        self.problems = []

    def __call__(self, is_right, what):
        self.count += 1
        assert is_right, what

    def watch(self, page):
        page.set_default_timeout(LIMIT)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("console", self._written)
        page.on("request", self._requested)

    def _written(self, message):
        if "Content Security Policy" in message.text:
            self.problems.append(message.text)

    def _requested(self, request):
        if not request.url.startswith((self.origin + "/", "data:", "blob:")):
            self.problems.append(request.url)

    def audit(self, page, what):
        """Check the page's accessibility with the rules of WCAG 2.2, AA."""
        # Colours change over 180 ms.
        page.wait_for_timeout(400)
        results = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]})
        self(results.violations_count == 0, f"{what}: {results.generate_report()}")

    def end(self):
        """Check that nothing forbidden has happened, and say how much was checked."""
        self(not self.problems, self.problems)
        print(f"ok: {self.count} checks")


def picture(page, directory, name):
    """Take a picture of the page, if there is a directory for it."""
    if directory:
        page.wait_for_timeout(400)
        page.screenshot(path=f"{directory}/{name}.png")
