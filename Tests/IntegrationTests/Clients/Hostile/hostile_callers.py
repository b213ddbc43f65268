"""Callers that send too many requests, or tokens of an unknown key, beside a well-behaved client.

The client has its own connection, shares one through a proxy, or is behind a PROXY header.

usage: hostile_callers.py CASE SPECIFICATION

SPECIFICATION is a JSON file: `gateway` (a port without TLS), `admin` (of its operations listener), `secret`
(of HS256 tokens) and `server` (a token). 127.0.0.9 is a trusted proxy. The last line on standard output
begins with `ok`.
"""
import itertools, json, select, socket, struct, sys, threading, time
import h2.config, h2.connection, h2.events, h2.exceptions, h2.settings
from access_token import sign
from metrics import metric

with open(sys.argv[2]) as file:
    specification = json.load(file)
gateway, admin, secret, server = (specification[name] for name in ("gateway", "admin", "secret", "server"))
PROXY = "127.0.0.9"


def check(holds, what):
    if not holds:
        raise SystemExit(f"fault: {what}")


def token(user, key=secret):
    claims = {"user_id": user, "exp": int(time.time()) + 3600, "n": time.monotonic_ns()}
    return sign(key.encode(), json.dumps(claims).encode())


class Closed(Exception):
    pass


class Connection:
    """A cleartext HTTP/2 connection from an address of this machine, optionally with bytes before it."""

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

    def send(self, path, bearer, method="GET", client=None, more=()):
        try:
            stream = self.h2.get_next_available_stream_id()
            headers = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "localhost"), *more]
            if bearer:
                headers.append(("authorization", "Bearer " + bearer))
            if client:
                headers.append(("x-forwarded-for", client))
            self.h2.send_headers(stream, headers, end_stream=True)
            self.socket.sendall(self.h2.data_to_send())
        except (OSError, h2.exceptions.ProtocolError):
            raise Closed()
        return stream

    def begin(self, path, bearer, client=None, method="POST", kind="application/json"):
        """Begins a request whose body follows later."""
        stream = self.h2.get_next_available_stream_id()
        headers = [
            (":method", method),
            (":path", path),
            (":scheme", "http"),
            (":authority", "localhost"),
            ("content-type", kind),
        ]
        if client:
            headers.append(("x-forwarded-for", client))
        if bearer:
            headers.append(("authorization", "Bearer " + bearer))
        self.h2.send_headers(stream, headers)
        self.socket.sendall(self.h2.data_to_send())
        return stream

    def feed(self, stream, data, end=False):
        """Sends as much as the windows allow at once; with `end` waits, up to a limit, to send everything."""
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

    def first(self, stream):
        """Returns the answer's status and headers, before its end."""
        while stream not in self.answers:
            self.receive()
        return self.answers[stream][:3]

    def ask(self, path, bearer, **options):
        return self.take(self.send(path, bearer, **options))


READ_STATE = "/v1/channels/messaging:c/read-state"


def set_up():
    connection = Connection()
    stream = connection.h2.get_next_available_stream_id()
    body = json.dumps({"members": ["bob", "alice"]}).encode()
    connection.h2.send_headers(
        stream,
        [
            (":method", "PUT"),
            (":path", "/v1/channels/messaging:c"),
            (":scheme", "http"),
            (":authority", "l"),
            ("authorization", "Bearer " + server),
            ("content-type", "application/json"),
        ],
    )
    connection.h2.send_data(stream, body, end_stream=True)
    connection.socket.sendall(connection.h2.data_to_send())
    check(connection.take(stream)[0] == 201, "the channel was not created")


def until_refused(connection, path, bearer, most=100, **options):
    """Repeats a request until the first 429; returns the statuses and that answer."""
    for count in range(most):
        status, headers, body = connection.ask(path, bearer, **options)
        if status == 429:
            problem = json.loads(body)
            check(problem["code"] == "rate_limited" and int(headers["retry-after"]) >= 1, f"{headers} {body}")
            return count, headers
    check(False, f"{most} requests were not limited")


