"""Attackers that make a gateway hold memory or use its time, beside a client that sends 50 requests a
second.

The attacks: compressed headers that expand, answers behind closed windows, unfinished bodies, full HPACK tables,
resets that are not read, bodies of single bytes, and streams of frames without end.

usage: hostile_memory.py CASE SPECIFICATION

SPECIFICATION is a JSON file: `port` (of a gateway without TLS, or, with `certificate`, of a load balancer),
`pids` (the gateways' and the store's processes), `limit` (the bytes by which each may grow), `server` (a token),
`token` (of the user bob) and `other` (of the user user-1). The last line on standard output begins with `ok`.
"""
import json, resource, select, socket, ssl, struct, sys, time
from well_behaved_client import WellBehavedClient, check

with open(sys.argv[2]) as file:
    specification = json.load(file)
port, pids, limit, server, other = (specification[name] for name in ("port", "pids", "limit", "server", "other"))
certificate = specification.get("certificate")
tls = ssl.create_default_context(cafile=certificate)
if certificate:
    tls.set_alpn_protocols(["h2"])

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, WINDOW_UPDATE = 0, 1, 4, 8
END_STREAM, END_HEADERS = 1, 4


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def settings(**entries):
    numbers = {"initial_window": 4}
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", numbers[name], value) for name, value in entries.items()))


def integer(value, prefix, first=0):
    """An integer as in RFC 7541, section 5.1."""
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
    return b"".join(
        field(*pair)
        for pair in ((":method", method), (":scheme", "http"), (":path", path), (":authority", "a")) + fields
    )


# A table entry of 3,900 bytes, and the byte that refers to it.
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
    """Sends data; returns False where the gateway has closed the connection."""
    try:
        connection.sendall(data)
        return True
    except OSError:
        return False


