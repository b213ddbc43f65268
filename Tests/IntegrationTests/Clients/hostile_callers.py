"""Callers who ask too often or show tokens of no key, and a client that behaves beside them: on connections of their own, on one that a proxy shares among them, and behind a PROXY
header.

usage: hostile_callers.py CASE SPECIFICATION

The file says, as JSON: `gateway` (a port without TLS), `admin` (of its operations listener), `secret` (of HS256 tokens) and `server` (a token). 127.0.0.9 is a trusted proxy. The last line
on standard output begins with `ok`.
"""
import base64, hashlib, hmac, json, socket, struct, sys, threading, time, urllib.request
import h2.config, h2.connection, h2.events, h2.exceptions

with open(sys.argv[2]) as file:
    specification = json.load(file)
gateway, admin, secret, server = (specification[name] for name in ("gateway", "admin", "secret", "server"))
PROXY = "127.0.0.9"


def check(holds, what):
    if not holds:
        raise SystemExit(f"fault: {what}")


def token(user, key=secret):
    def part(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    claims = {"user_id": user, "exp": int(time.time()) + 3600, "n": time.monotonic_ns()}
    signed = part(b'{"alg":"HS256","typ":"JWT"}') + b"." + part(json.dumps(claims).encode())
    return (signed + b"." + part(hmac.new(key.encode(), signed, hashlib.sha256).digest())).decode()


def metric(name, **labels):
    text = urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=10).read().decode()
    lines = [line for line in text.splitlines() if line.startswith(name) and all(f'{key}="{value}"' in line for key, value in labels.items())]
    return sum(float(line.split()[-1]) for line in lines)


class Closed(Exception):
    pass


class Connection:
    """HTTP/2 in the clear, from an address of this machine, with bytes before it or not."""

    def __init__(self, address="127.0.0.1", first=b""):
        self.socket = socket.create_connection(("127.0.0.1", gateway), timeout=20, source_address=(address, 0))
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.answers = {}
        self.goaway = None
        try:
            self.socket.sendall(first + self.h2.data_to_send())
        except OSError:
            raise Closed()

    def send(self, path, bearer, method="GET", client=None):
        try:
            stream = self.h2.get_next_available_stream_id()
            headers = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "localhost")]
            if bearer:
                headers.append(("authorization", "Bearer " + bearer))
            if client:
                headers.append(("x-forwarded-for", client))
            self.h2.send_headers(stream, headers, end_stream=True)
            self.socket.sendall(self.h2.data_to_send())
        except (OSError, h2.exceptions.ProtocolError):
            raise Closed()
        return stream

    def begin(self, path, bearer, client, method="POST", kind="application/json"):
        """A request whose body is yet to come."""
        stream = self.h2.get_next_available_stream_id()
        headers = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "localhost"), ("content-type", kind), ("x-forwarded-for", client)]
        if bearer:
            headers.append(("authorization", "Bearer " + bearer))
        self.h2.send_headers(stream, headers)
        self.socket.sendall(self.h2.data_to_send())
        return stream

    def feed(self, stream, data, end=False):
        """As much as the windows let go at once; with `end` all of it, with a bound on the wait."""
        deadline = time.monotonic() + 15
        while data:
            room = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size)
            if room > 0:
                self.h2.send_data(stream, data[:room], end_stream=end and room >= len(data))
                data = data[room:]
                self.socket.sendall(self.h2.data_to_send())
            elif not end:
                return
            else:
                check(time.monotonic() < deadline, f"{len(data)} bytes of a body wait for a window")
                self.socket.settimeout(15)
                self.receive()

    def receive(self):
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            raise Closed()
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.ResponseReceived):
                headers = dict(event.headers)
                self.answers[event.stream_id] = [int(headers[":status"]), headers, b"", False]
            elif isinstance(event, h2.events.DataReceived):
                self.answers[event.stream_id][2] += event.data
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset)):
                self.answers.setdefault(event.stream_id, [0, {}, b"", False])[3] = True
            elif isinstance(event, h2.events.ConnectionTerminated):
                self.goaway = event.error_code
        try:
            self.socket.sendall(self.h2.data_to_send())
        except OSError:
            raise Closed()

    def take(self, stream):
        while not self.answers.get(stream, [0, 0, 0, False])[3]:
            self.receive()
        status, headers, body, _ = self.answers.pop(stream)
        return status, headers, body.decode()

    def ask(self, path, bearer, **options):
        return self.take(self.send(path, bearer, **options))


