"""Plays the console in Chromium, and checks what is on the screen.

console.py <chromium> <address of the gateway> <certificate> <directory> <file of a server token> <link>
           [<directory of pictures>]

The link is what `tidemark console` has printed. Prints "ok: N checks" at the end.
"""

import json
import re
import subprocess
import sys
from urllib.parse import quote

from browsers import LIMIT, Checks, launch, picture, trust
from playwright.sync_api import expect, sync_playwright

chromium, gateway, certificate, directory, token_file, link = sys.argv[1:7]
pictures = sys.argv[7] if len(sys.argv) > 7 else None
expect.set_options(timeout=LIMIT)
check = Checks(gateway)
EVIL = "<img src=x onerror=\"document.title='broken'\">"
CID = "messaging:launch"
token = open(token_file, encoding="utf-8").read().strip()


def curl(*arguments):
    command = ["curl", "-sS", "--http2", "--cacert", certificate, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done
    return done.stdout


def call(method, path, body):
    content = ["-H", "content-type: application/json", "-d", json.dumps(body)]
    curl("--fail-with-body", "-X", method, gateway + "/v1" + path, "-H", f"authorization: Bearer {token}", *content)


def fill():
    """A channel whose members have each another reason not to have read m35."""
    admin = {"user_id": "dave", "role": "admin"}
    members = ["alice", "bob", "carol", admin, "erin", "Zoë", "auth0|5f7c", EVIL, "greta"]
    call("PUT", "/feed/consumers/search", {"from": "earliest"})
    call("PUT", f"/channels/{CID}", {"members": members})
    for number in range(1, 41):
        sender = "bob" if number % 3 == 0 and number < 36 else "alice"
        call("POST", f"/channels/{CID}/messages", {"id": f"m{number}", "user_id": sender})
        if number == 36:
            call("POST", f"/channels/{CID}/members", {"add": ["late"]})
    call("POST", f"/channels/{CID}/messages", {"id": EVIL, "user_id": "alice", "receipt": True})
    call("POST", f"/channels/{CID}/messages", {"id": "reply", "user_id": "bob", "parent_id": "m10"})
    call("POST", f"/channels/{CID}/read", {"user_id": "bob", "message_id": "m38"})
    call("POST", f"/channels/{CID}/read", {"user_id": "carol", "message_id": "m20"})
    call("POST", f"/channels/{CID}/unread", {"user_id": "carol", "message_id": "m15"})
    # Marked unread, and read again since.
    call("POST", f"/channels/{CID}/read", {"user_id": "greta", "message_id": "m20"})
    call("POST", f"/channels/{CID}/unread", {"user_id": "greta", "message_id": "m15"})
    call("POST", f"/channels/{CID}/read", {"user_id": "greta", "message_id": "m36"})
    call("POST", f"/channels/{CID}/read", {"user_id": "erin", "message_id": "m40"})
    hidden = {"privacy_settings": {"read_receipts": {"enabled": False}}}
    call("PUT", "/users/erin", hidden)
    call("POST", "/channels/delivered", {"latest_delivered_messages": [{"cid": CID, "id": "m40"}], "user_id": "dave"})
    call("POST", f"/channels/{CID}/receipts", {"user_id": "bob", "message_ids": [EVIL], "note": EVIL})
    call("PUT", "/channel-types/support", {"history": "hidden", "status_rule": "50%"})


def open_view(page, *pieces):
    page.goto(f"{gateway}/console#/" + "/".join(quote(piece, safe="") for piece in pieces))
    expect(page.locator("main:not([aria-busy])")).to_be_visible()


def row(page, user):
    return page.locator(".picture tbody tr").filter(has=page.get_by_role("button", name=user, exact=True))


def reasons(page, user):
    """Choose a member, and return the codes of the reasons."""
    field = page.locator(".why input")
    field.fill(user)
    field.press("Enter")
    expect(page.locator(".why .inline a")).to_have_text(user)
    expect(page.locator(".reasons li").first).to_be_visible()
    return [entry.get_attribute("data-code") for entry in page.locator(".reasons li").all()]


def show_reasons(page):
    open_view(page, "message", CID, "m35")
    expect(page.locator(".why")).to_contain_text("of 8 have read it")
    expected = {
        "alice": ["own_message"],
        "bob": ["read"],
        "carol": ["marked_unread", "not_reached", "not_delivered", "push_not_known"],
        "dave": ["not_reached", "delivered", "not_opened"],
        "erin": ["hides_reads"],
        "greta": ["read"],
        "Zoë": ["not_reached", "not_delivered", "push_not_known"],
        "late": ["not_expected"],
        EVIL: ["not_reached", "not_delivered", "push_not_known"],
        "nobody": ["not_a_member"],
    }
    for user, codes in expected.items():
        found = reasons(page, user)
        check(found == codes, f"{user}: {found}")
    # What erin hides is in no other place of the view: she has read m40.
    check("40" not in row(page, "erin").inner_text().split(), row(page, "erin").inner_text())
    open_view(page, "message", CID, "reply")
    found = reasons(page, "Zoë")
    check(found == ["not_in_thread"], f"a reply: {found}")
    open_view(page, "message", CID, "m39")
    check(reasons(page, "greta")[0] == "not_reached", "greta has marked nothing unread since")
    # A live read changes the reasons that are shown.
    open_view(page, "message", CID, "m36")
    check(reasons(page, "Zoë")[0] == "not_reached", "Zoë")
    expect(page.locator(".state.on")).to_be_visible()
    call("POST", f"/channels/{CID}/read", {"user_id": "Zoë", "message_id": "m37"})
    expect(page.locator(".reasons li")).to_have_count(1)
    expect(page.locator(".reasons li")).to_have_attribute("data-code", "read")
    open_view(page, "message", CID, "m35")
    reasons(page, "carol")
    expect(page.locator(".reasons")).to_contain_text("marked the channel unread from m15")
    expect(page.locator(".reasons .unknown")).to_contain_text("not known")


def show_picture(page):
    open_view(page, "channel", CID)
    expect(page.locator("h1")).to_have_text(CID)
    expect(page.locator(".picture tbody tr")).to_have_count(10)
    track = row(page, "bob").locator(".track")
    expect(track).to_have_attribute("aria-label", "bob: read up to 38, delivered up to 38, of 41")
    width = "part => part.getBoundingClientRect().width / part.parentElement.clientWidth"
    share = track.locator(".read").evaluate(width)
    check(abs(share - 38 / 41) < 0.02, f"bob's bar is {share} wide")
    joined = row(page, "late").locator(".joined").evaluate("part => part.getBoundingClientRect().width")
    check(joined > 0, "the time before a member joined is not shown")
    # Live: a mark moves the edge, and stands in the list of events.
    expect(page.locator(".state.on")).to_be_visible()
    call("POST", f"/channels/{CID}/read", {"user_id": "auth0|5f7c", "message_id": "m39"})
    expect(page.locator(".tail li").filter(has_text="message.read")).to_contain_text("auth0|5f7c")
    label = "auth0|5f7c: read up to 39, delivered up to 39, of 41"
    expect(row(page, "auth0|5f7c").locator(".track")).to_have_attribute("aria-label", label)
    call("POST", f"/channels/{CID}/messages", {"id": "m42", "user_id": "bob"})
    expect(page.locator(".messages li").first).to_contain_text("m42")
    # A click into the picture chooses the member and the message there.
    box = row(page, "bob").locator(".track").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + 4)
    expect(page.locator(".why .inline a")).to_have_text("bob")
    expect(page.locator(".reasons li").first).to_be_visible()
    check(page.title() == "Tidemark console", "an id ran as a script")