def rates():
    """Five a second for a user, ten for an address, twenty for a server."""
    bob, alice = token("bob"), token("alice")
    own = Connection()
    status, headers, _ = own.ask(READ_STATE, bob)
    check(
        status == 200
        and headers["ratelimit-policy"] == '"user";q=10;w=2'
        and headers["ratelimit"].startswith('"user";r=9;t='),
        headers,
    )
    count, headers = until_refused(own, READ_STATE, bob)
    check(count >= 9 and headers["ratelimit"].startswith('"user";r=0;'), f"{count} {headers}")
    # Another token of the same user uses the same bucket, from any address. Another user does not, nor does a
    # server.
    other = Connection("127.0.0.3")
    # A bucket of its own would take ten requests.
    for attempt in range(5):
        status = other.ask(READ_STATE, token("bob"))[0]
        if status == 429:
            break
        # On a busy machine the user has room again by now.
        until_refused(own, READ_STATE, bob)
    check(status == 429, "another connection has another bucket")
    check(own.ask(READ_STATE, alice)[0] == 200, "alice's bucket is used for bob")
    # Making the channel has used two.
    count, headers = until_refused(own, READ_STATE + "?user_id=bob", server)
    check(count >= 37 and headers["ratelimit-policy"] == '"server";q=40;w=2', f"{count} {headers}")
    time.sleep(int(headers["retry-after"]))
    check(own.ask(READ_STATE, bob)[0] == 200, "retry-after was too short")
    # An address without any token: also for routes that do not exist.
    stranger = Connection("127.0.0.2")
    count, headers = until_refused(stranger, "/v1/nothing", None)
    check(count >= 19 and headers["ratelimit-policy"] == '"address";q=20;w=2', f"{count} {headers}")
    check(Connection("127.0.0.4").ask("/v1/nothing", None)[0] == 404, "another address's bucket is used")
    # Also where a token is missing, and for preflights.
    stranger = Connection("127.0.0.6")
    check(until_refused(stranger, READ_STATE, None)[0] >= 19, "callers without a token are not counted")
    # An exhausted address does not use up the bucket of its user.
    for attempt in range(20):
        user = f"carol-{attempt}"
        status, headers, _ = stranger.ask(READ_STATE, token(user))
        if status == 429:
            break
        # On a busy machine the address has room again by now.
        until_refused(stranger, READ_STATE, None)
    check(
        status == 429 and headers["ratelimit-policy"].startswith('"address"'),
        f"the address's bucket is not checked first: {status} {headers}",
    )
    check(
        Connection("127.0.0.8").ask(READ_STATE, token(user))[1]["ratelimit"].startswith('"user";r=9'),
        "a refused request used carol's bucket",
    )
    # Behind a proxy the bucket is that of the last client that the proxy names, not that of the connection.
    proxy = Connection(PROXY)
    count, _ = until_refused(proxy, "/v1/nothing", None, client="203.0.113.9, 192.0.2.1")
    check(count >= 19, count)
    check(proxy.ask("/v1/nothing", None, client="192.0.2.1, 203.0.113.9")[0] == 404, "the first entry counts")
    check(
        proxy.ask(READ_STATE, alice, client="192.0.2.2")[0] == 200,
        "another client on the proxy's connection is limited",
    )
    # Where the headers are too large for the proxy's field, the client's own does not count.
    long = [("x-forwarded-for", "192.0.2.7")] + [(f"x-{number}", "x" * 1_000) for number in range(20)]
    for _ in range(40):
        status, _, _ = proxy.ask("/v1/nothing", None, client="192.0.2.8", more=long)
        check(status in (431, 429), f"{status} for headers of 20 KB")
    status, headers, _ = proxy.ask("/v1/nothing", None, client="192.0.2.7")
    check(
        (status, headers["ratelimit"][:14]) == (404, '"address";r=19'), f"another's rate was used: {status} {headers}"
    )
    # A caller that is not a trusted proxy cannot name a client.
    stranger = Connection("127.0.0.5")
    check(
        sum(stranger.ask("/v1/nothing", None, client=f"192.0.2.{n}")[0] == 429 for n in range(40)) > 0,
        "an untrusted caller chose its address",
    )
    return f"{metric(admin, 'tidemark_gateway_rate_limited_total'):.0f} requests were refused"


