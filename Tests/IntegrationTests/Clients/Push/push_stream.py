"""Sends push acks through one stream, NDJSON or frames, as fast as the gateway allows, and records those
answered ok.

usage: push_stream.py GATEWAY_PORT SPEC_JSON ndjson|frames
SPEC_JSON: {"server": token, "users": {user: token}, "channels": [cid...], "messages": N}

Message ids are m1..mN. The first user's acks go by ticket, the others' by name, message after message.

Commands on standard input:

- `count` prints the number of acks answered ok.
- `finish` sends no more acks, ends the stream's body, and waits for every answer and for the stream's end.
Then it reads the rows back, and prints `tally JSON` and `ok ACKNOWLEDGED` or `lost ...`.
"""
import collections, json, select, struct, sys
import h2.events
from h2_connection import Connection

port, spec, form = int(sys.argv[1]), json.load(open(sys.argv[2])), sys.argv[3]
PENDING = 400
# The most entries that fit one DATA frame.
PER_REQUEST = 200
channels, users = spec["channels"], list(spec["users"])
server = Connection(port, spec["server"])


def call(method, path, body=None):
    server.send(method, path, None, None if body is None else json.dumps(body).encode())
    server.flush()
    while True:
        for _, headers, answer in server.receive():
            if headers.get(":status") != "200":
                sys.exit(f"{method} {path}: {headers.get(':status')} {answer.decode()}")
            return json.loads(answer)


def fetch_tickets():
    """Tickets of the first user, by (cid, message number)."""
    wanted = [(cid, n) for n in range(1, spec["messages"] + 1) for cid in channels]
    tickets = {}
    for first in range(0, len(wanted), PER_REQUEST):
        some = wanted[first:first + PER_REQUEST]
        entries = [{"cid": cid, "message_id": f"m{n}", "user_id": users[0]} for cid, n in some]
        for key, ticket in zip(some, call("POST", "/v1/push/tickets", {"tickets": entries})["tickets"]):
            if not isinstance(ticket, str):
                sys.exit(f"no ticket for {key}: {ticket}")
            tickets[key] = ticket
    return tickets


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(text):
    data = text.encode()
    return varint(len(data)) + data


def frame(kind, correlation, payload):
    return struct.pack(">IBBHI", 8 + len(payload), kind, 0, 0, correlation) + payload


class Lines:
    path, content_type = "/v1/push/acks", "application/x-ndjson"

    def __init__(self):
        self.waiting = collections.deque()
        self.rest = b""

    def make(self, ack, ticket):
        self.waiting.append(ack)
        cid, user, n = ack
        entry = {"ticket": ticket} if ticket else {"cid": cid, "message_id": f"m{n}", "user_id": user}
        return json.dumps(entry).encode() + b"\n"

    def take(self, data):
        """Returns answers in the order of the acks: [(ack, code or None)]."""
        *lines, self.rest = (self.rest + data).split(b"\n")
        answers = []
        for line in lines:
            answer, ack = json.loads(line), self.waiting.popleft()
            if answer["ok"]:
                cid, user, n = ack
                if (answer["cid"], answer["user_id"], answer["message_id"]) != (cid, user, f"m{n}"):
                    sys.exit(f"wrong: {ack} was answered {answer}")
            answers.append((ack, None if answer["ok"] else answer["code"]))
        return answers


class Frames:
    path, content_type = "/v1/frames", "application/vnd.tidemark.frames"

    def __init__(self):
        self.waiting = {}
        self.correlation = 0
        self.rest = b""

    def make(self, ack, ticket):
        self.correlation += 1
        self.waiting[self.correlation] = ack
        cid, user, n = ack
        end = varint(0) + varint(0)
        if ticket:
            return frame(0x43, self.correlation, varint(1) + string(ticket) + end)
        return frame(0x40, self.correlation, string(cid) + varint(1) + string(user) + string(f"m{n}") + end)

    def take(self, data):
        data, answers, at = self.rest + data, [], 0
        while len(data) - at >= 4:
            length = struct.unpack_from(">I", data, at)[0]
            if len(data) - at < 4 + length:
                break
            kind, _, _, correlation = struct.unpack_from(">BBHI", data, at + 4)
            if correlation not in self.waiting:
                sys.exit(f"wrong: a reply of kind {kind} to {correlation}, which is not waited for")
            code = f"error {data[at + 12]}" if kind == 0x0F else None
            if code is None and kind not in (0xC0, 0xC3):
                sys.exit(f"wrong: a reply of kind {kind}")
            answers.append((self.waiting.pop(correlation), code))
            at += 4 + length
        self.rest = data[at:]
        return answers


