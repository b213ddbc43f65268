"""Attackers that occupy connections, beside a client that sends 50 requests a second.

The connections are silent at the store's port, exceed an address's limit at a gateway, exceed the gateway's
own limit, are refused, or ask the operations listener for metrics.

usage: hostile_connections.py CASE SPECIFICATION

SPECIFICATION is a JSON file: `gateway`, `admin`, `store` and `store_admin` (ports), `pid` (of the gateway),
`server` (a token) and `token` (of the user bob).

Output lines: `restart` asks the test to restart the gateway; the test answers `done` on standard input. The
last line begins with `ok`.
"""
import http.client, json, os, resource, select, socket, struct, sys, threading, time, urllib.request
import httpx
from metrics import metric
from waiting import eventually
from well_behaved_client import WellBehavedClient, check

with open(sys.argv[2]) as file:
    specification = json.load(file)
gateway, admin, store, store_admin, pid = (
    specification[name] for name in ("gateway", "admin", "store", "store_admin", "pid")
)


def strangers(count, port, address="127.0.0.1"):
    """Opens connections that send nothing."""
    made = []
    for _ in range(count):
        connection = socket.socket()
        connection.bind((address, 0))
        connection.settimeout(10)
        try:
            connection.connect(("127.0.0.1", port))
        except OSError:
            connection.close()
            continue
        made.append(connection)
    return made


def open_ones(connections, quiet=0.5):
    """The connections that the server has not closed; none was closed for `quiet` seconds."""
    left = {connection.fileno(): connection for connection in connections}
    poll = select.poll()
    for number in left:
        poll.register(number, select.POLLIN | select.POLLHUP)
    while ready := poll.poll(quiet * 1000):
        for number, _ in ready:
            try:
                gone = left[number].recv(1 << 16) == b""
            except OSError:
                gone = True
            if gone:
                poll.unregister(number)
                left.pop(number).close()
    return list(left.values())


class Caller:
    """A well-behaved client, on a connection of its own."""

    def __init__(self, address="127.0.0.1"):
        self.client = httpx.Client(
            http1=False,
            http2=True,
            timeout=20,
            transport=httpx.HTTPTransport(http1=False, http2=True, local_address=address),
        )

    def call(self, method, path, body=None, token=specification["server"]):
        answer = self.client.request(
            method, f"http://127.0.0.1:{gateway}{path}", json=body, headers={"authorization": "Bearer " + token}
        )
        check(answer.status_code < 300, f"{method} {path} answers {answer.status_code} {answer.text}")
        return answer

    def read(self):
        return self.call("POST", "/v1/channels/messaging:c/read", {}, specification["token"])


def set_up():
    caller = Caller()
    caller.call("PUT", "/v1/channels/messaging:c", {"members": ["alice", "bob"]})
    caller.call("POST", "/v1/channels/messaging:c/messages", {"id": "m1", "user_id": "alice"})
    caller.read()
    return caller


def well_behaved_client():
    return WellBehavedClient(
        {"port": gateway, "method": "POST", "path": "/v1/channels/messaging:c/read", "token": specification["token"]}
    )


def silent_at_the_store():
    """Silent connections are evicted by newer ones before their handshake timeout, and a gateway gets
    through."""
    set_up()
    client = well_behaved_client()
    kept = strangers(1_500, store)
    few = lambda: left if len(left := open_ones(kept)) <= 1_024 else None
    left = eventually("most silent connections to be ended", few)
    answers = client.end()
    ended = metric(store_admin, "tidemark_store_connections_refused_total", reason="unproven")
    check(ended >= 1_500 - 1_024, f"{ended} were ended")
    kept += strangers(300, store)
    print("restart", flush=True)
    sys.stdin.readline()
    caller = Caller()
    caller.read()
    # A command that needs files of the store.
    caller.call("DELETE", "/v1/users/alice")
    return f"{len(left)} of 1500 were open; {answers}"


def of_one_address():
    """One address may have 20 connections."""
    caller = set_up()
    client = well_behaved_client()
    first = open_ones(strangers(100, gateway))
    check(len(first) <= 18, f"{len(first)} connections of one address are open")
    other = Caller("127.0.0.2")
    other.read()
    left = [connection for last in range(3, 6) for connection in open_ones(strangers(30, gateway, f"127.0.0.{last}"))]
    check(len(left) == 60, f"{len(left)} connections of three more are open")
    caller.read()
    other.read()
    ready = urllib.request.urlopen(f"http://127.0.0.1:{admin}/ready", timeout=10).status
    check(ready == 200, f"/ready answers {ready}")
    refused = {
        reason: metric(admin, "tidemark_gateway_connections_refused_total", reason=reason)
        for reason in ("address", "total", "unproven")
    }
    check(refused == {"address": 82 + 30, "total": 0, "unproven": 0}, f"refused: {refused}")
    for connection in first + left:
        connection.close()
    time.sleep(0.2)
    Caller("127.0.0.9").read()
    return f"refused: {refused}; {client.end()}"


def unauthenticated():
    """Connections without a token are evicted by any new connection; connections with a token never are."""
    set_up()
    client = well_behaved_client()
    kept = []
    for _ in range(5):
        kept += strangers(60, gateway)
        Caller().read()
    left = open_ones(kept)
    check(len(left) <= 10, f"{len(left)} connections without a token are open")
    waiting = metric(admin, "tidemark_gateway_connections_unproven")
    check(waiting <= 10, f"{waiting} are not authenticated")
    return f"{len(left)} of {len(kept)} were open; {client.end()}"