class WellBehavedClient(threading.Thread):
    """Sends 50 requests a second on one connection, whether earlier ones are answered or not, every fifth with a new
    token.

    `attack`, of another client on the same connection, is continued after each request.
    """

    def __init__(self, connection, client=None, attack=()):
        super().__init__(daemon=True)
        self.connection, self.client, self.attack = connection, client, iter(attack)
        self.times, self.faults, self.ends = [], [], False

    def run(self):
        try:
            self.load()
        except Closed:
            self.faults.append("closed")

    def load(self):
        sent, at, count = {}, time.monotonic(), 0
        while sent or not self.ends:
            if not self.ends and time.monotonic() >= at:
                if count % 5 == 0:
                    bearer = token("bob")
                sent[self.connection.send(READ_STATE, bearer, client=self.client)] = at
                at, count = at + 0.02, count + 1
                next(self.attack, None)
            if select.select([self.connection.socket], [], [], max(0, min(0.02, at - time.monotonic())))[0]:
                self.connection.receive()
            for stream in [stream for stream in sent if self.connection.answers.get(stream, [0, 0, 0, False])[3]]:
                status = self.connection.take(stream)[0]
                if status != 200:
                    self.faults.append(status)
                self.times.append(time.monotonic() - sent.pop(stream))

    def finish(self):
        self.ends = True
        self.join(60)
        check(not self.is_alive(), f"the well-behaved client has {len(self.times)} answers, and waits for more")
        check(
            not self.faults and len(self.times) > 10,
            f"{len(self.faults)} of {len(self.times)} answers: {self.faults[:3]}",
        )
        times = sorted(self.times)
        return f"{len(times)} answers, p99 {times[len(times) * 99 // 100] * 1000:.0f} ms"


def guess(connections, guesses, deadline):
    """Sends tokens of another key over all connections, as fast as they are answered, until the deadline, and on a slow
    machine until one is refused unverified. Returns the counts of the outcomes."""
    outcomes = {}
    while time.monotonic() < deadline or 429 not in outcomes and time.monotonic() < deadline + 30:
        sent = []
        for place, connection in enumerate(connections):
            try:
                connection = connections[place] = connection or Connection("127.0.0.2")
                sent += [(place, connection.send(READ_STATE, next(guesses))) for _ in range(10)]
            except Closed:
                connections[place] = None
        for place, stream in sent:
            try:
                status = connections[place].take(stream)[0] if connections[place] else None
            except Closed:
                connections[place], status = None, "closed"
            if status:
                outcomes[status] = outcomes.get(status, 0) + 1
    return outcomes


def bad_tokens(count=4):
    """Tokens of another key, over a number of connections of one address."""
    # Signed beforehand, so that this client's own work does not limit the rate.
    guesses = itertools.cycle([token("bob", "x" * 32) for _ in range(4_000)])
    well_behaved_client = WellBehavedClient(Connection())
    well_behaved_client.start()
    begin = time.monotonic()
    totals = guess([None] * count, guesses, begin + 3)
    seconds = time.monotonic() - begin
    client_report = well_behaved_client.finish()
    # The gateway verifies 200 at once and 100 a second, plus those in flight; a connection closes after 64
    # bad tokens in a row.
    check(totals.get(401, 0) <= 1200 + 100 * seconds and totals.get(429, 0) > 0, totals)
    check(set(totals) <= {401, 429, "closed"}, totals)
    if count == 4:
        check(totals.get("closed", 0) > 0, totals)
        check(metric(admin, "tidemark_gateway_connections_ended_for_tokens_total") > 0, "no connection was ended")
    return f"{client_report}; the attacker: {totals}"


def bad_tokens_of_many_connections():
    return bad_tokens(40)


