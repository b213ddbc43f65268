"""Tokens that are revoked by their ids, over two gateways of one store.

Arguments: the case, the port of a gateway with TLS, its certificate, the port of a cleartext gateway, and
the file of the secret that signs tokens."""
import datetime, json, select, struct, sys, time
import h2.config, h2.connection, h2.events
from h2_stream import connect
from access_token import sign
from waiting import eventually_equal

PART, TLS, CERTIFICATE, CLEAR, SECRET = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5]
GATEWAYS = {"tls": (TLS, CERTIFICATE), "clear": (CLEAR, None)}
PATIENCE = 20


def expect(is_so, what):
    if not is_so:
        print("not so:", what)
        sys.exit(1)


def token(**claims):
    with open(SECRET, "rb") as file:
        secret = file.readline().rstrip(b"\r\n")
    return sign(secret, json.dumps(claims).encode())


CI, OTHER, PHONE = token(server=True, jti="ci/1"), token(server=True, jti="other"), token(user_id="alice", jti="phone")
LAPTOP, PLAIN = token(user_id="alice", jti="laptop"), token(server=True)


class Caller:
    """A persistent connection, with sequential requests and concurrent streams."""

    def __init__(self, gateway):
        self.socket = connect(*GATEWAYS[gateway])
        self.name = gateway
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.status, self.body, self.ended = {}, {}, set()
        self.flush()

    def flush(self):
        self.socket.sendall(self.h2.data_to_send())

    def begin(self, method, path, credential, kind=None, body=None, ends=True):
        stream = self.h2.get_next_available_stream_id()
        headers = [(":method", method), (":path", path), (":scheme", "https"), (":authority", "localhost"),
                   ("authorization", "Bearer " + credential)]
        if kind:
            headers.append(("content-type", kind))
        self.h2.send_headers(stream, headers, end_stream=ends and body is None)
        if body is not None:
            self.h2.send_data(stream, body, end_stream=ends)
        self.body[stream] = b""
        self.flush()
        return stream

    def receive(self, seconds):
        """Reads for that time. Returns False if nothing arrives."""
        pending = getattr(self.socket, "pending", lambda: 0)()
        if not pending and not select.select([self.socket], [], [], seconds)[0]:
            return False
        data = self.socket.recv(1 << 16)
        expect(data, f"{self.name}: the connection stays")
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.ResponseReceived):
                self.status[event.stream_id] = int(dict(event.headers)[":status"])
            elif isinstance(event, h2.events.DataReceived):
                self.body[event.stream_id] += event.data
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset)):
                self.ended.add(event.stream_id)
        self.flush()
        return True

    def wait(self, is_so, what):
        deadline = time.monotonic() + PATIENCE
        while not is_so():
            expect(time.monotonic() < deadline, f"{self.name}: {what} within {PATIENCE} s")
            self.receive(0.1)

    def call(self, method, path, credential, body=None):
        """Returns the status, and the code of a problem or the answer."""
        data = None if body is None else json.dumps(body).encode()
        stream = self.begin(method, path, credential, None if body is None else "application/json", data)
        self.wait(lambda: stream in self.ended, f"an answer to {method} {path}")
        answer = json.loads(self.body[stream])
        return self.status[stream], answer.get("code", answer)

    def verdict(self, credential):
        status, answer = self.call("GET", "/v1/users/alice", credential)
        return answer if status != 200 else "served"

    def wait_for(self, verdict, credential):
        eventually_equal(f"an answer of {self.name}", verdict, lambda: self.verdict(credential))

    def events(self, credential):
        stream = self.begin(
            "GET", "/v1/events" + ("" if credential in (PHONE, LAPTOP) else "?user_id=alice"), credential
        )
        self.wait(lambda: b"id: " in self.body[stream], "the first id of a stream of events")
        return stream

    def frames(self, credential):
        ping = struct.pack(">IBBHI", 16, 0x05, 0, 0, 7) + bytes(8)
        stream = self.begin("POST", "/v1/frames", credential, "application/vnd.tidemark.frames", ping, ends=False)
        self.wait(lambda: len(self.body[stream]) == 20, "a pong")
        return stream

    def acks(self, credential):
        line = b'{"cid":"messaging:none","message_id":"m","user_id":"bob"}\n'
        stream = self.begin("POST", "/v1/push/acks", credential, "application/x-ndjson", line, ends=False)
        self.wait(lambda: b"\n" in self.body[stream], "an answer to a line")
        return stream

    def wait_for_end(self, stream, said):
        self.wait(lambda: stream in self.ended, "the end of a stream")
        expect(said in self.body[stream], f"{self.name}: {said} in {self.body[stream]}")


def path(name):
    return "/v1/tokens/" + name.replace("/", "%2F")


