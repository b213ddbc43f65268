"""The servers of a browser test: its page, from two origins, and the proxy to the gateway, which the test
cuts and restores.

usage: browser_server.py DIRECTORY PAGE_PORT OTHER_PAGE_PORT WAY_PORT GATEWAY_PORT

Serves the files of DIRECTORY on both page ports, and prints each report that a page posts: a JSON line with
the port that received it. Forwards bytes from WAY_PORT to the gateway. Commands on standard input: `cut`
closes every connection and accepts none, `mend` accepts them again. When done, each is printed as a report
of its own.
"""
import asyncio, functools, http.server, json, sys, threading

directory, (page, other, way, gateway) = sys.argv[1], map(int, sys.argv[2:6])


def say(report):
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


class Page(http.server.SimpleHTTPRequestHandler):
    def do_POST(self):
        report = json.loads(self.rfile.read(int(self.headers["content-length"])))
        say(report | {"port": self.server.server_port})
        self.send_response(204)
        self.end_headers()

    def end_headers(self):
        self.send_header("cache-control", "no-store")
        super().end_headers()

    def log_message(self, *arguments):
        pass


connections = set()


async def pump(reader, writer):
    connections.add(writer)
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    connections.discard(writer)
    writer.transport.abort()


async def pass_on(reader, writer):
    try:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", gateway)
    except ConnectionError:
        return writer.transport.abort()
    await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))


async def main():
    for port in page, other:
        handler = functools.partial(Page, directory=directory)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    listener = await asyncio.start_server(pass_on, "127.0.0.1", way)
    say({"what": "ready"})
    while line := await asyncio.to_thread(sys.stdin.readline):
        if line == "cut\n":
            listener.close()
            for writer in list(connections):
                writer.transport.abort()
        elif line == "mend\n":
            listener = await asyncio.start_server(pass_on, "127.0.0.1", way)
        say({"what": line.strip()})


asyncio.run(main())