def malformed_tokens():
    """Tokens that break a rule, most of them with a good signature: each is refused for its reason."""

    def signed(head, payload):
        return sign(secret.encode(), payload, head)

    head = b'{"alg":"HS256","typ":"JWT"}'
    end = int(time.time()) + 3600
    plain = '{"user_id":"bob","exp":%d}' % end
    broken = [
        (signed(head, b'{"user_id":"eve","user_id":"bob","exp":%d}' % end), "token_malformed"),
        (signed(head, plain.encode("utf-16")), "token_malformed"),
        (signed(head, plain.encode("utf-16-le")), "token_malformed"),
        (signed(head, b'{"user_id":"b\xff","exp":%d}' % end), "token_malformed"),
        (signed(b'{"alg":"EdDSA","typ":"JWT"}', plain.encode()), "token_algorithm_not_allowed"),
        (signed(b'{"alg":"ES256","typ":"JWT"}', plain.encode()), "token_algorithm_not_allowed"),
        (signed(b'{"alg":"none","typ":"JWT"}', plain.encode()), "token_algorithm_not_allowed"),
    ]
    well_behaved_client = WellBehavedClient(Connection())
    well_behaved_client.start()
    # The same claims, in order, are accepted.
    check(Connection("127.0.0.4").ask(READ_STATE, signed(head, plain.encode()))[0] == 200, "a good token is refused")
    codes, deadline = {}, time.monotonic() + 3
    while time.monotonic() < deadline:
        connection = Connection("127.0.0.4")
        for bearer, code in broken * 10:
            status, _, body = connection.ask(READ_STATE, bearer)
            found = json.loads(body)["code"]
            check((status, found) in ((401, code), (429, "rate_limited")), f"{code}: {status} {body}")
            codes[found] = codes.get(found, 0) + 1
    check(set(codes) >= {code for _, code in broken}, codes)
    return f"{codes}; {well_behaved_client.finish()}"


def bad_tokens_behind_a_proxy():
    """Bad tokens of one client on a proxy's connection, beside another client of the same connection."""
    shared, sent = Connection(PROXY), []
    check(shared.ask(READ_STATE, token("alice"), client="192.0.2.2")[0] == 200, "alice is refused")
    # Signed beforehand; 500 a second, five times the limit.
    guesses = [token("bob", "x" * 32) for _ in range(1_000)]

    def attack():
        while guesses:
            sent.extend(shared.send(READ_STATE, guesses.pop(), client="192.0.2.1") for _ in range(10))
            yield

    well_behaved_client = WellBehavedClient(shared, "192.0.2.2", attack())
    well_behaved_client.start()
    time.sleep(3)
    figures = well_behaved_client.finish()
    statuses = {}
    for stream in sent:
        status = shared.take(stream)[0]
        statuses[status] = statuses.get(status, 0) + 1
    check(statuses.get(429, 0) > 0 and set(statuses) == {401, 429}, statuses)
    time.sleep(1.5)
    check(shared.ask(READ_STATE, token("alice"), client="192.0.2.2")[0] == 200, "the proxy's connection was ended")
    return f"{figures}; the attacker: {statuses}"


def shared_connection():
    """A client that holds resources on a proxy's connection does not block other clients on it."""
    shared = Connection(PROXY)
    attacker, well_behaved, bob = "192.0.2.1", "192.0.2.2", token("bob")
    body = b"{" + b" " * 200_000 + b"}"

    def read(what):
        stream = shared.begin("/v1/channels/messaging:c/read", bob, well_behaved)
        shared.feed(stream, body, end=True)
        status, _, answer = shared.take(stream)
        check(status == 200, f"beside {what}: {status} {answer}")

    # Unfinished bodies, without a token.
    for _ in range(24):
        shared.feed(shared.begin("/v1/channels/messaging:x", None, attacker, method="PUT"), b" " * 400_000)
    read("bodies that do not end")
    # Lines that wait for their server's rate.
    lines = b'{"ticket":"x"}\n' * 20_000
    for _ in range(20):
        shared.feed(shared.begin("/v1/push/acks", server, attacker, kind="application/x-ndjson"), lines)
    read("lines that wait")
    # A large answer that is never read, repeatedly, from many addresses of one network.
    for number in range(200):
        shared.send("/v1/openapi.yaml", None, client=f"2001:db8:5::{number:x}")
    read("documents that are not read")
    held = f"{metric(admin, 'tidemark_gateway_held_bytes') / 1e6:.1f} MB are held"
    return f"{held}; {beside_one_connection()}"


