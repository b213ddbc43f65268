"""Plays the demo page in Chromium, in two windows, and checks what is on the screen.

demo_page.py <chromium> <address of the page> <certificate> <directory> [<directory of pictures>]

The browser trusts the certificate by a profile of its own and ignores no error. Prints "ok: N checks" at the end.
"""

import sys

from browsers import LIMIT, Checks, launch, picture, trust
from playwright.sync_api import expect, sync_playwright

chromium, address, certificate, directory = sys.argv[1:5]
pictures = sys.argv[5] if len(sys.argv) > 5 else None
expect.set_options(timeout=LIMIT)
EVIL = '<img src=x onerror="document.title=\'broken\'">'
check = Checks(address.split("/demo")[0])
watch, audit = check.watch, check.audit


def send(page, person, text):
    page.locator(f".{person} .chat form input[type=text]").last.fill(text)
    page.locator(f".{person} .chat > form .primary").click()


def row(page, person, text):
    return page.locator(f".{person} .messages li").filter(has_text=text).last


def ticks(page, person, text, status):
    check.count += 1
    expect(row(page, person, text).locator("tidemark-ticks")).to_have_attribute("status", status)


def choose(page, name, value):
    page.locator(f"input[name='{name}'][value='{value}']").check(force=True)


def play(first, second):
    """The conversation: Alice in one window, Bob and Carol in the other."""
    first.locator(".alice .group").click()
    send(first, "alice", "Shall we ship on Friday?")
    ticks(first, "alice", "Shall we ship", "delivered")
    second.locator(".bob .group").click()
    second.locator(".carol .group").click()
    ticks(first, "alice", "Shall we ship", "read")
    expect(row(first, "alice", "Shall we ship").locator("tidemark-ticks")).to_have_attribute("aria-label", "Read by 2")
    expect(row(second, "bob", "Shall we ship").locator("tidemark-unread-divider")).to_be_visible()

    # Text of users is never HTML.
    send(second, "bob", EVIL)
    expect(row(first, "alice", "onerror")).to_contain_text(EVIL)
    for page in (first, second):
        check(page.title() == "Tidemark demo", "a message ran as a script")

    # An acknowledgement with a note, and the sheet that shows it.
    first.locator(".alice .ask").click()
    send(first, "alice", "Please confirm the date")
    form = row(second, "carol", "Please confirm").locator("form")
    form.locator("input").fill("Yes " + EVIL)
    form.locator("button").click()
    expect(row(first, "alice", "Please confirm").locator(".count")).to_have_text("1 of 2 acknowledged")
    # The other window knows it too.
    first.locator(".carol .group").click()
    expect(row(first, "carol", "Please confirm").locator(".done")).to_be_visible()
    first.locator(".carol .icon").click()
    row(first, "alice", "Please confirm").locator("tidemark-readers").click()
    sheet = row(first, "alice", "Please confirm").locator("tidemark-readers dialog")
    expect(sheet.get_by_role("tab", name="Read", exact=False).first).to_have_attribute("aria-selected", "true")
    sheet.get_by_role("tab", name="Acknowledged", exact=False).first.click()
    expect(sheet.locator("q")).to_have_text("Yes " + EVIL)
    audit(first, "the sheet")
    first.keyboard.press("Escape")
    expect(sheet).to_have_count(0)

    # Offline: the message waits, and is sent when the connection is back. Marks wait too.
    choose(first, "mode-alice", "offline")
    send(first, "alice", "Sent without a connection")
    ticks(first, "alice", "Sent without", "pending")
    choose(first, "mode-alice", "online")
    ticks(first, "alice", "Sent without", "read")

    # Push only: the ticket of the push is enough for "delivered".
    choose(second, "mode-bob", "push")
    send(first, "alice", "Are you there?")
    expect(second.locator(".bob .notices")).to_contain_text("Are you there?")
    ticks(first, "alice", "Are you there?", "delivered")
    second.locator(".bob .locked .primary").click()
    ticks(first, "alice", "Are you there?", "read")

    # Hidden receipts: Bob reads, and nobody sees it.
    second.locator(".bob .settings summary").click()
    second.locator(".bob .switch input").first.uncheck()
    send(first, "alice", "Did you see this?")
    expect(row(second, "bob", "Did you see this?")).to_be_visible()
    expect(row(first, "alice", "Did you see this?").locator("tidemark-ticks")).to_have_attribute(
        "aria-label", "Read by 1"
    )
    second.locator(".bob .switch input").first.check()
    second.locator(".bob .settings summary").click()

    # Mark unread from a message: a badge, and the divider when the group is opened again.
    row(second, "carol", "Are you there?").get_by_role("button", name="Mark unread").click()
    expect(second.locator(".carol tidemark-badge")).to_have_attribute("aria-label", "2 unread messages")
    second.locator(".carol .group").click()
    expect(row(second, "carol", "Are you there?").locator("tidemark-unread-divider")).to_be_visible()

    # A thread has ticks of its own.
    row(second, "carol", "Shall we ship").get_by_role("button", name="Reply").click()
    send(second, "carol", "In a thread")
    ticks(second, "carol", "In a thread", "delivered")
    row(first, "alice", "Shall we ship").get_by_role("button", name="1 reply").click()
    ticks(second, "carol", "In a thread", "read")
    for page, person in ((first, "alice"), (second, "carol")):
        page.locator(f".{person} .icon").click()


