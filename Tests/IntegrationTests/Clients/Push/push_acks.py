"""Tickets and push acks by foreign clients: httpx with one body, python3-h2 with lines.

Python's hmac opens and signs tickets here, as Proto/tickets.md says.

usage: push_acks.py CASE SPECIFICATION

SPECIFICATION is a JSON file: `port` and `admin` of a cleartext gateway, `url` and `certificate` of another,
`server` (a token), `secret` (the file of the ticket secrets) and `store` (the port of the store).

Output lines: `rotate` asks the test to put another secret before the old one and to restart the second
gateway; the test answers `done` on standard input. The last line begins with `ok`.
"""
import base64, functools, hashlib, hmac, json, os, socket, struct, sys, time
import h2.config, h2.connection, h2.events, h2.settings, httpx
from metrics import metric
from waiting import eventually

with open(sys.argv[2]) as file:
    specification = json.load(file)
port, admin, server = (specification[name] for name in ("port", "admin", "server"))
as_server = {"authorization": "Bearer " + server}
clients = [
    httpx.Client(http1=False, http2=True, base_url=f"http://127.0.0.1:{port}", timeout=30),
    httpx.Client(http2=True, base_url=specification["url"], verify=specification["certificate"], timeout=30),
]


def check(holds, what):
    if not holds:
        raise SystemExit(f"fault: {what}")


def ask(method, path, body=None, gateway=0):
    answer = clients[gateway].request(method, path, headers=as_server, json=body)
    check(answer.status_code in (200, 201), f"{method} {path} answered {answer.status_code} {answer.text}")
    return answer.json()


def set_up(cid, messages, members=("alice", "bob", "carol")):
    ask("PUT", f"/v1/channels/{cid}", {"members": list(members)})
    entries = [{"cid": cid, "id": id, "user_id": "alice"} for id in messages]
    check(
        all(result["ok"] for result in ask("POST", "/v1/messages", {"messages": entries})["results"]),
        "messages are registered",
    )


def entry(cid, message, user):
    return {"cid": cid, "message_id": message, "user_id": user}


def mint(*entries, ttl=None, gateway=0):
    return ask("POST", "/v1/push/tickets", {"tickets": list(entries), **({"ttl": ttl} if ttl else {})}, gateway)[
        "tickets"
    ]


def verdict(result):
    return " ".join(result[name] for name in ("cid", "message_id", "user_id")) if result["ok"] else result["code"]


def present(*tickets, gateway=0):
    """Presents tickets as a device does: without any header."""
    answer = clients[gateway].post("/v1/push/acks", json={"tickets": list(tickets)})
    check(answer.status_code == 200 and answer.http_version == "HTTP/2", answer.text)
    return [verdict(result) for result in answer.json()["results"]]


def delivered(cid, message, user):
    members = ask("GET", f"/v1/channels/{cid}/messages/{message}/members?user_ids={user}")["members"]
    return members[0]["status"]


def secrets():
    with open(specification["secret"], "rb") as file:
        return file.read().split()


def opened(ticket):
    """The signed part of a ticket."""
    return base64.urlsafe_b64decode(ticket + "=" * (-len(ticket) % 4))[:-16]


@functools.cache
def store_name():
    """The store's 16 bytes: the last of its challenge (Proto/frames.md)."""
    hello = b"TDMK" + bytes([1, 1]) + os.urandom(16) + b"\0" + os.urandom(32) + b"\x80\x80\x40" + b"\0"
    with socket.create_connection(("127.0.0.1", specification["store"]), timeout=30) as connection, connection.makefile(
        "rb"
    ) as answers:
        connection.sendall(struct.pack(">IBBHI", 8 + len(hello), 1, 0, 0, 0) + hello)
        length, kind = struct.unpack(">IB", answers.read(5))
        check(kind == 2, f"kind {kind} for a hello")
        return answers.read(length - 1)[-16:]