def beside_one_connection():
    """Another client of the same connection sends what a proxy passes on, beside 50 requests a second."""
    shared = Connection(PROXY)
    attacker = "192.0.2.1"
    shared.ask(READ_STATE, token("alice"), client="192.0.2.2")

    def attack():
        body, long = b"{" + b" " * 60_000, [(f"x-{number}", "x" * 1_000) for number in range(20)]
        for number in range(100):
            # Requests that are given up at once, bodies that do not end, long headers, bad tokens.
            for _ in range(20):
                shared.h2.reset_stream(shared.send("/v1/openapi.yaml", None, client=attacker), error_code=8)
            if number % 5 == 0:
                shared.feed(shared.begin("/v1/push/acks", None, attacker), body)
            shared.send(READ_STATE, None, client=attacker, more=long)
            shared.send(READ_STATE, token("bob", "x" * 32), client=attacker)
            yield

    well_behaved_client = WellBehavedClient(shared, "192.0.2.2", attack())
    well_behaved_client.start()
    time.sleep(3)
    return well_behaved_client.finish()


def scans():
    """One user's scans over many channels leave places for those of others."""
    connection, members = Connection(), ["bob", "alice"]
    for first in range(0, 300, 100):
        channels = [{"cid": f"messaging:scan-{number}", "members": members} for number in range(first, first + 100)]
        stream = connection.begin("/v1/channels", server)
        connection.feed(stream, json.dumps({"channels": channels}).encode(), end=True)
        status, _, answer = connection.take(stream)
        check(status == 200, f"making channels: {status} {answer}")
    bob, alice = token("bob"), token("alice")
    check(connection.ask("/v1/users/bob/threads", bob)[0] == 200, "a scan is refused")
    streams = [connection.send("/v1/users/bob/threads", bob) for _ in range(300)]
    others = [connection.send("/v1/users/alice/threads", alice) for _ in range(20)]
    statuses = {}
    for stream in streams:
        status, _, answer = connection.take(stream)
        check(status == 200 or json.loads(answer)["code"] == "store_busy", f"{status} {answer}")
        statuses[status] = statuses.get(status, 0) + 1
    check(statuses.get(503, 0) > 0, f"no scan was refused: {statuses}")
    refused = [status for status, _, _ in map(connection.take, others) if status != 200]
    check(not refused, f"{len(refused)} of another user's scans are refused")
    return f"of 300 scans of one user: {statuses}"


def strangers():
    """Before a valid token, a connection has few streams, a small window and no bodies; afterwards it has
    all of them."""
    path, body = "/v1/channels/messaging:c/read", b"{" + b" " * 300_000 + b"}"
    # Answered before the body arrives: without a token, with one of an unknown key, on an unknown path.
    for bearer, where, expected in (
        (None, path, 401),
        (token("bob", "x" * 40), path, 401),
        (token("bob"), "/v1/nothing", 404),
    ):
        connection = Connection()
        stream = connection.begin(where, bearer)
        status, _, answer = connection.first(stream)
        check(status == expected, f"{status} for {where} with {bearer and bearer[:10]}")
        # The gateway reads and drops the rest of the body.
        connection.feed(stream, body, end=True)
        connection.take(stream)
        check(connection.ask(READ_STATE, token("bob"))[0] == 200, "the connection is unusable afterwards")
    # A route without a token gets its body; so does a valid token, at full speed.
    connection = Connection()
    stream = connection.begin("/v1/push/acks", None)
    time.sleep(0.2)
    connection.feed(stream, b'{"ticket":"none"}', end=True)
    check(connection.take(stream)[0] in (200, 400, 401, 422), "a ticket's body is not read")
    settings = connection.h2.remote_settings
    check(settings.max_concurrent_streams == 100, f"{settings.max_concurrent_streams} streams before a token")
    check(
        connection.h2.outbound_flow_control_window <= 65_535,
        f"a window of {connection.h2.outbound_flow_control_window} before a token",
    )
    stream = connection.begin(path, token("bob"))
    deadline = time.monotonic() + 15
    while settings.max_concurrent_streams != 1_000:
        check(time.monotonic() < deadline, f"{settings.max_concurrent_streams} streams after a token")
        connection.receive()
    check(
        connection.h2.outbound_flow_control_window > 4_000_000,
        f"a window of {connection.h2.outbound_flow_control_window} after a token",
    )
    connection.feed(stream, body, end=True)
    status, _, answer = connection.take(stream)
    check(status == 200, f"{status} {answer} for a long body with a token")
    # A client that ignores the announced limit has its streams after the hundredth refused. Others are not
    # affected.
    connection = Connection()
    connection.h2.remote_settings[h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS] = 1_000
    connection.h2.remote_settings.acknowledge()
    streams = [connection.begin("/v1/push/acks", None) for _ in range(150)]
    for stream in streams[100:]:
        check(connection.take(stream)[0] == 0, "a caller without a token has more than 100 streams")
    check(Connection().ask(READ_STATE, token("bob"))[0] == 200, "others are served")
    return "strangers"