def read_from_right_to_left(page):
    """As for readers of Arabic or Hebrew: own messages, and their ticks, are on the other side."""
    page.evaluate("document.documentElement.dir = 'rtl'")
    places = """line => {
      const box = (element) => element.getBoundingClientRect()
      const list = box(line.parentElement), bubble = box(line.querySelector('.bubble'))
      const ticks = box(line.querySelector('tidemark-ticks'))
      const isLeft = bubble.left - list.left < list.right - bubble.right
      return [isLeft, ticks.left >= bubble.left && ticks.right <= bubble.right]
    }"""
    found = row(page, "alice", "Shall we ship").evaluate(places)
    check(found == [True, True], f"right to left: {found}")
    row(page, "alice", "Please confirm").locator("tidemark-readers").click()
    sheet = row(page, "alice", "Please confirm").locator("tidemark-readers dialog")
    expect(sheet.get_by_role("tab").first).to_be_visible()
    first, second = (sheet.get_by_role("tab").nth(number).bounding_box()["x"] for number in range(2))
    check(first > second, "the sheet's tabs run from left to right")
    audit(page, "right to left")
    page.keyboard.press("Escape")
    width = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    check(width <= 0, f"right to left the page is {width} px too wide")
    page.evaluate("document.documentElement.removeAttribute('dir')")


def play_crowd(page):
    """A group of 500, whose guests read."""
    choose(page, "rule", "any")
    expect(page.locator(".alice .messages li")).to_have_count(0)
    choose(page, "size", "500")
    expect(page.locator(".crowd")).to_be_visible()
    send(page, "alice", "Hello, all 500!")
    ticks(page, "alice", "Hello, all", "read")
    message = row(page, "alice", "Hello, all").locator("tidemark-ticks")
    expect(message).to_have_attribute("aria-label", "Read by 2")
    page.locator(".crowd button").last.click()
    expect(message).to_have_attribute("aria-label", "Read by 499")


trust(certificate, directory)
with sync_playwright() as playwright:
    browser = launch(playwright, chromium, directory)
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme="light")
    first, second = context.new_page(), context.new_page()
    for page in (first, second):
        watch(page)
        page.goto(address)
        page.wait_for_selector("body[data-state=ready]")
        check("#" not in page.url, "the code stays in the address")
    play(first, second)
    first.locator(".bob .group").click()
    first.locator(".carol .group").click()
    audit(first, "light")
    picture(first, pictures, "demo-desk-light")
    first.emulate_media(color_scheme="dark")
    audit(first, "dark")
    picture(first, pictures, "demo-desk-dark")
    first.set_viewport_size({"width": 390, "height": 844})
    audit(first, "phone, dark")
    picture(first, pictures, "demo-phone-dark")
    first.emulate_media(color_scheme="light")
    picture(first, pictures, "demo-phone-light")
    width = first.evaluate("document.documentElement.scrollWidth")
    check(width <= 390, f"the page is {width} px wide on a phone of 390")
    first.set_viewport_size({"width": 1440, "height": 900})
    read_from_right_to_left(first)
    play_crowd(first)
    # Without the code there are no tokens.
    third = browser.new_context().new_page()
    watch(third)
    third.goto(address.split("#")[0] + "#wrong-code-of-twenty-two")
    expect(third.locator(".notice")).to_contain_text("tidemark run")
    browser.close()
check.end()