def signed(part, key, version=2, store=None):
    part = bytes([version]) + hashlib.sha256(key).digest()[:1] + part[2:]
    purpose = b"tidemark ticket 1" if version == 1 else b"tidemark ticket 2" + (store or store_name())
    return (
        base64.urlsafe_b64encode(part + hmac.new(key, purpose + part, hashlib.sha256).digest()[:16])
        .decode()
        .rstrip("=")
    )


def with_expiry(part, seconds):
    end = next(index for index in range(2, len(part)) if part[index] < 128) + 1
    groups = bytearray()
    while seconds > 127:
        groups.append(seconds & 127 | 128)
        seconds >>= 7
    return part[:2] + bytes(groups) + bytes([seconds]) + part[end:]


def tickets():
    cid = "messaging:push"
    set_up(cid, ["m1", "m2", "m3", "m4"])
    made = mint(
        *[entry(cid, "m2", user) for user in ("bob", "carol")], entry(cid, "m9", "bob"), entry(cid, "m1", "eve")
    )
    bob, carol = made[:2]
    check(made[2:] == [{"code": "message_not_found"}, {"code": "member_not_found"}], f"{made}")
    check(all(len(ticket) <= 160 for ticket in (bob, carol)), "tickets are short")
    check(delivered(cid, "m2", "bob") == "sent", "making a ticket delivers nothing")
    check(present(bob, bob) == [f"{cid} m2 bob"] * 2, "a ticket can be used repeatedly")
    check(
        [delivered(cid, message, "bob") for message in ("m1", "m2", "m3")] == ["delivered", "delivered", "sent"],
        "its message and all earlier ones are delivered",
    )
    check(present(carol, gateway=1) == [f"{cid} m2 carol"], "another gateway accepts it")
    # Tickets that this service did not make, or that have expired.
    (key,), part = secrets(), opened(bob)
    check(signed(part, key) == bob, "a ticket is signed as Proto/tickets.md says")
    check(
        present(signed(part, key, version=1)) == [f"{cid} m2 bob"],
        "a ticket of version 1, which has no store, is still accepted",
    )
    now = int(time.time())
    refused = {
        "forged": bob[:-5] + ("A" if bob[-5] != "A" else "B") + bob[-4:],
        "truncated": bob[:-1],
        "half": bob[: len(bob) // 2],
        "of a foreign key": signed(part, b"a secret that no gateway of this service has"),
        "empty": "",
        "no ticket": "ticket",
        "of another store": signed(part, key, store=bytes(16)),
        "of a later version": signed(part, key, version=3),
        "with another user's row, unsigned": base64.urlsafe_b64encode(
            opened(carol) + base64.urlsafe_b64decode(bob + "=" * (-len(bob) % 4))[-16:]
        )
        .decode()
        .rstrip("="),
        # Signed with the right key, as if the key had leaked or the store were restored from elsewhere. The
        # check over the names differs.
        "with a check that does not agree": signed(part[:-5] + bytes([part[-5] ^ 1]) + part[-4:], key),
    }
    for what, ticket in refused.items():
        check(present(ticket) == ["ticket_invalid"], f"a ticket {what}: {present(ticket)}")
    check(present(signed(with_expiry(part, now - 1), key)) == ["ticket_expired"], "a ticket that has expired")
    check(present(signed(with_expiry(part, now + 60), key)) == [f"{cid} m2 bob"], "one that has not")
    brief = mint(entry(cid, "m3", "bob"), ttl=1)[0]
    time.sleep(2.1)
    check(present(brief) == ["ticket_expired"], "a ticket made for a second")
    # Tickets whose member, message or channel is removed after they were made.
    gone, left, deleted = (
        mint(entry(cid, "m4", "bob"))[0],
        mint(entry(cid, "m4", "carol"))[0],
        mint(entry(cid, "m4", "bob"))[0],
    )
    ask("POST", f"/v1/channels/{cid}/members", {"remove": ["carol"]})
    check(present(left) == ["not_a_member"], f"of a member who left: {present(left)}")
    ask("POST", f"/v1/channels/{cid}/members", {"add": ["carol"]})
    check(present(left) == ["not_a_member"], f"and has joined again: {present(left)}")
    ask("DELETE", f"/v1/channels/{cid}/messages/m4")
    check(
        present(deleted) == [f"{cid} m4 bob"],
        f"of a message that was deleted, which still marks its position: {present(deleted)}",
    )
    check(mint(entry(cid, "m4", "bob")) == [{"code": "message_deleted"}], "no ticket is made for a deleted message")
    ask("DELETE", f"/v1/channels/{cid}")
    check(present(gone) == ["channel_not_found"], f"of a channel that was deleted: {present(gone)}")
    set_up(cid, ["m1", "m2", "m3", "m4"])
    check(present(gone, bob) == ["channel_not_found"] * 2, f"of a recreated channel: {present(gone, bob)}")
    check(delivered(cid, "m4", "bob") == "sent", "nothing of the new channel is delivered")
    # A new secret, followed by the old one.
    old = mint(entry(cid, "m1", "bob"))[0]
    print("rotate", flush=True)
    sys.stdin.readline()
    new = mint(entry(cid, "m2", "bob"), gateway=1)[0]
    check(secrets()[1] == key and signed(opened(new), secrets()[0]) == new, "the first line signs")
    check(present(old, new, gateway=1) == [f"{cid} m1 bob", f"{cid} m2 bob"], "the second line is accepted too")
    check(present(new, gateway=0) == ["ticket_invalid"], "a gateway without the new secret rejects its tickets")
    return f"{len(refused)} tickets of no worth, expiry, removal, rotation"


class Lines:
    """One stream of lines over python3-h2."""

    def __init__(self, window=1 << 20):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        values = {h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window, h2.settings.SettingCodes.ENABLE_PUSH: 0}
        self.h2.local_settings = h2.settings.Settings(client=True, initial_values=values)
        self.h2.initiate_connection()
        if window:
            self.h2.increment_flow_control_window(1 << 22)
        self.flush()
        self.status, self.body, self.has_ended, self.was_reset, self.window_changes = None, b"", False, False, 0
        while self.window_changes < 1:  # The gateway's SETTINGS.
            self.receive()
        self.number = self.h2.get_next_available_stream_id()
        headers = [
            (":method", "POST"),
            (":path", "/v1/push/acks"),
            (":scheme", "http"),
            (":authority", "localhost"),
            ("content-type", "application/x-ndjson"),
        ]
        self.h2.send_headers(self.number, headers + [("authorization", "Bearer " + server)])
        self.flush()

    def flush(self):
        self.socket.sendall(self.h2.data_to_send())

    def send(self, data, end=False):
        """Sends data as far as the windows allow; reads what arrives while they are closed."""
        while data:
            room = min(self.h2.local_flow_control_window(self.number), self.h2.max_outbound_frame_size)
            if room == 0:
                self.receive()
                continue
            self.h2.send_data(self.number, data[:room])
            data = data[room:]
            self.flush()
        if end:
            self.h2.end_stream(self.number)
            self.flush()

    def receive(self):
        data = self.socket.recv(1 << 16)
        check(data, "the connection ends")
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.ResponseReceived):
                self.status = dict(event.headers)[":status"]
            elif isinstance(event, h2.events.DataReceived):
                self.body += event.data
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                self.has_ended = True
            elif isinstance(event, h2.events.StreamReset):
                self.was_reset = True
            elif isinstance(event, (h2.events.RemoteSettingsChanged, h2.events.WindowUpdated)):
                self.window_changes += 1
        self.flush()

    def answers(self, count=None):
        """Reads `count` answers, or all until the end."""
        while not self.has_ended and not self.was_reset and (count is None or self.body.count(b"\n") < count):
            self.receive()
        lines, self.body = self.body.split(b"\n")[:-1], b""
        return [verdict(json.loads(line)) for line in lines]