class Stream(Connection):
    """One request whose body and answer are sent concurrently."""

    def begin(self, door):
        self.door, self.unsent, self.status, self.is_over = door, b"", None, False
        self.stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(self.stream, [
            (":method", "POST"), (":path", door.path), (":scheme", "http"), (":authority", "localhost"),
            ("authorization", "Bearer " + self.token), ("content-type", door.content_type)])

    def pump(self, is_last=False):
        while self.unsent:
            count = min(
                self.h2.local_flow_control_window(self.stream), self.h2.max_outbound_frame_size, len(self.unsent)
            )
            if count <= 0:
                break
            self.h2.send_data(self.stream, self.unsent[:count])
            self.unsent = self.unsent[count:]
        if is_last and not self.unsent:
            self.h2.end_stream(self.stream)
        self.flush()
        return not self.unsent

    def take(self):
        data, answers = self.socket.recv(1 << 16), []
        if not data:
            sys.exit("wrong: the connection was closed")
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.ResponseReceived):
                self.status = dict(event.headers)[":status"]
            elif isinstance(event, h2.events.DataReceived):
                if self.status != "200":
                    sys.exit(f"wrong: {self.status} {event.data.decode()}")
                answers += self.door.take(event.data)
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                self.is_over = True
            elif isinstance(event, (h2.events.StreamReset, h2.events.ConnectionTerminated)):
                sys.exit(f"wrong: {event}")
        self.flush()
        return answers


def check():
    for cid in channels:
        read = call("GET", f"/v1/channels/{cid}/read-state")["read"]
        rows = {row["user"]["id"]: row["last_delivered_seq"] for row in read}
        for user in users:
            have, want, most = rows.get(user, 0), acknowledged.get((cid, user), 0), sent.get((cid, user), 0)
            if have < want:
                return f"lost: {user} in {cid} was answered ok {want}, the store has {have}"
            if have > most:
                return f"wrong: {user} in {cid} has {have}, and {most} was the most that was sent"
    return f"ok {total}"


tickets = fetch_tickets()
acknowledged, sent, refusals = {}, {}, collections.Counter()
total = made = 0
door = Lines() if form == "ndjson" else Frames()
stream = Stream(port, spec["server"])
stream.begin(door)


def next_ack():
    global made
    cid, rest = channels[made % len(channels)], made // len(channels)
    user, n = users[rest % len(users)], min(rest // len(users) + 1, spec["messages"])
    made += 1
    sent[cid, user] = max(sent.get((cid, user), 0), n)
    return door.make((cid, user, n), tickets[cid, n] if user == users[0] else None)


def take():
    global total
    for (cid, user, n), code in stream.take():
        if code is None:
            total += 1
            acknowledged[cid, user] = max(acknowledged.get((cid, user), 0), n)
        else:
            refusals[code] += 1


is_finishing = False
while not stream.is_over:
    while not is_finishing and len(door.waiting) < PENDING:
        stream.unsent += next_ack()
    if not is_finishing:
        stream.pump()
    readable = select.select([stream.socket] + ([] if is_finishing else [sys.stdin]), [], [], 30)[0]
    if not readable and is_finishing:
        sys.exit(f"wrong: {len(door.waiting)} of {made} have no answer after 30 s")
    if stream.socket in readable:
        take()
    if sys.stdin in readable:
        line = sys.stdin.readline().strip()
        if line == "count":
            print(total, flush=True)
        elif line == "finish":
            is_finishing = True
            while not stream.pump():
                take()
            stream.pump(is_last=True)
        else:
            sys.exit("the test has ended")
if not is_finishing or door.waiting or door.rest:
    sys.exit(
        f"wrong: the stream has ended, {len(door.waiting)} of {made} without an answer, {len(door.rest)} bytes too many"
    )
print("tally " + json.dumps({"made": made, "ok": total, "refused": sum(refusals.values()), **refusals}), flush=True)
print(check(), flush=True)