def read_from_right_to_left(page):
    page.evaluate("document.documentElement.dir = 'rtl'")
    track = row(page, "bob").locator(".track")
    gap = track.evaluate(
        "track => track.getBoundingClientRect().right - track.querySelector('.read').getBoundingClientRect().right"
    )
    check(abs(gap) < 1, f"right to left the bar begins {gap} px from the right")
    # The newest message is at the left.
    box = track.bounding_box()
    page.mouse.click(box["x"] + 1, box["y"] + 4)
    expect(page.locator(".messages .chosen b")).to_have_text("m42")
    page.evaluate("document.documentElement.removeAttribute('dir')")


def show_others(page):
    page.locator(".find input").fill(f"{CID} m35")
    page.locator(".find button").click()
    expect(page.locator(".found a")).to_have_text(f"{CID} m35")
    page.locator(".find input").fill(CID)
    page.locator(".find button").click()
    expect(page.locator(".found li").first).to_contain_text("10 members")
    page.locator(".find input").fill(EVIL)
    page.locator(".find button").click()
    page.locator(".found a").click()
    expect(page.locator("h1")).to_have_text(EVIL)
    expect(page.locator(".totals dd").first).to_have_text("42")
    page.locator(".find input").fill("no such thing")
    page.locator(".find button").click()
    expect(page.locator("main")).to_contain_text("Nothing is known of no such thing")
    open_view(page, "types")
    expect(page.locator(".types")).to_contain_text("nothing before the join exists")
    expect(page.locator(".types td form")).to_have_count(0)
    page.locator(".types input").fill("team")
    page.locator(".types button").click()
    expect(page.locator(".types h2").first).to_have_text("team")
    # What erin hides is not in the counts of another view either.
    open_view(page, "user", "erin")
    expect(page.locator("main")).to_contain_text("hides what was read")
    expect(page.locator(".totals")).to_have_count(0)
    open_view(page, "find", "")
    expect(page.locator("main")).to_contain_text("Nothing is known of")
    open_view(page, "system")
    expect(page.locator(".chart output").first).to_have_text(re.compile(r"[1-9]\d* "))
    # Two scrapes make a rate, and a line.
    expect(page.locator(".chart polyline").nth(1)).to_have_attribute("points", re.compile(r"\S+ \S+"))
    consumer = page.locator(".consumers tbody tr").first
    expect(consumer.locator("td").first).to_have_text("search")
    expect(consumer.locator("td").nth(2)).to_have_text(re.compile(r"[1-9]\d*"))
    # The store's figures; a single store owns no groups.
    page.locator("input[name=process]").nth(1).check(force=True)
    channels = page.locator(".chart").filter(has_text="Channels in memory")
    expect(channels.locator("output")).to_have_text(re.compile("[1-9]"))
    expect(page.locator(".chart").filter(has_text="Groups owned")).to_be_hidden()
    check(page.evaluate("fetch('/console/metrics?store=9').then((answer) => answer.status)") == 400, "no such store")
    open_view(page, "system")
    check(page.title() == "Tidemark console", "an id ran as a script")


