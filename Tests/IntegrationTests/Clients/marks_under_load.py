"""Marks messages read over HTTP/2 as fast as it is let, and keeps its own record of what was acknowledged.

usage: marks_under_load.py GATEWAY_PORT SPEC_JSON
SPEC_JSON: {"server": token, "users": {user: token}, "channels": [cid...], "messages": N}   message ids are m1..mN

On standard input: `check` stops sending, waits for what is outstanding, reads the state back and says on standard
output `ok ACKNOWLEDGED` or `lost ...`, then goes on; `end` ends.
"""
import json, select, socket, sys, time
import h2.config, h2.connection, h2.events, h2.exceptions

port, spec = int(sys.argv[1]), json.load(open(sys.argv[2]))
STREAMS = 20


class Connection:
    def __init__(self, token):
        self.token = token
        self.waiting = {}
        self.open()

    def open(self):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.flush()

    def flush(self):
        self.socket.sendall(self.h2.data_to_send())

    def send(self, method, path, tag):
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, [
            (":method", method), (":path", path), (":scheme", "http"), (":authority", "localhost"),
            ("authorization", "Bearer " + self.token)], end_stream=True)
        self.waiting[stream] = [tag, None, b""]

    def receive(self):
        """Answers that are complete: [(tag, status, body)]; a lost connection is opened again."""
        data = self.socket.recv(1 << 16)
        if not data:
            self.waiting.clear()
            self.open()
            return []
        done = []
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.ResponseReceived):
                self.waiting[event.stream_id][1] = dict(event.headers)[":status"]
            elif isinstance(event, h2.events.DataReceived):
                self.waiting[event.stream_id][2] += event.data
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                done.append(tuple(self.waiting.pop(event.stream_id)))
            elif isinstance(event, h2.events.StreamReset):
                self.waiting.pop(event.stream_id, None)
        self.flush()
        return done


acknowledged = {}
total = 0
users = [(user, Connection(token)) for user, token in spec["users"].items()]
next_mark = {user: 0 for user, _ in users}
server = Connection(spec["server"])


def mark(user, connection):
    n = next_mark[user]
    next_mark[user] += 1
    cid = spec["channels"][n % len(spec["channels"])]
    message = min(n // len(spec["channels"]) + 1, spec["messages"])
    connection.send("POST", f"/v1/channels/{cid}/read?message_id=m{message}", (cid, user, message))


def take(connection):
    global total
    for (cid, user, message), status, _ in connection.receive():
        if status == "200":
            total += 1
            acknowledged[cid, user] = max(acknowledged.get((cid, user), 0), message)


def settle():
    deadline = time.time() + 30
    for _, connection in users:
        while connection.waiting and time.time() < deadline:
            if select.select([connection.socket], [], [], 1)[0]:
                take(connection)


def check():
    settle()
    for cid in spec["channels"]:
        server.send("GET", f"/v1/channels/{cid}/read-state", cid)
        server.flush()
        rows = None
        while server.waiting:
            for _, status, body in server.receive():
                if status != "200":
                    return f"lost: read-state answered {status} {body.decode()}"
                rows = {row["user"]["id"]: row["last_read_seq"] for row in json.loads(body)["read"]}
        for user, _ in users:
            have, want = rows.get(user, 0), acknowledged.get((cid, user), 0)
            if have < want:
                return f"lost: {user} in {cid} was acknowledged {want}, the store has {have}"
    return f"ok {total}"


while True:
    for user, connection in users:
        while len(connection.waiting) < STREAMS:
            mark(user, connection)
        connection.flush()
    sockets = [connection.socket for _, connection in users]
    readable = select.select(sockets + [sys.stdin], [], [], 1)[0]
    for _, connection in users:
        if connection.socket in readable:
            take(connection)
    if sys.stdin in readable:
        line = sys.stdin.readline().strip()
        if line == "check":
            print(check(), flush=True)
        elif line in ("end", ""):
            break
