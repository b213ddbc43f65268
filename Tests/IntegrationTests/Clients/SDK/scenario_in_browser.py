"""Plays SDK/scenario.json with tidemark.js in Chromium, as a page of another origin than the gateway's.

scenario_in_browser.py <chromium> <settings.json> <directory> <app's port> <SDK's directory>

The settings are those of SDK/js/test/scenario.mjs. Steps of the host are printed as `@name`; the host answers `done`.
Prints what is not as expected, or "N steps, all as expected".
"""

import http.server
import json
import pathlib
import sys
import threading
import urllib.request

from browsers import launch, trust
from playwright.sync_api import sync_playwright

chromium, settings_file, directory, port, sdk = sys.argv[1:6]
LIMIT = 480_000
settings = json.loads(pathlib.Path(settings_file).read_text())
secret = pathlib.Path(settings["jwtSecretFile"]).read_text().split("\n")[0]
own = pathlib.Path(__file__).parent
FILES = {
    "/": ("text/html", own / "scenario.html"),
    "/player.mjs": ("text/javascript", pathlib.Path(sdk) / "js/test/player.mjs"),
    "/scenario.json": ("application/json", pathlib.Path(sdk) / "scenario.json"),
}


class App(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        kind, file = FILES.get(self.path, ("text/plain", None))
        self.send_response(200 if file else 404)
        self.send_header("content-type", kind)
        self.end_headers()
        self.wfile.write(file.read_bytes() if file else b"")

    def log_message(self, *_):
        pass


def tell_host(command):
    """Perform what a page cannot."""
    if command == "metrics":
        return urllib.request.urlopen(settings["admin"] + "/metrics", timeout=10).read().decode()
    print(f"@{command}", flush=True)
    answer = sys.stdin.readline().strip()
    assert answer == "done", f"the host answered {answer}"
    return None


trust(settings["ca"], directory)
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), App)
threading.Thread(target=server.serve_forever, daemon=True).start()
with sync_playwright() as playwright:
    browser = launch(playwright, chromium, directory)
    page = browser.new_page()
    page.set_default_timeout(LIMIT)
    page.expose_function("hostSettings", lambda: {"url": settings["url"], "secret": secret})
    page.expose_function("tellHost", tell_host)
    page.on("pageerror", lambda error: print(f"an error of the page: {error}", file=sys.stderr, flush=True))
    page.goto(f"http://127.0.0.1:{port}/")
    page.wait_for_function("window.result")
    print(page.evaluate("window.result"), flush=True)
    browser.close()
