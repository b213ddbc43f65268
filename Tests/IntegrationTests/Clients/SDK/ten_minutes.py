"""Opens the page of docs/guides/ten-minutes.md as alice and as bob in Chromium, and sees alice's tick turn.

ten_minutes.py <chromium> <address of the page> <certificate> <directory> <address of the gateway>

Prints "ok: N checks" at the end.
"""

import sys

from browsers import LIMIT, Checks, launch, trust
from playwright.sync_api import expect, sync_playwright

chromium, address, certificate, directory, gateway = sys.argv[1:6]
expect.set_options(timeout=LIMIT)
check = Checks(address)
trust(certificate, directory)
with sync_playwright() as playwright:
    browser = launch(playwright, chromium, directory)
    alice, bob = (browser.new_context().new_page() for _ in range(2))
    for page in (alice, bob):
        page.set_default_timeout(LIMIT)
        page.on("pageerror", lambda error: check.problems.append(f"{error}"))
    alice.goto(f"{address}/?user=alice")
    expect(alice.locator("tidemark-ticks")).to_have_attribute("status", "sent")
    check(alice.locator("li").inner_text().startswith("Shall we ship"), "the message is not shown")
    bob.goto(f"{address}/?user=bob")
    expect(bob.locator("li")).to_be_visible()
    expect(alice.locator("tidemark-ticks")).to_have_attribute("status", "read")
    browser.close()
check.end()