def line(cid, message, user):
    return json.dumps({**entry(cid, message, user), "provider": "fcm"}).encode() + b"\n"


def holds_no_requests():
    names = ("tidemark_gateway_request_streams", "tidemark_gateway_store_requests_in_flight")
    return all(metric(admin, name) == 0 for name in names)


def lines():
    cid, count = "messaging:lines", 300
    set_up(cid, [f"m{number}" for number in range(count)], ["alice"] + [f"user-{number}" for number in range(count)])
    good = [(line(cid, f"m{number}", f"user-{number}"), f"{cid} m{number} user-{number}") for number in range(count)]
    # Each line is answered before the next one is sent.
    stream = Lines()
    for data, expected in good[:20]:
        stream.send(data)
        check(stream.answers(1) == [expected], "answers arrive while the body is sent")
    # A line is split at every place: the rest arrives later.
    for place in range(1, len(good[20][0])):
        stream.send(good[20][0][:place])
        stream.send(good[20][0][place:])
    check(
        stream.answers(len(good[20][0]) - 1) == [good[20][1]] * (len(good[20][0]) - 1), "lines that come in two pieces"
    )
    # The body ends within a line. The client has closed its side, and gets all its answers.
    stream.send(b"".join(data for data, _ in good) + good[0][0][:-5], end=True)
    check(
        stream.answers() == [expected for _, expected in good] + ["invalid_json"] and not stream.was_reset,
        "a body that ends within a line",
    )
    # Every invalid line gets its error in its place.
    stream = Lines()
    wrong = [
        (b"{\n", "invalid_json"),
        (b"[1]\n", "invalid_field"),
        (b'{"ticket":"x"}\n', "ticket_invalid"),
        (b"x" * 9_000 + b"\n", "line_too_long"),
        (b'{"cid":"a"}\n', "invalid_field"),
        (b"\xff\xfe\n", "invalid_json"),
        (line("messaging:none", "m1", "bob"), "channel_not_found"),
        (line(cid, "m1", "eve"), "member_not_found"),
        (line(cid, "nothing", "alice"), "message_not_found"),
    ]
    mixed = [pair for index in range(200) for pair in (wrong[index % len(wrong)], good[index % count])]
    stream.send(b"\n\r\n".join(data for data, _ in mixed), end=True)
    check(stream.answers() == [expected for _, expected in mixed], "each invalid line has its code in its place")
    # A client that disconnects.
    stream = Lines()
    stream.send(good[0][0])
    check(stream.answers(1) == [good[0][1]], "one more")
    stream.send(good[1][0] * 200 + b"{")
    stream.h2.reset_stream(stream.number, error_code=8)
    stream.flush()
    eventually("the end of a reset stream's state", holds_no_requests)
    return f"{count} lines and more, cut, ended within, reset"


