"""Strangers who take up connections: silent ones at the store's port, more than one address may have at a gateway's, more than all may have, ones that are refused.

usage: hostile_connections.py CASE SPECIFICATION

The file says, as JSON: `gateway`, `admin`, `store` and `store_admin` (ports), `server` (a token) and `token` (of the user bob). On standard output are lines: `restart` asks whoever
started this for another gateway in the place of this one, who says `done` on standard input; the last line begins with `ok`.
"""
import json, select, socket, sys, time, urllib.request
import httpx

with open(sys.argv[2]) as file:
    specification = json.load(file)
gateway, admin, store, store_admin = (specification[name] for name in ("gateway", "admin", "store", "store_admin"))


def check(holds, what):
    if not holds:
        raise SystemExit(f"fault: {what}")


def strangers(count, port, address="127.0.0.1"):
    """Connections that say nothing."""
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
    """Those that the server has not closed; none was closed for `quiet` seconds."""
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


def metric(port, name, **labels):
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    start = name + ("{" if labels else " ")
    lines = [line for line in text.splitlines() if line.startswith(start) and all(f'{key}="{value}"' in line for key, value in labels.items())]
    return sum(float(line.split()[-1]) for line in lines)


class Caller:
    """A client that behaves, on a connection of its own."""

    def __init__(self, address="127.0.0.1"):
        self.client = httpx.Client(http1=False, http2=True, timeout=20, transport=httpx.HTTPTransport(http1=False, http2=True, local_address=address))
        self.slowest = 0

    def call(self, method, path, body=None, token=specification["server"]):
        start = time.monotonic()
        answer = self.client.request(method, f"http://127.0.0.1:{gateway}{path}", json=body, headers={"authorization": "Bearer " + token})
        self.slowest = max(self.slowest, time.monotonic() - start)
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


def silent_at_the_store():
    """Silent connections give way to newer ones before their opening's time is over, and a gateway gets through."""
    caller = set_up()
    kept = strangers(1_500, store)
    for _ in range(50):
        caller.read()
    left = open_ones(kept)
    check(len(left) <= 1_024, f"{len(left)} silent connections are open")
    ended = metric(store_admin, "tidemark_store_connections_refused_total", reason="unproven")
    check(ended >= 1_500 - 1_024, f"{ended} were ended")
    kept += strangers(300, store)
    print("restart", flush=True)
    sys.stdin.readline()
    caller = Caller()
    caller.read()
    # What needs files of the store.
    caller.call("DELETE", "/v1/users/alice")
    return f"{len(left)} of 1500 were open, the slowest answer took {caller.slowest * 1000:.0f} ms"


def of_one_address():
    """Where one address may have 20 connections."""
    caller = set_up()
    first = open_ones(strangers(100, gateway))
    check(len(first) <= 19, f"{len(first)} connections of one address are open")
    other = Caller("127.0.0.2")
    other.read()
    left = [connection for last in range(3, 6) for connection in open_ones(strangers(30, gateway, f"127.0.0.{last}"))]
    check(len(left) == 60, f"{len(left)} connections of three more are open")
    for _ in range(50):
        caller.read()
        other.read()
    ready = urllib.request.urlopen(f"http://127.0.0.1:{admin}/ready", timeout=10).status
    check(ready == 200, f"/ready answers {ready}")
    refused = {reason: metric(admin, "tidemark_gateway_connections_refused_total", reason=reason) for reason in ("address", "total", "unproven")}
    check(refused == {"address": 81 + 30, "total": 0, "unproven": 0}, f"refused: {refused}")
    for connection in first + left:
        connection.close()
    time.sleep(0.2)
    Caller("127.0.0.9").read()
    return f"refused: {refused}"


def unproven():
    """Strangers without a token give way to whoever comes, and never those with one."""
    caller = set_up()
    kept = []
    for _ in range(5):
        kept += strangers(60, gateway)
        caller.read()
        Caller().read()
    left = open_ones(kept)
    check(len(left) <= 10, f"{len(left)} strangers are open")
    waiting = metric(admin, "tidemark_gateway_connections_unproven")
    check(waiting <= 10, f"{waiting} are not proven")
    return f"{len(left)} of {len(kept)} were open"


def refused():
    """500 connections that the store refuses, each for what it says, and 200 that a gateway does."""
    caller = set_up()
    for number in range(500):
        with socket.create_connection(("127.0.0.1", store), timeout=10) as connection:
            # A ping before the opening; a length that nobody may send.
            connection.sendall(bytes.fromhex("00000010 0500 0000 00000000 0000000000000000" if number % 2 else "ffffffff"))
            while connection.recv(1 << 16):
                pass
    for _ in range(200):
        with socket.create_connection(("127.0.0.1", gateway), timeout=10) as connection:
            connection.sendall(b"\x16\x03\x01\x00\x05hello\r\n\r\n")
            while connection.recv(1 << 16):
                pass
    caller.read()
    return "refused"


cases = {"silent_at_the_store": silent_at_the_store, "of_one_address": of_one_address, "unproven": unproven, "refused": refused}
print("ok", cases[sys.argv[1]](), flush=True)
