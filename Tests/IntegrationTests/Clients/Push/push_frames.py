"""Streams of frames (Proto/frames.md, "Over HTTP/2") by nghttp and by python3-h2.

Arguments: the h2c port of a gateway, a server's token, a folder for files."""
import socket, struct, subprocess, sys
import h2.config, h2.connection, h2.events

PORT, TOKEN, FOLDER = int(sys.argv[1]), sys.argv[2], sys.argv[3]
PUT, REGISTER, STATUSES, ACKNOWLEDGE = 0x10, 0x12, 0x22, 0x40
ERROR, PING, PONG = 0x0F, 0x05, 0x06
CID = "messaging:frames"
TYPE = "application/vnd.tidemark.frames"


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def text(value):
    data = value.encode()
    return varint(len(data)) + data


def frame(kind, correlation, payload):
    return struct.pack(">IBBHI", len(payload) + 8, kind, 0, 0, correlation) + payload


def put(correlation, members):
    list_of = varint(len(members)) + b"".join(text(user) + text("") for user in members)
    return frame(PUT, correlation, text(CID) + varint(1) + varint(0) + list_of)


def register(correlation, message):
    return frame(
        REGISTER,
        correlation,
        text(CID) + varint(1) + text(message) + text("alice") + varint(1_700_000_000_000) + varint(0),
    )


def acknowledge(correlation, user, message, flags=0):
    return frame(
        ACKNOWLEDGE, correlation, text(CID) + varint(1) + text(user) + text(message) + varint(0) + varint(flags)
    )


def status(correlation, message):
    return frame(STATUSES, correlation, text(CID) + varint(1) + text("") + varint(1) + text(message))


def cut(data):
    """Splits data into whole frames, as (kind, correlation, payload), and the rest."""
    frames, at = [], 0
    while len(data) - at >= 12:
        length, kind, _, _, correlation = struct.unpack_from(">IBBHI", data, at)
        if len(data) - at < length + 4:
            break
        frames.append((kind, correlation, data[at + 12:at + 4 + length]))
        at += length + 4
    return frames, data[at:]


def expect(is_so, what):
    if not is_so:
        print("not so:", what)
        sys.exit(1)


def nghttp():
    body = (
        put(1, ["alice", "bob"])
        + register(2, "m1")
        + register(3, "m2")
        + acknowledge(4, "bob", "m2", 1)
        + acknowledge(5, "eve", "m2")
        + status(6, "m1")
    )
    with open(FOLDER + "/frames", "wb") as file:
        file.write(body)
    done = subprocess.run(
        [
            "nghttp",
            "-H",
            ":method: POST",
            "-H",
            "authorization: Bearer " + TOKEN,
            "-H",
            "content-type: " + TYPE,
            "-d",
            FOLDER + "/frames",
            f"http://127.0.0.1:{PORT}/v1/frames",
        ],
        capture_output=True,
        timeout=60,
    )
    frames, rest = cut(done.stdout)
    expect(done.returncode == 0 and not rest, f"nghttp: {done}")
    answers = {correlation: (kind, payload) for kind, correlation, payload in frames}
    expect([answers[n][0] for n in range(1, 7)] == [0x90, 0x92, 0x92, 0xC0, ERROR, 0xA2], f"answers: {answers}")
    expect(
        answers[4][1][0] == 1 and answers[4][1].endswith(text(CID) + text("bob") + text("m2")),
        f"delivery: {answers[4]}",
    )
    # not_a_member
    expect(answers[5][1][0] == 32, f"refusal: {answers[5]}")
    # One answer, found, message 1, delivered: the ack of m2 also covers earlier messages.
    expect(answers[6][1][:4] == bytes([1, 0, 1, 1]), f"status: {answers[6]}")
    return len(frames)


class Stream:
    """One request whose body and answer are sent concurrently."""

    def __init__(self, content_type=TYPE):
        self.socket = socket.create_connection(("127.0.0.1", PORT), timeout=30)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.id = self.h2.get_next_available_stream_id()
        self.h2.send_headers(
            self.id,
            [
                (":method", "POST"),
                (":path", "/v1/frames"),
                (":scheme", "http"),
                (":authority", "localhost"),
                ("authorization", "Bearer " + TOKEN),
                ("content-type", content_type),
            ],
        )
        self.status, self.rest, self.is_ended, self.frames = None, b"", False, []
        self.flush()

    def flush(self):
        self.socket.sendall(self.h2.data_to_send())

    def send(self, data):
        while data:
            room = min(self.h2.local_flow_control_window(self.id), 16_384, len(data))
            if room > 0:
                self.h2.send_data(self.id, data[:room])
                data = data[room:]
                self.flush()
            else:
                self.receive()

    def end(self):
        self.h2.end_stream(self.id)
        self.flush()

    def receive(self):
        data = self.socket.recv(1 << 16)
        expect(data, "the connection is open")
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.ResponseReceived):
                self.status = dict(event.headers)[":status"]
            elif isinstance(event, h2.events.DataReceived):
                whole, self.rest = cut(self.rest + event.data)
                self.frames += whole
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset)):
                self.is_ended = True
        self.flush()

    def answers(self, count):
        while len(self.frames) < count:
            expect(not self.is_ended, f"{count} answers, {len(self.frames)} came")
            self.receive()
        frames, self.frames = self.frames[:count], self.frames[count:]
        return frames

    def until_end(self):
        while not self.is_ended:
            self.receive()


def turns():
    """Answers arrive while the body continues, for any split of it."""
    stream = Stream()
    for number in range(20):
        for piece in acknowledge(number, "bob", "m1"), frame(PING, number, b"12345678"):
            for at in range(0, len(piece), 5):
                stream.send(piece[at:at + 5])
        answers = stream.answers(2)
        expect(
            sorted(answer[:2] for answer in answers) == [(PONG, number), (0xC0, number)], f"turn {number}: {answers}"
        )
    expect(stream.status == "200", stream.status)
    stream.end()
    stream.until_end()
    return 40


def many(count=20_000):
    stream = Stream()
    for start in range(0, count, 500):
        stream.send(b"".join(acknowledge(number, "bob", "m1") for number in range(start, start + 500)))
    stream.end()
    answers = stream.answers(count)
    expect({correlation for _, correlation, _ in answers} == set(range(count)), "each has an answer")
    expect(all(kind == 0xC0 for kind, _, _ in answers), "each was applied")
    stream.until_end()
    return count


def malformed():
    stream = Stream()
    stream.send(acknowledge(1, "bob", "m1") + frame(ACKNOWLEDGE, 2, b"\xff") + acknowledge(3, "bob", "m1"))
    answers = stream.answers(2)
    expect(
        [(kind, correlation) for kind, correlation, _ in answers] == [(0xC0, 1), (ERROR, 2)] and answers[1][2][0] == 1,
        f"malformed: {answers}",
    )
    stream.until_end()
    expect(not stream.frames, "no answer after it")
    wrong = Stream("application/json")
    wrong.end()
    wrong.until_end()
    expect(wrong.status == "415", wrong.status)
    # A cancelled stream leaves no state behind.
    given_up = Stream()
    given_up.send(acknowledge(1, "bob", "m1")[:20])
    given_up.h2.reset_stream(given_up.id)
    given_up.flush()
    given_up.socket.close()
    return 2


counts = [nghttp(), turns(), many(), malformed()]
print("ok", sum(counts), "answers")