def resident(pid):
    """The resident memory of a process."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) * 1024


def well_behaved_client():
    def set_up(call):
        members = ["bob"] + [f"user-{number}" for number in range(99)]
        call("PUT", "/v1/channels/messaging:c", {"members": members}, server)
        call("POST", "/v1/channels/messaging:c/messages", {"id": "m1", "user_id": "user-1"}, server)

    return WellBehavedClient({**specification, "method": "POST", "path": "/v1/channels/messaging:c/read"}, set_up)


def headers_held():
    """Unfinished requests, each with 16 KB of headers from the table."""
    block = request("POST", "/v1/channels/messaging:c/read") + ENTRY
    for _ in range(60):
        connection = connect(frame(HEADERS, END_HEADERS, 1, block))
        yield connection
        rest = request("POST", "/v1/channels/messaging:c/read") + REFERENCE * 4
        send(connection, b"".join(frame(HEADERS, END_HEADERS, stream, rest) for stream in range(3, 2001, 2)))


def headers_decoded():
    """Header blocks of 16 KB that expand to 60 MB."""
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


def answers_held(token=server):
    """Pages of read state behind closed windows."""
    block = request("GET", "/v1/channels/messaging:c/read-state?limit=100", ("authorization", "Bearer " + token))
    for _ in range(60):
        connection = connect(settings(initial_window=0))
        yield connection
        for stream in range(1, 801, 2):
            if not send(connection, frame(HEADERS, END_HEADERS | END_STREAM, stream, block)):
                break


def answers_of_one_user():
    """The same by one user, over many connections."""
    return answers_held(other)


def bodies_held():
    """Unfinished bodies, each as large as a window."""
    block = request("POST", "/v1/messages", ("authorization", "Bearer " + server), ("content-type", "application/json"))
    for _ in range(60):
        connection = connect()
        yield connection
        connection.settimeout(2)
        for stream in range(1, 201, 2):
            if not send(
                connection, frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, 0, stream, b" " * 16_384) * 3
            ):
                break


def tables_held():
    """More connections without a token than the memory allows, each with a full HPACK table of small entries."""
    count = 3_000
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 200), hard))
    names = (f"{chr(97 + number % 26)}{chr(97 + number // 26)}" for number in range(120))
    entries = b"".join(b"\x40" + text(name) + text("") for name in names)
    block = request("GET", "/v1/channels/messaging:c/read-state") + entries
    for _ in range(count):
        yield connect(frame(HEADERS, END_HEADERS | END_STREAM, 1, block))


def resets_unread():
    """Malformed requests whose resets are not read."""
    block = field(":method", "GET") + field(":scheme", "http")
    data = b"".join(frame(HEADERS, END_HEADERS | END_STREAM, stream, block) for stream in range(1, 20_001, 2))
    for _ in range(20):
        connection = connect()
        yield connection
        connection.settimeout(0.5)
        for number in range(20):
            shifted = (
                data
                if number == 0
                else b"".join(
                    frame(HEADERS, END_HEADERS | END_STREAM, stream + number * 20_000, block)
                    for stream in range(1, 20_001, 2)
                )
            )
            if not send(connection, shifted):
                break


def single_bytes():
    """Bodies without a token, in DATA frames of one byte."""
    block = request("POST", "/v1/push/acks", ("content-type", "application/json"))
    data = frame(DATA, 0, 1, b"x") * 60_000
    for _ in range(20):
        yield (connection := connect(frame(HEADERS, END_HEADERS, 1, block)))
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        for _ in range(20):
            connection = connect(frame(HEADERS, END_HEADERS, 1, block))
            connection.settimeout(0.5)
            send(connection, data)
            connection.close()


def streams_of_frames():
    """Streams of pings of a server's token, whose answers are read as they come."""
    block = request(
        "POST", "/v1/frames", ("authorization", "Bearer " + server), ("content-type", "application/vnd.tidemark.frames")
    )
    ping = bytes.fromhex("00000010" "05" "00" "0000" "00000001") + bytes(8)
    streams = range(1, 17, 2)
    connections = []
    for _ in range(16):
        connections.append(
            connect(settings(initial_window=(1 << 31) - 1) + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 30)))
        )
        yield connections[-1]
    for connection in connections:
        send(connection, b"".join(frame(HEADERS, END_HEADERS, stream, block) for stream in streams))
        connection.setblocking(False)
    poll = select.epoll()
    for connection in connections:
        poll.register(connection, select.EPOLLIN | select.EPOLLOUT)
    by_number = {connection.fileno(): connection for connection in connections}
    # Bytes that a connection may still send, by stream; stream 0 is the connection.
    windows = {number: {stream: 65_535 for stream in (0, *streams)} for number in by_number}
    input, output = {number: b"" for number in by_number}, {number: b"" for number in by_number}
    deadline, sent = time.monotonic() + 5, 0
    while time.monotonic() < deadline:
        for number, event in poll.poll(0.1):
            connection, window = by_number[number], windows[number]
            if event & select.EPOLLIN:
                data = connection.recv(1 << 18)
                check(data, "a stream of pings was closed")
                data = input[number] + data
                at = 0
                while len(data) >= at + 9 and len(data) >= at + 9 + (length := int.from_bytes(data[at:at + 3], "big")):
                    kind, stream = data[at + 3], int.from_bytes(data[at + 5:at + 9], "big")
                    check(kind not in (3, 7), f"a stream of pings ended: {data[at:at + 9 + length].hex()}")
                    if kind == WINDOW_UPDATE:
                        window[stream] += int.from_bytes(data[at + 9:at + 13], "big")
                    at += 9 + length
                input[number] = data[at:]
            if event & select.EPOLLOUT:
                if not output[number]:
                    for stream in streams:
                        if window[stream] >= 16_000 and window[0] >= 16_000:
                            output[number] += frame(DATA, 0, stream, ping * 800)
                            window[stream] -= 16_000
                            window[0] -= 16_000
                            sent += 16_000
                if output[number]:
                    output[number] = output[number][connection.send(output[number]):]
    check(sent > 1 << 20, f"only {sent} bytes were sent")


def play(attack):
    client = well_behaved_client()
    time.sleep(1)
    before, kept, begin = {pid: resident(pid) for pid in pids}, [], time.monotonic()
    most = dict(before)

    def sample():
        for pid in pids:
            most[pid] = max(most[pid], resident(pid))

    for connection in attack():
        kept.append(connection)
        sample()
    for _ in range(20):
        time.sleep(0.1)
        sample()
    for pid in pids:
        check(
            most[pid] - before[pid] <= limit,
            f"process {pid} grew by {(most[pid] - before[pid]) >> 20} MiB, from {before[pid] >> 20} MiB",
        )
    for connection in kept:
        connection.close()
    deadline = time.monotonic() + 30
    while any(resident(pid) > 1.5 * before[pid] for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.25)
    figures = []
    for pid in pids:
        first, highest, last = (size >> 20 for size in (before[pid], most[pid], resident(pid)))
        check(
            resident(pid) <= 1.5 * before[pid], f"of {first} MiB before and {highest} MiB at most {last} MiB are left"
        )
        figures.append(f"{first} MiB before, {highest} at most, {last} after")
    return "; ".join(figures + [client.end(since=begin)])


cases = {
    case.__name__: case
    for case in (
        headers_held,
        headers_decoded,
        answers_held,
        answers_of_one_user,
        bodies_held,
        tables_held,
        resets_unread,
        single_bytes,
        streams_of_frames,
    )
}
print("ok", play(cases[sys.argv[1]]), flush=True)