def expiry(seconds):
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + "%03dZ" % (at.microsecond // 1000)


def revoke():
    # More connections than a gateway has event loops on most machines.
    near, far = [Caller("tls") for _ in range(6)], [Caller("clear") for _ in range(6)]
    for caller in near + far:
        for credential in (CI, OTHER, PHONE, LAPTOP, PLAIN):
            expect(caller.verdict(credential) == "served", f"{caller.name}: every token is served before")
    ending = [(caller, caller.events(CI), b"the token has been revoked") for caller in (near[0], far[0])]
    ending += [(caller, caller.frames(CI), b"the token has been revoked") for caller in (near[1], far[1])]
    ending += [(caller, caller.acks(CI), b"token_revoked") for caller in (near[2], far[2])]
    phones = [(caller, caller.events(PHONE)) for caller in (near[3], far[3])]
    staying = [(caller, caller.events(LAPTOP)) for caller in (near[0], far[0])] + [(near[1], near[1].frames(OTHER))]
    until = expiry(86_400)
    status, answer = near[5].call("PUT", path("ci/1"), CI, {"revoked": True, "expires_at": until})
    expect(
        (status, answer) == (200, {"jti": "ci/1", "revoked": True, "expires_at": until}), f"revoked by itself: {answer}"
    )
    for caller in near + [Caller("tls")]:
        expect(caller.verdict(CI) == "token_revoked", "refused at once where it was revoked")
    for caller in far:
        caller.wait_for("token_revoked", CI)
    expect(Caller("clear").verdict(CI) == "token_revoked", "refused on a new connection")
    for caller, stream, said in ending:
        caller.wait_for_end(stream, said)
    # A user's token, through the other gateway.
    status, answer = far[5].call("PUT", path("phone"), OTHER, {"revoked": True, "expires_at": until})
    expect(status == 200, answer)
    for caller in far:
        expect(caller.verdict(PHONE) == "token_revoked", "a user's token is refused at once")
    for caller in near:
        caller.wait_for("token_revoked", PHONE)
    for caller, stream in phones:
        caller.wait_for_end(stream, b"the token has been revoked")
    for caller, stream in staying:
        caller.receive(0)
        expect(stream not in caller.ended, f"{caller.name}: other tokens' streams continue")
    for caller in near + far:
        for credential in (OTHER, LAPTOP, PLAIN):
            expect(caller.verdict(credential) == "served", f"{caller.name}: other tokens stay valid")
    for field, body in (("revoked", {}), ("expires_at", {"revoked": True}),
                        ("expires_at", {"revoked": True, "expires_at": expiry(-1)}),
                        ("expires_at", {"revoked": True, "expires_at": expiry(3_662 * 86_400)})):
        stream = near[0].begin("PUT", path("x"), OTHER, "application/json", json.dumps(body).encode())
        near[0].wait(lambda: stream in near[0].ended, "a refusal")
        problem = json.loads(near[0].body[stream])
        expect(problem["code"] == "invalid_field" and field in problem["detail"], f"{body}: {problem}")


def after_restart():
    """The store was killed and restarted, and so was the cleartext gateway."""
    near, far = Caller("tls"), Caller("clear")
    for caller in (near, far):
        for credential in (CI, PHONE):
            expect(caller.verdict(credential) == "token_revoked", f"{caller.name}: still revoked")
        for credential in (OTHER, LAPTOP, PLAIN):
            expect(caller.verdict(credential) == "served", f"{caller.name}: others are served")
    status, answer = far.call("GET", path("ci/1"), OTHER)
    expect(status == 200 and answer["revoked"] is True and "expires_at" in answer, answer)
    expect(
        far.call("PUT", path("ci/1"), OTHER, {"revoked": False}) == (200, {"jti": "ci/1", "revoked": False}),
        "revocation removed",
    )
    expect(far.verdict(CI) == "served", "served at once where the revocation was removed")
    near.wait_for("served", CI)
    # The revocation expires by itself, by the store's time.
    status, answer = near.call("PUT", path("ci/1"), CI, {"revoked": True, "expires_at": expiry(2)})
    expect(status == 200 and answer["revoked"] is True, answer)
    expect(near.verdict(CI) == "token_revoked", "revoked for two seconds")
    for caller in (near, far):
        caller.wait_for("served", CI)
    status, answer = near.call("GET", path("ci/1"), CI)
    expect((status, answer) == (200, {"jti": "ci/1", "revoked": False}), answer)


def restored():
    """The store was restored from a backup."""
    for caller in (Caller("tls"), Caller("clear")):
        expect(caller.verdict(PHONE) == "token_revoked", f"{caller.name}: revoked in the backup too")
        expect(caller.verdict(OTHER) == "served", f"{caller.name}: others are served")


{"revoke": revoke, "after-restart": after_restart, "restored": restored}[PART]()
print("ok")