READ_STATE = "/v1/channels/messaging:c/read-state"


def set_up():
    connection = Connection()
    stream = connection.h2.get_next_available_stream_id()
    body = json.dumps({"members": ["bob", "alice"]}).encode()
    connection.h2.send_headers(stream, [(":method", "PUT"), (":path", "/v1/channels/messaging:c"), (":scheme", "http"), (":authority", "l"), ("authorization", "Bearer " + server), ("content-type", "application/json")])
    connection.h2.send_data(stream, body, end_stream=True)
    connection.socket.sendall(connection.h2.data_to_send())
    check(connection.take(stream)[0] == 201, "no channel was made")


def until_refused(connection, path, bearer, most=100, **options):
    """Statuses until the first 429, and its answer."""
    for count in range(most):
        status, headers, body = connection.ask(path, bearer, **options)
        if status == 429:
            problem = json.loads(body)
            check(problem["code"] == "rate_limited" and int(headers["retry-after"]) >= 1, f"{headers} {body}")
            return count, headers
    check(False, f"{most} requests were not too many")


def rates():
    """Five a second for a user, ten for an address, twenty for a server."""
    bob, alice = token("bob"), token("alice")
    own = Connection()
    status, headers, _ = own.ask(READ_STATE, bob)
    check(status == 200 and headers["ratelimit-policy"] == '"user";q=10;w=2' and headers["ratelimit"].startswith('"user";r=9;t='), headers)
    count, headers = until_refused(own, READ_STATE, bob)
    check(count >= 9 and headers["ratelimit"].startswith('"user";r=0;'), f"{count} {headers}")
    # Another token of the same user draws from the same bucket, from wherever; another user does not, nor does a server.
    check(Connection("127.0.0.3").ask(READ_STATE, token("bob"))[0] == 429, "another connection has another bucket")
    check(own.ask(READ_STATE, alice)[0] == 200, "alice pays for bob")
    # Making the channel has taken two.
    count, headers = until_refused(own, READ_STATE + "?user_id=bob", server)
    check(count >= 37 and headers["ratelimit-policy"] == '"server";q=40;w=2', f"{count} {headers}")
    time.sleep(int(headers["retry-after"]))
    check(own.ask(READ_STATE, bob)[0] == 200, "retry-after was too short")
    # An address, without any token: also for routes that do not exist.
    stranger = Connection("127.0.0.2")
    count, headers = until_refused(stranger, "/v1/nothing", None)
    check(count >= 19 and headers["ratelimit-policy"] == '"address";q=20;w=2', f"{count} {headers}")
    check(Connection("127.0.0.4").ask("/v1/nothing", None)[0] == 404, "another address pays")
    # Also where a token is missing, and for preflights.
    stranger = Connection("127.0.0.6")
    check(until_refused(stranger, READ_STATE, None)[0] >= 19, "who has no token is not counted")
    # A user whose address has none left keeps theirs.
    check(stranger.ask(READ_STATE, token("carol"))[1]["ratelimit-policy"].startswith('"address"'), "an address is not asked first")
    check(Connection("127.0.0.8").ask(READ_STATE, token("carol"))[1]["ratelimit"].startswith('"user";r=9'), "carol has paid for a refused request")
    # Behind a proxy the client that it names last pays, not the connection.
    proxy = Connection(PROXY)
    count, _ = until_refused(proxy, "/v1/nothing", None, client="203.0.113.9, 192.0.2.1")
    check(count >= 19, count)
    check(proxy.ask("/v1/nothing", None, client="192.0.2.1, 203.0.113.9")[0] == 404, "the first entry counts")
    check(proxy.ask(READ_STATE, alice, client="192.0.2.2")[0] == 200, "a neighbour on the proxy's connection pays")
    # Whoever is no proxy names nobody.
    stranger = Connection("127.0.0.5")
    check(sum(stranger.ask("/v1/nothing", None, client=f"192.0.2.{n}")[0] == 429 for n in range(40)) > 0, "a stranger chose its address")
    return f"{metric('tidemark_gateway_rate_limited_total'):.0f} requests were refused"


