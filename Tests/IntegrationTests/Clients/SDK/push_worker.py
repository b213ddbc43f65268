"""Delivers pushes to tidemark-sw.js in Chromium, as a push service does, and checks what the server has delivered.

push_worker.py <chromium> <address of the gateway> <certificate> <directory> <file of a server's token> <app's port>

The app is a page and a service worker of another origin than the gateway's. Prints "ok: N pushes" at the end.
"""

import http.server
import json
import os
import subprocess
import sys
import threading
import time

from browsers import launch, trust
from playwright.sync_api import sync_playwright

chromium, gateway, certificate, directory, token_file, port = sys.argv[1:7]
# Requests of service workers can be cut only with it.
os.environ["PW_EXPERIMENTAL_SERVICE_WORKER_NETWORK_EVENTS"] = "1"
LIMIT = 60
ORIGIN = f"http://127.0.0.1:{port}"
ACKS = "**/v1/push/acks"
LOAD = f"importScripts('{gateway}/sdk/tidemark-sw.js')\n"
FILES = {
    "/": ("text/html", "<!doctype html><title>App</title>"),
    "/worker.js": ("text/javascript", f"self.tidemark = {{ url: '{gateway}' }}\n{LOAD}"),
    "/nested/worker.js": (
        "text/javascript",
        f"self.tidemark = {{ url: '{gateway}/', ticketOf: (data) => data.extra.receipt }}\n{LOAD}",
    ),
}
pushes = 0


class App(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        kind, text = FILES.get(self.path, ("text/plain", ""))
        self.send_response(200 if self.path in FILES else 404)
        self.send_header("content-type", kind)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


def request(method, path, body=None):
    """A request of the app's server."""
    command = ["curl", "-sS", "--fail-with-body", "--http2", "--cacert", certificate, "-X", method, gateway + path]
    command += ["-H", "authorization: Bearer " + open(token_file).read().strip()]
    if body is not None:
        command += ["-H", "content-type: application/json", "-d", json.dumps(body)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def ticket(name):
    """The ticket of a push about the first message of a new channel."""
    cid = f"messaging:{name}"
    request("PUT", f"/v1/channels/{cid}", {"members": [{"user_id": "alice"}, {"user_id": "bob"}]})
    request("POST", f"/v1/channels/{cid}/messages", {"id": "m1", "user_id": "alice"})
    push = {"cid": cid, "message_id": "m1", "user_id": "bob"}
    return request("POST", "/v1/push/tickets", {"tickets": [push]})["tickets"][0]


def is_delivered(name):
    rows = request("GET", f"/v1/channels/messaging:{name}/read-state")["read"]
    return next(row for row in rows if row["user"]["id"] == "bob")["last_delivered_seq"] == 1


def eventually(what, holds):
    end = time.monotonic() + LIMIT
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"not within {LIMIT} s: {what}")
        page.wait_for_timeout(50)


def register(script, scope):
    """Register a service worker. Returns the id of its registration in the browser's protocol."""
    found = {}

    def updated(event):
        for registration in event["registrations"]:
            if registration["scopeURL"] == ORIGIN + scope:
                found["id"] = registration["registrationId"]

    protocol.on("ServiceWorker.workerRegistrationUpdated", updated)
    page.evaluate(
        """async ([script, scope]) => {
          const registration = await navigator.serviceWorker.register(script, { scope })
          const worker = registration.installing ?? registration.waiting ?? registration.active
          while (worker.state !== 'activated') await new Promise((resolve) => (worker.onstatechange = resolve))
        }""",
        [script, scope],
    )
    eventually("the registration is known", lambda: "id" in found)
    return found["id"]


def push(registration, data):
    global pushes
    pushes += 1
    text = data if isinstance(data, str) else json.dumps(data)
    protocol.send(
        "ServiceWorker.deliverPushMessage", {"origin": ORIGIN, "registrationId": registration, "data": text}
    )


def kept():
    """The number of tickets in IndexedDB."""
    return page.evaluate(
        """() => new Promise((resolve, reject) => {
          const opened = indexedDB.open('tidemark tickets')
          opened.onerror = () => reject(opened.error)
          opened.onupgradeneeded = () => opened.transaction.abort()
          opened.onsuccess = () => {
            const request = opened.result.transaction('tickets').objectStore('tickets').count()
            request.onsuccess = () => (opened.result.close(), resolve(request.result))
            request.onerror = () => reject(request.error)
          }
        })"""
    )


def play():
    worker = register("/worker.js", "/")
    push(worker, {"ticket": ticket("first")})
    eventually("a push marks its message delivered", lambda: is_delivered("first"))
    eventually("an answered ticket is not kept", lambda: kept() == 0)

    # Pushes of other kinds, and a ticket that is not valid, stop nothing.
    for data in ["", "no JSON", "null", {"ticket": 5}, {"ticket": ""}, {"other": "push"}, {"ticket": "invalid"}]:
        push(worker, data)
    push(worker, {"ticket": ticket("second")})
    eventually("a push after others marks its message delivered", lambda: is_delivered("second"))
    eventually("a refused ticket is not kept", lambda: kept() == 0)

    # Without a connection the ticket is kept, and sent with the next push.
    context.route(ACKS, lambda route: route.abort())
    push(worker, {"ticket": ticket("third")})
    eventually("a ticket that is not sent is kept", lambda: kept() == 1)
    assert not is_delivered("third")
    context.unroute(ACKS)
    push(worker, {"ticket": ticket("fourth")})
    eventually("both tickets are sent", lambda: is_delivered("third") and is_delivered("fourth") and kept() == 0)

    # A server that is busy is asked again when the browser says so.
    context.route(ACKS, lambda route: route.fulfill(status=503))
    push(worker, {"ticket": ticket("fifth")})
    eventually("a ticket for a busy server is kept", lambda: kept() == 1)
    context.unroute(ACKS)
    event = {"origin": ORIGIN, "registrationId": worker, "tag": "tidemark-tickets", "lastChance": False}
    protocol.send("ServiceWorker.dispatchSyncEvent", event)
    eventually("it is sent with the browser's event", lambda: is_delivered("fifth") and kept() == 0)

    # The kept tickets are bounded.
    context.route(ACKS, lambda route: route.abort())
    for number in range(510):
        push(worker, {"ticket": f"ticket {number}"})
    push(worker, {"ticket": ticket("sixth")})
    eventually("500 tickets are kept", lambda: kept() == 500)
    context.unroute(ACKS)
    protocol.send("ServiceWorker.dispatchSyncEvent", event)
    eventually("the newest of them is sent", lambda: is_delivered("sixth") and kept() == 0)

    # The app's own form of a push.
    nested = register("/nested/worker.js", "/nested/")
    push(nested, {"extra": {"receipt": ticket("seventh")}})
    eventually("ticketOf finds the ticket", lambda: is_delivered("seventh"))


trust(certificate, directory)
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), App)
threading.Thread(target=server.serve_forever, daemon=True).start()
with sync_playwright() as playwright:
    browser = launch(playwright, chromium, directory)
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(LIMIT * 1_000)
    page.goto(ORIGIN + "/")
    protocol = context.new_cdp_session(page)
    protocol.send("ServiceWorker.enable")
    play()
    browser.close()
print(f"ok: {pushes} pushes")