def silent():
    """Clients that send as much as they may and never read an answer use bounded memory, and block no other
    client."""
    cid, count = "messaging:silent", 60
    set_up(cid, ["m1"], ["alice", "bob"])
    body = line(cid, "m1", "bob") * 6_000
    streams = []
    for number in range(count):
        # Half of them give the stream no window; the other half give one and never read from the socket.
        stream = Lines(window=0 if number % 2 else 1 << 20)
        stream.socket.settimeout(0.5)
        window = min(stream.h2.local_flow_control_window(stream.number), len(body))
        while window > 0:
            size = min(window, stream.h2.max_outbound_frame_size)
            stream.h2.send_data(stream.number, body[:size])
            window -= size
        stream.flush()
        streams.append(stream)
    eventually("the opening of all streams", lambda: metric(admin, "tidemark_gateway_request_streams") == count)
    other = Lines()
    other.send(body, end=True)
    check(other.answers() == [f"{cid} m1 bob"] * 6_000, "a reading client is answered")
    for stream in streams:
        stream.socket.close()
    eventually("the end of the closed streams' state", holds_no_requests)
    return f"{count} streams that took no answer"


cases = {"tickets": tickets, "lines": lines, "silent": silent}
print("ok", cases[sys.argv[1]](), flush=True)