class Neighbour(threading.Thread):
    """Asks 50 times a second on one connection, every fifth time with a token that is new."""

    def __init__(self, connection, client=None):
        super().__init__(daemon=True)
        self.connection, self.client = connection, client
        self.times, self.faults, self.ends = [], [], False

    def run(self):
        bearer = token("bob")
        while not self.ends:
            if len(self.times) % 5 == 0:
                bearer = token("bob")
            start = time.monotonic()
            try:
                status = self.connection.ask(READ_STATE, bearer, client=self.client)[0]
            except Closed:
                self.faults.append("closed")
                return
            if status != 200:
                self.faults.append(status)
            self.times.append(time.monotonic() - start)
            time.sleep(max(0, 0.02 - self.times[-1]))

    def finish(self):
        self.ends = True
        self.join(30)
        check(not self.faults and len(self.times) > 10, f"{len(self.faults)} of {len(self.times)} answers: {self.faults[:3]}")
        times = sorted(self.times)
        return f"{len(times)} answers, p99 {times[len(times) * 99 // 100] * 1000:.0f} ms"


def guess(connection, deadline, client=None):
    """Tokens of another key, as fast as they are answered; what came of them."""
    statuses = {}
    pending = []
    try:
        while time.monotonic() < deadline:
            pending += [connection.send(READ_STATE, token("bob", "x" * 32), client=client) for _ in range(20)]
            for stream in pending:
                status = connection.take(stream)[0]
                statuses[status] = statuses.get(status, 0) + 1
            pending = []
    except Closed:
        statuses["closed"] = 1
    return statuses


def bad_tokens():
    neighbour = Neighbour(Connection())
    neighbour.start()
    deadline = time.monotonic() + 3
    totals = {}

    def attack():
        while time.monotonic() < deadline:
            try:
                for what, count in guess(Connection("127.0.0.2"), deadline).items():
                    totals[what] = totals.get(what, 0) + count
            except Closed:
                pass

    attackers = [threading.Thread(target=attack, daemon=True) for _ in range(4)]
    for attacker in attackers:
        attacker.start()
    for attacker in attackers:
        attacker.join(30)
    told = neighbour.finish()
    # 200 at once and 100 a second are looked at, and those that come while others are; a connection ends after 64 in a row.
    check(totals.get(401, 0) <= 1500 and totals.get(429, 0) > 0 and totals.get("closed", 0) > 0, totals)
    check(metric("tidemark_gateway_connections_ended_for_tokens_total") > 0, "no connection was ended")
    check(set(totals) <= {401, 429, "closed"}, totals)
    return f"{told}; the attacker: {totals}"


def bad_tokens_behind_a_proxy():
    shared = Connection(PROXY)
    bearer = token("alice")
    check(shared.ask(READ_STATE, bearer, client="192.0.2.2")[0] == 200, "alice is refused")
    statuses = {}
    slowest = 0
    for count in range(400):
        status = shared.ask(READ_STATE, token("bob", "x" * 32), client="192.0.2.1")[0]
        statuses[status] = statuses.get(status, 0) + 1
        if count % 4 == 0:
            start = time.monotonic()
            check(shared.ask(READ_STATE, token("bob"), client="192.0.2.2")[0] == 200, "a neighbour on the proxy's connection is refused")
            slowest = max(slowest, time.monotonic() - start)
    check(statuses.get(429, 0) > 0 and set(statuses) == {401, 429}, statuses)
    time.sleep(1.5)
    check(shared.ask(READ_STATE, token("alice"), client="192.0.2.2")[0] == 200, "the proxy's connection was ended")
    return f"the attacker: {statuses}; the neighbour's slowest {slowest * 1000:.0f} ms"


