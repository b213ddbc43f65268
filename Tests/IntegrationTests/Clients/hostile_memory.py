"""Strangers who make a gateway hold memory, or burn its time, beside a client that asks 50 times a second: headers that stand for more than they take, answers behind closed windows,
bodies that do not end.

usage: hostile_memory.py CASE SPECIFICATION

The file says, as JSON: `port` (of a gateway without TLS, or, with `certificate`, of a load balancer), `pids` (the gateways' processes), `limit` (bytes that each may grow by), `server` (a
token) and `token` (of the user bob). The last line on standard output begins with `ok`.
"""
import json, socket, ssl, struct, sys, threading, time
import httpx

with open(sys.argv[2]) as file:
    specification = json.load(file)
port, pids, limit, server, bob = (specification[name] for name in ("port", "pids", "limit", "server", "token"))
certificate = specification.get("certificate")
tls = ssl.create_default_context(cafile=certificate)
if certificate:
    tls.set_alpn_protocols(["h2"])

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, WINDOW_UPDATE = 0, 1, 4, 8
END_STREAM, END_HEADERS = 1, 4


def check(holds, what):
    if not holds:
        raise SystemExit(f"fault: {what}")


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def settings(**entries):
    numbers = {"initial_window": 4}
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", numbers[name], value) for name, value in entries.items()))


def integer(value, prefix, first=0):
    """RFC 7541, section 5.1."""
    most = (1 << prefix) - 1
    if value < most:
        return bytes([first | value])
    out, value = bytes([first | most]), value - most
    while value >= 128:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def text(value):
    return integer(len(value), 7) + value.encode()


def field(name, value):
    """A literal without indexing."""
    return b"\x00" + text(name) + text(value)


def request(method, path, *fields):
    return b"".join(field(*pair) for pair in ((":method", method), (":scheme", "http"), (":path", path), (":authority", "a")) + fields)


# An entry of 3,900 bytes for the table, and a byte that stands for it.
ENTRY, REFERENCE = b"\x40" + text("x-big") + text("x" * 3900), b"\xbe"


def connect(first=b""):
    made = socket.create_connection(("127.0.0.1", port), timeout=20, source_address=("127.0.0.2", 0))
    try:
        if certificate:
            made = tls.wrap_socket(made, server_hostname="localhost")
        made.sendall(PREFACE + settings() + first)
    except OSError:
        pass
    return made


def send(connection, data):
    """False where the gateway has closed."""
    try:
        connection.sendall(data)
        return True
    except OSError:
        return False


def resident():
    """Of the process that has most."""

    def one(pid):
        with open(f"/proc/{pid}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) * 1024

    return max(one(pid) for pid in pids)


class Neighbour(threading.Thread):
    """Asks 50 times a second, on one connection."""

    def __init__(self):
        super().__init__(daemon=True)
        self.client = httpx.Client(http1=False, http2=True, timeout=60, verify=tls)
        self.times, self.faults, self.ends = [], [], False

    def call(self, method, path, body=None, token=server):
        answer = self.client.request(method, f"{'https://localhost' if certificate else 'http://127.0.0.1'}:{port}{path}", json=body, headers={"authorization": "Bearer " + token})
        check(answer.status_code < 300, f"{method} {path} answers {answer.status_code} {answer.text}")
        return answer

    def run(self):
        while not self.ends:
            start = time.monotonic()
            try:
                self.call("POST", "/v1/channels/messaging:c/read", {}, bob)
            except (SystemExit, Exception) as error:
                self.faults.append(str(error))
            self.times.append(time.monotonic() - start)
            time.sleep(max(0, 0.02 - self.times[-1]))


def headers_held():
    """Requests that do not end, each of 16 KB of headers out of the table."""
    block = request("POST", "/v1/channels/messaging:c/read") + ENTRY
    for _ in range(60):
        connection = connect(frame(HEADERS, END_HEADERS, 1, block))
        yield connection
        rest = request("POST", "/v1/channels/messaging:c/read") + REFERENCE * 4
        send(connection, b"".join(frame(HEADERS, END_HEADERS, stream, rest) for stream in range(3, 2001, 2)))


def headers_decoded():
    """Blocks of 16 KB that stand for 60 MB."""
    head = request("GET", "/v1/channels/messaging:c/read-state") + ENTRY
    block = head + REFERENCE * (16_000 - len(head))
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        for connection in [connect(frame(HEADERS, END_HEADERS | END_STREAM, 1, block)) for _ in range(20)]:
            for stream in range(3, 41, 2):
                if not send(connection, frame(HEADERS, END_HEADERS | END_STREAM, stream, block)):
                    break
            connection.close()
    yield connect()


def answers_held():
    """Pages of read state that no window lets go."""
    block = request("GET", "/v1/channels/messaging:c/read-state?limit=100", ("authorization", "Bearer " + server))
    for _ in range(60):
        connection = connect(settings(initial_window=0))
        yield connection
        for stream in range(1, 801, 2):
            if not send(connection, frame(HEADERS, END_HEADERS | END_STREAM, stream, block)):
                break


def bodies_held():
    """Bodies that do not end, a window of each."""
    block = request("POST", "/v1/messages", ("authorization", "Bearer " + server), ("content-type", "application/json"))
    for _ in range(60):
        connection = connect()
        yield connection
        connection.settimeout(2)
        for stream in range(1, 201, 2):
            if not send(connection, frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, 0, stream, b" " * 16_384) * 3):
                break


def play(attack):
    neighbour = Neighbour()
    neighbour.call("PUT", "/v1/channels/messaging:c", {"members": ["bob"] + [f"user-{number}" for number in range(99)]})
    neighbour.call("POST", "/v1/channels/messaging:c/messages", {"id": "m1", "user_id": "user-1"})
    neighbour.start()
    time.sleep(1)
    before, most, kept = resident(), 0, []
    for connection in attack():
        kept.append(connection)
        most = max(most, resident())
    for _ in range(20):
        time.sleep(0.1)
        most = max(most, resident())
    check(most - before <= limit, f"the gateway grew by {(most - before) >> 20} MiB, from {before >> 20} MiB")
    for connection in kept:
        connection.close()
    deadline = time.monotonic() + 30
    while resident() > 1.5 * before and time.monotonic() < deadline:
        time.sleep(0.25)
    check(resident() <= 1.5 * before, f"of {before >> 20} MiB before and {most >> 20} MiB at most {resident() >> 20} MiB are left")
    neighbour.ends = True
    neighbour.join()
    check(not neighbour.faults, f"{len(neighbour.faults)} of {len(neighbour.times)} answers: {neighbour.faults[:3]}")
    times = sorted(neighbour.times)
    return f"{before >> 20} MiB before, {most >> 20} at most, {resident() >> 20} after; {len(times)} answers, p99 {times[len(times) * 99 // 100] * 1000:.0f} ms"


cases = {case.__name__: case for case in (headers_held, headers_decoded, answers_held, bodies_held)}
print("ok", play(cases[sys.argv[1]]), flush=True)