def refused():
    """The store refuses 500 connections, each because of its bytes, and a gateway refuses 200."""
    caller = set_up()
    for number in range(500):
        with socket.create_connection(("127.0.0.1", store), timeout=10) as connection:
            # A ping before the handshake; a length above the limit.
            connection.sendall(
                bytes.fromhex("00000010 0500 0000 00000000 0000000000000000" if number % 2 else "ffffffff")
            )
            while connection.recv(1 << 16):
                pass
    for _ in range(200):
        with socket.create_connection(("127.0.0.1", gateway), timeout=10) as connection:
            connection.sendall(b"\x16\x03\x01\x00\x05hello\r\n\r\n")
            while connection.recv(1 << 16):
                pass
    caller.read()
    return "refused"


def descriptors():
    """The gateway runs out of descriptors: it waits instead of spinning, serves the connections that it has,
    answers operators, and accepts again afterwards."""
    set_up()
    client = well_behaved_client()
    operators = [http.client.HTTPConnection("127.0.0.1", admin, timeout=20) for _ in range(2)]
    for operator in operators:
        # An answer shows that the gateway has accepted the connection, and has a descriptor for it.
        operator.request("GET", "/health")
        check(operator.getresponse().read(), "no answer from /health")

    def ask(path):
        operator = operators.pop()
        operator.request("GET", path)
        answer = operator.getresponse()
        return answer.status, answer.read().decode()

    def processor_seconds():
        with open(f"/proc/{pid}/stat") as file:
            words = file.read().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 9, limits[1]))
    try:
        kept = strangers(60, gateway)
        before = processor_seconds()
        time.sleep(3)
        used = processor_seconds() - before
        answers = client.end()
        check(used < 1.5, f"{used} s of processor time in 3 s")
        check(ask("/ready")[0] == 200, "not ready")
        _, metrics = ask("/metrics")
        check('tidemark_gateway_connections_refused_total{reason="descriptors"}' in metrics, metrics)
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    for connection in kept:
        connection.close()
    Caller().read()
    return f"{used:.2f} s of processor time in 3 s; {answers}"


def scrapes():
    """Thousands of requests for metrics, of which one client reads none, do not stop the gateway's other clients."""
    set_up()
    client = well_behaved_client()
    text = urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=10).read()
    request = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n"
    unread, read = (socket.create_connection(("127.0.0.1", admin), timeout=30) for _ in range(2))
    before = held(pid)
    unread.setblocking(False)
    try:
        for _ in range(1_000):
            unread.send(request * 20)
    except OSError:
        pass
    read.sendall(request * 50)
    time.sleep(1)
    figures = client.end()
    answers = b""
    while answers.count(b"HTTP/1.1 200 OK") < 50 or len(answers) < 50 * len(text) * 9 // 10:
        part = read.recv(1 << 20)
        check(part, f"closed after {answers.count(b'HTTP/1.1 200 OK')} of 50 answers")
        answers += part
    # The client that reads nothing is disconnected, and what was kept for it is given back.
    poll = select.poll()
    poll.register(unread, 0)
    check(poll.poll(120_000), "a client that reads nothing is still connected after 120 s")
    grown = held(pid) - before
    check(grown < 32 << 20, f"the gateway grew by {grown >> 20} MiB")
    return f"the gateway grew by {grown >> 20} MiB; {figures}"


def held(process):
    with open(f"/proc/{process}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) * 1024


def documents():
    """Connections that read a large public document as fast as it comes, 20 times at once, without a token."""
    def frame(kind, flags, stream, payload=b""):
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload

    set_up()
    client = well_behaved_client()
    # GET, http, /v1/openapi.yaml, an authority.
    block = b"\x82\x86\x01\x01x\x04\x10/v1/openapi.yaml"
    ended, taken = threading.Event(), [0] * 8

    def attack(number):
        connection = socket.create_connection(("127.0.0.1", gateway), timeout=20)
        connection.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + frame(4, 0, 0, struct.pack(">HI", 4, (1 << 31) - 1))
            + frame(8, 0, 0, struct.pack(">I", 1 << 30))
        )
        room = bytearray(1 << 20)
        stream = 1
        while not ended.is_set():
            connection.sendall(b"".join(frame(1, 5, number, block) for number in range(stream, stream + 40, 2)))
            stream += 40
            left = 20 * 200_000
            while left > 0 and not ended.is_set():
                count = connection.recv_into(room)
                check(count, "an attacker's connection was closed")
                left, taken[number] = left - count, taken[number] + count
            if taken[number] > 900 << 20:
                break
        connection.close()

    attackers = [threading.Thread(target=attack, args=(number,), daemon=True) for number in range(8)]
    for attacker in attackers:
        attacker.start()
    time.sleep(3)
    figures = client.end()
    ended.set()
    for attacker in attackers:
        attacker.join(30)
    return f"beside {sum(taken) >> 20} MiB of documents: {figures}"


def broken_protocol():
    """Connections that break HTTP/2 are closed."""
    for _ in range(5):
        connection = socket.create_connection(("127.0.0.1", gateway), timeout=20, source_address=("127.0.0.3", 0))
        # DATA on stream 0.
        connection.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5) + bytes([0, 0, 1]) + bytes(6) + b"x"
        )
        while connection.recv(1 << 16):
            pass
    return "closed"


cases = {
    "documents": documents,
    "scrapes": scrapes,
    "broken_protocol": broken_protocol,
    "descriptors": descriptors,
    "silent_at_the_store": silent_at_the_store,
    "of_one_address": of_one_address,
    "unauthenticated": unauthenticated,
    "refused": refused,
}
print("ok", cases[sys.argv[1]](), flush=True)