def shared_connection():
    """What one client holds on a proxy's connection stops no other on it."""
    shared = Connection(PROXY)
    attacker, neighbour, bob = "192.0.2.1", "192.0.2.2", token("bob")
    body = b"{" + b" " * 200_000 + b"}"

    def read(what):
        stream = shared.begin("/v1/channels/messaging:c/read", bob, neighbour)
        shared.feed(stream, body, end=True)
        status, _, answer = shared.take(stream)
        check(status == 200, f"beside {what}: {status} {answer}")

    # Bodies that do not end, without a token.
    for _ in range(24):
        shared.feed(shared.begin("/v1/channels/messaging:x", None, attacker, method="PUT"), b" " * 400_000)
    read("bodies that do not end")
    # Lines that wait for their server's rate.
    lines = b'{"ticket":"x"}\n' * 20_000
    for _ in range(20):
        shared.feed(shared.begin("/v1/push/acks", server, attacker, kind="application/x-ndjson"), lines)
    read("lines that wait")
    # A large answer that is never read, over and over, from many addresses of one network.
    for number in range(200):
        shared.send("/v1/openapi.yaml", None, client=f"2001:db8:5::{number:x}")
    read("documents that are not read")
    return f"{metric('tidemark_gateway_held_bytes') / 1e6:.1f} MB are held"


def proxy_headers():
    """A balancer in TCP mode says whose a connection is."""

    def text(client):
        return f"PROXY TCP4 {client} 127.0.0.1 50000 {gateway}\r\n".encode()

    def binary(client, command=1):
        return b"\r\n\r\n\0\r\nQUIT\n" + struct.pack(">BBH", 0x20 | command, 0x11, 15) + socket.inet_aton(client) + socket.inet_aton("127.0.0.1") + struct.pack(">HH", 50000, gateway) + b"\x04\0\0"

    for number, header in enumerate((text, binary)):
        client = f"192.0.2.{number + 1}"
        first = Connection(PROXY, header(client))
        until_refused(first, "/v1/nothing", None)
        check(Connection(PROXY, header(client)).ask("/v1/nothing", None)[0] == 429, "another connection of the client has another bucket")
        # Its own claim does not count there.
        check(first.ask("/v1/nothing", None, client="192.0.2.99")[0] == 429, "x-forwarded-for was believed")
        check(Connection(PROXY, header(f"192.0.2.{number + 11}")).ask("/v1/nothing", None)[0] == 404, "another client pays")
    # The proxy itself, as for a health check.
    check(Connection(PROXY, binary("0.0.0.0", command=0)).ask("/v1/nothing", None)[0] == 404, "LOCAL is refused")
    check(Connection(PROXY, b"PROXY UNKNOWN\r\n").ask("/v1/nothing", None)[0] == 404, "UNKNOWN is refused")
    # Without a header; with one that is broken; from an address that is no proxy's.
    for address, header in ((PROXY, b""), (PROXY, b"PROXY TCP4 nobody 127.0.0.1 1 2\r\n"), (PROXY, b"PROXY " + b"x" * 200), ("127.0.0.2", text("192.0.2.1"))):
        try:
            refused = Connection(address, header)
            refused.ask("/v1/nothing", None)
            check(False, f"{address} {header[:20]} was taken")
        except Closed:
            pass
    check(Connection("127.0.0.7").ask("/v1/nothing", None)[0] == 404, "who is no proxy needs no header")
    return "PROXY headers of both versions"


cases = {case.__name__: case for case in (rates, bad_tokens, bad_tokens_behind_a_proxy, shared_connection, proxy_headers)}
set_up()
print("ok", cases[sys.argv[1]](), flush=True)