def try_rights(page):
    """The gateway keeps the session read-only, and the cookie belongs to the console alone."""
    status = """async ([method, path, headers, body]) => {
      const answer = await fetch(path, { method, headers, body })
      return [answer.status, (await answer.json()).code]
    }"""
    content = {"content-type": "application/json"}
    read = ["POST", f"/console/v1/channels/{CID}/read", content, '{"user_id":"bob"}']
    check(page.evaluate(status, read) == [403, "console_read_only"], "a mark was not refused")
    put = ["PUT", "/console/v1/channel-types/support", content, '{"history":"visible"}']
    check(page.evaluate(status, put) == [403, "console_read_only"], "a change was not refused")
    delete = ["DELETE", "/console/v1/users/bob", {}, None]
    check(page.evaluate(status, delete) == [403, "console_read_only"], "an erasure was not refused")
    codes = ["POST", "/console/codes", {}, None]
    check(page.evaluate(status, codes)[0] == 401, "a session has got a code for another one")
    direct = ["GET", f"/v1/channels/{CID}", {}, None]
    check(page.evaluate(status, direct)[0] == 401, "the cookie counts outside of the console")
    check(page.evaluate("document.cookie") == "", "a script can read the cookie")
    check(page.evaluate("localStorage.length + sessionStorage.length") == 0, "the page stores something")
    cookie = page.context.cookies()[0]
    kept = {name: cookie[name] for name in ("path", "httpOnly", "secure", "sameSite")}
    check(kept == {"path": "/console", "httpOnly": True, "secure": True, "sameSite": "Strict"}, f"{kept}")
    # Another site's page, whose browser sent the cookie against its policy.
    name = f"{cookie['name']}={cookie['value']}"
    for site, expected in (("same-origin", 200), ("cross-site", 401), ("same-site", 401)):
        headers = ["-H", f"cookie: a=b; {name}", "-H", f"sec-fetch-site: {site}"]
        status = curl("-o", "/dev/null", "-w", "%{http_code}", f"{gateway}/console/session", *headers)
        check(status == str(expected), f"{site}: {status}")


trust(certificate, directory)
fill()
with sync_playwright() as playwright:
    browser = launch(playwright, chromium, directory)
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme="light")
    page = context.new_page()
    check.watch(page)
    page.goto(link)
    expect(page.locator(".bar")).to_contain_text("read-only")
    check(page.url == f"{gateway}/console", f"the code stays in the address: {page.url}")
    show_picture(page)
    show_reasons(page)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        check.audit(page, f"channel, {scheme}")
        picture(page, pictures, f"console-desk-{scheme}")
    page.set_viewport_size({"width": 390, "height": 844})
    check.audit(page, "channel, phone")
    picture(page, pictures, "console-phone-dark")
    page.emulate_media(color_scheme="light")
    picture(page, pictures, "console-phone-light")
    width = page.evaluate("document.documentElement.scrollWidth")
    check(width <= 390, f"the page is {width} px wide on a phone of 390")
    page.set_viewport_size({"width": 1440, "height": 900})
    read_from_right_to_left(page)
    show_others(page)
    check.audit(page, "gateway")
    if pictures:
        for number in range(240):
            call("POST", f"/channels/{CID}/messages", {"id": f"load{number}", "user_id": "alice"})
    picture(page, pictures, "console-gateway")
    try_rights(page)

    # The code was valid once.
    other = browser.new_context().new_page()
    check.watch(other)
    other.goto(link)
    expect(other.get_by_role("alert")).to_contain_text("Not logged in")
    check.audit(other, "log in")
    # A pasted token opens a session too, and is not kept.
    other.locator("input[type=password]").fill("no token")
    other.locator("form button").click()
    expect(other.get_by_role("alert")).to_contain_text("Not logged in")
    other.locator("input[type=password]").fill(token)
    other.locator("form button").click()
    expect(other.locator(".bar")).to_be_visible()
    check(token not in other.content(), "the page keeps the token")
    other.get_by_role("button", name="Log out").click()
    expect(other.locator("h1")).to_have_text("Log in")
    check(other.evaluate("fetch('/console/session').then((answer) => answer.status)") == 401, "the session goes on")
    browser.close()
check.end()
