"""Endpoints of five webhooks, one of which is healthy, one down, and the others answer 410, answer garbage, or hang, while
a backend changes channels. The healthy one has to get each change on time throughout, and after the outage all others
have to get everything, in order.

webhook_outage.py FILE: a JSON object with `gateway` (h2c port), `server` (token), `ports` (of the endpoints, by name),
`seconds` (of the outage) and `pid` (of the worker). The last line is `ok …` with figures, or what is wrong."""
import http.server, json, socketserver, sys, threading, time
import httpx

specification = json.load(open(sys.argv[1]))
lock = threading.Lock()
# By endpoint: numbers of the messages that it was told, in order; and how late the healthy one was told each.
told = {name: [] for name in specification["ports"]}
made, late, requests = {}, [], {name: 0 for name in told}
is_out = True


class Endpoint(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        name = self.server.name
        body = self.rfile.read(int(self.headers["content-length"]))
        with lock:
            requests[name] += 1
        if is_out and name == "hanging":
            time.sleep(5)
        if is_out and name == "garbage":
            self.wfile.write(b"\x00garbage\r\n")
            self.close_connection = True
            return
        status = 410 if is_out and name == "gone" else 500 if is_out and name == "hanging" else 204
        if status == 204:
            with lock:
                for record in json.loads(body)["records"]:
                    number = int(record["message_id"][1:])
                    told[name].append(number)
                    if name == "healthy":
                        late.append(time.monotonic() - made[number])
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    # A port that nobody listens on refuses connections: the endpoint is down.
    allow_reuse_address = True


def serve(name):
    server = Server(("127.0.0.1", specification["ports"][name]), Endpoint)
    server.name = name
    threading.Thread(target=server.serve_forever, daemon=True).start()


def resident():
    for line in open(f"/proc/{specification['pid']}/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) // 1024


for name in told:
    if name != "down":
        serve(name)
headers = {"authorization": f"Bearer {specification['server']}"}
base = f"http://127.0.0.1:{specification['gateway']}"
start, count, memory = time.monotonic(), 0, [resident()]
with httpx.Client(http1=False, http2=True, base_url=base, headers=headers, timeout=30) as client:
    assert client.put("/v1/channels/messaging:outage", json={"members": ["ann", "bob"]}).status_code == 201
    while time.monotonic() - start < specification["seconds"]:
        count += 1
        made[count] = time.monotonic()
        message = {"id": f"m{count}", "user_id": "ann"}
        assert client.post("/v1/channels/messaging:outage/messages", json=message).status_code == 201
        if count % 200 == 0:
            memory.append(resident())
        time.sleep(0.02)
    is_out = False
    serve("down")
    ended = time.monotonic()
    complete = list(range(1, count + 1))
    # Retries pause for up to a minute or so, less for shorter outages.
    while time.monotonic() < ended + 400 and any(sorted(set(numbers)) != complete for numbers in told.values()):
        time.sleep(0.2)
took = time.monotonic() - ended
for name, numbers in told.items():
    firsts = list(dict.fromkeys(numbers))
    if sorted(firsts) != complete:
        sys.exit(print(f"{name} got {len(firsts)} of {count} changes, after {requests[name]} requests"))
    if firsts != complete:
        sys.exit(print(f"{name} got changes out of order"))
late.sort()
print(
    f"ok {count} changes in {specification['seconds']} s of outage; all others had them {took:.0f} s after its end; the "
    f"healthy one {late[len(late) // 2] * 1000:.0f} ms after each change, at most {late[-1] * 1000:.0f} ms; "
    f"worker {memory[0]} to {max(memory)} MiB; requests {requests}"
)
