"""One process of the push day: devices, or a worker, that send the acks they are given. It knows only its
acks and the gateway.

usage: push_worker.py devices|ndjson|frames PORT CERTIFICATE|-

Each input line is JSON, {"token", "acks", "cuts"}. An ack has `ticket`, or `cid`, `message_id` and
`user_id`, or both with `by` to choose the one to send. `devices` post tickets without a header, `cuts` of
them a request. The others need the token, and split their body at `cuts`. For each input line one output
line has the answers in order, `ok` or a code.
"""
import json, struct, sys
import httpx
from h2_stream import connect, exchange

ACKNOWLEDGE_PUSH, PRESENT_TICKET, ERROR, REPLY = 0x40, 0x43, 0x0F, 0x80
# Proto/frames.md, "Errors".
CODES = {
    31: "channel_not_found", 32: "not_a_member", 33: "message_not_found", 34: "message_deleted",
}


def fields(ack):
    """An ack as POST /v1/push/acks takes it."""
    if ack["by"] == "ticket":
        return {"ticket": ack["ticket"]}
    named = ("cid", "message_id", "user_id", "provider", "provider_message_id", "device", "acked_at")
    return {name: ack[name] for name in named if name in ack}


def outcome(result):
    return "ok" if result["ok"] else result["code"]


def cut(body, sizes):
    """The body in pieces of these sizes, repeated."""
    at, number = 0, 0
    while at < len(body):
        size = sizes[number % len(sizes)]
        yield body[at : at + size]
        at, number = at + size, number + 1


class Devices:
    """Many devices of one network: each request comes from a device that has been offline for a while."""

    def __init__(self, port, certificate):
        url = f"https://localhost:{port}" if certificate else f"http://127.0.0.1:{port}"
        self.client = httpx.Client(http1=False, http2=True, base_url=url, verify=certificate or True, timeout=60)

    def acknowledge(self, acks, token, cuts):
        found, number = [], 0
        while len(found) < len(acks):
            part = acks[len(found) : len(found) + cuts[number % len(cuts)]]
            answer = self.client.post("/v1/push/acks", json={"tickets": [ack["ticket"] for ack in part]})
            assert answer.status_code == 200, (answer.status_code, answer.text)
            results = answer.json()["results"]
            assert len(results) == len(part), (len(results), len(part))
            for ack, result in zip(part, results):
                agree(ack, result)
            found += map(outcome, results)
            number += 1
        return found


class Lines:
    """A worker that sends a line for each ack, and reads the answers meanwhile."""

    def __init__(self, port, certificate):
        self.port, self.certificate = port, certificate

    def acknowledge(self, acks, token, cuts):
        body = b"".join(json.dumps(fields(ack), separators=(",", ":")).encode() + b"\n" for ack in acks)
        answer = exchange(
            connect(self.port, self.certificate), "/v1/push/acks", token, "application/x-ndjson", cut(body, cuts)
        )
        results = [json.loads(line) for line in b"".join(answer).splitlines()]
        assert len(results) == len(acks), (len(results), len(acks))
        for ack, result in zip(acks, results):
            agree(ack, result)
        return [outcome(result) for result in results]


class Frames:
    """A worker that speaks frames, as in Proto/frames.md."""

    def __init__(self, port, certificate):
        self.port, self.certificate = port, certificate

    def acknowledge(self, acks, token, cuts):
        body = b"".join(self.frame(number, ack) for number, ack in enumerate(acks))
        answer = exchange(
            connect(self.port, self.certificate),
            "/v1/frames",
            token,
            "application/vnd.tidemark.frames",
            cut(body, cuts),
        )
        found, received, at = {}, b"".join(answer), 0
        while at < len(received):
            length, kind, _, _, number = struct.unpack_from(">IBBHI", received, at)
            assert number not in found, f"{number} is answered twice"
            found[number] = self.reply(acks[number], kind, received[at + 12 : at + 4 + length])
            at += 4 + length
        return [found[number] for number in range(len(acks))]

    @staticmethod
    def frame(number, ack):
        if ack["by"] == "ticket":
            kind, payload = PRESENT_TICKET, varint(number + 1) + string(ack["ticket"]) + varint(0) + varint(1)
        else:
            kind = ACKNOWLEDGE_PUSH
            payload = string(ack["cid"]) + varint(number + 1) + string(ack["user_id"]) + string(ack["message_id"])
            payload += varint(ack.get("acked_at_milliseconds", 0)) + varint(1)
        return struct.pack(">IBBHI", 8 + len(payload), kind, 0, 0, number) + payload

    @staticmethod
    def reply(ack, kind, payload):
        if kind == ERROR:
            code, _ = take_varint(payload)
            # Frames have one code for both.
            return "member_not_found" if code == 32 and ack["by"] == "name" else CODES.get(code, str(code))
        assert kind == REPLY | (PRESENT_TICKET if ack["by"] == "ticket" else ACKNOWLEDGE_PUSH), hex(kind)
        # 1: moved; 4: not counted, because the user has left and joined again since.
        assert payload[0] in (0, 1, 4, 5), payload
        _, rest = take_varint(payload[1:])
        _, rest = take_varint(rest)
        names = []
        while rest:
            length, rest = take_varint(rest)
            names.append(rest[:length].decode())
            rest = rest[length:]
        agree(ack, {"ok": True, "cid": names[0], "user_id": names[1], "message_id": names[2]})
        return "ok"


def agree(ack, result):
    """Checks that the acknowledged message is the ack's."""
    if result["ok"]:
        for name in ("cid", "message_id", "user_id"):
            assert result[name] == ack[name], (ack, result)


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(text):
    return varint(len(text.encode())) + text.encode()


def take_varint(data):
    value = shift = used = 0
    while True:
        byte = data[used]
        value |= (byte & 0x7F) << shift
        shift, used = shift + 7, used + 1
        if byte < 0x80:
            return value, data[used:]


if __name__ == "__main__":
    way, port, certificate = sys.argv[1:4]
    worker = {"devices": Devices, "ndjson": Lines, "frames": Frames}[way](
        int(port), "" if certificate == "-" else certificate
    )
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(worker.acknowledge(order["acks"], order["token"], order["cuts"])), flush=True)