def proxy_headers():
    """A load balancer in TCP mode names the client of a connection."""

    def text(client):
        return f"PROXY TCP4 {client} 127.0.0.1 50000 {gateway}\r\n".encode()

    def binary(client, command=1):
        return (
            b"\r\n\r\n\0\r\nQUIT\n"
            + struct.pack(">BBH", 0x20 | command, 0x11, 15)
            + socket.inet_aton(client)
            + socket.inet_aton("127.0.0.1")
            + struct.pack(">HH", 50000, gateway)
            + b"\x04\0\0"
        )

    for number, header in enumerate((text, binary)):
        client = f"192.0.2.{number + 1}"
        first = Connection(PROXY, header(client))
        until_refused(first, "/v1/nothing", None)
        check(
            Connection(PROXY, header(client)).ask("/v1/nothing", None)[0] == 429,
            "another connection of the client has another bucket",
        )
        # The client's own header does not count there.
        check(first.ask("/v1/nothing", None, client="192.0.2.99")[0] == 429, "x-forwarded-for was believed")
        check(
            Connection(PROXY, header(f"192.0.2.{number + 11}")).ask("/v1/nothing", None)[0] == 404,
            "another client's bucket is used",
        )
    # The proxy itself, as in a health check.
    check(Connection(PROXY, binary("0.0.0.0", command=0)).ask("/v1/nothing", None)[0] == 404, "LOCAL is refused")
    check(Connection(PROXY, b"PROXY UNKNOWN\r\n").ask("/v1/nothing", None)[0] == 404, "UNKNOWN is refused")
    # Without a header; with a broken one; from an address that is not a trusted proxy.
    wrong = [
        (PROXY, b""),
        (PROXY, b"PROXY TCP4 nobody 127.0.0.1 1 2\r\n"),
        (PROXY, b"PROXY " + b"x" * 200),
        ("127.0.0.2", text("192.0.2.1")),
        ("127.0.0.2", binary("192.0.2.1")),
    ]
    before = metric(admin, "tidemark_gateway_connections_refused_total", reason="proxy_header")
    for address, header in wrong:
        try:
            refused = Connection(address, header)
            refused.ask("/v1/nothing", None)
            check(False, f"{address} {header[:20]} was taken")
        except Closed:
            pass
    counted = metric(admin, "tidemark_gateway_connections_refused_total", reason="proxy_header") - before
    check(counted == len(wrong), f"{counted} of {len(wrong)} are counted")
    check(Connection("127.0.0.7").ask("/v1/nothing", None)[0] == 404, "an untrusted address needs no header")
    return "PROXY headers of both versions"


cases = {
    case.__name__: case
    for case in (
        rates,
        bad_tokens,
        bad_tokens_of_many_connections,
        malformed_tokens,
        bad_tokens_behind_a_proxy,
        scans,
        shared_connection,
        strangers,
        proxy_headers,
    )
}
set_up()
print("ok", cases[sys.argv[1]](), flush=True)
