"""Reads from the nodes of a cluster directly, in frames, while a gateway registers messages.

Usage: cluster_stale.py GATEWAY TOKEN SECRET-FILE SHARDS NODE... (ports). It reads `stop` from its input, and writes
`begun`, then the result. The caller suspends owners meanwhile. Needs xxh64sum.

Each node gets a query for each channel every 10 ms, whether it answers or not. So a node that resumes finds queries
that were sent after another node had taken over. No answer may be older than what the gateway had acknowledged before
the query was sent."""
import hashlib
import hmac
import os
import socket
import struct
import subprocess
import sys
import threading
import time

import httpx

CHANNELS = 6
QUERY_INTERVAL = 0.01
# Frame kinds and an error code of Proto/frames.md.
HELLO, CHALLENGE, PROOF, READY, PING, PONG, SHARD_MAP, ERROR = 1, 2, 3, 4, 5, 6, 9, 15
GET_CHANNEL, REPLY, NOT_OWNER = 0x20, 0x80, 27

gateway, token, secret_file, shards = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
nodes = [int(port) for port in sys.argv[5:]]
with open(secret_file, "rb") as file:
    secret = file.read().strip()
cids = [f"team:stale-{number}" for number in range(CHANNELS)]
# The newest sequence number that the gateway has acknowledged, by channel.
acknowledged = [0] * CHANNELS
is_stopped = threading.Event()
# Stale answers, and failures of readers.
faults = []
# Seconds after which an answer is counted as late: its query has waited in a suspended node.
LATE = 0.3


def shard(cid):
    digest = subprocess.run(["xxh64sum"], input=cid.encode(), capture_output=True, check=True).stdout
    return int(digest.split()[0], 16) % shards


shard_of = [shard(cid) for cid in cids]


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out + bytes([number]))


def string(content):
    return varint(len(content)) + content


class Fields:
    def __init__(self, payload):
        self.payload, self.at = payload, 0

    def bytes(self, count):
        self.at += count
        assert self.at <= len(self.payload), "the payload ends within a field"
        return self.payload[self.at - count : self.at]

    def varint(self):
        number = shift = 0
        while True:
            byte = self.bytes(1)[0]
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number

    def string(self):
        return self.bytes(self.varint())


class Reader:
    """One node: a connection at a time, with queries that wait for no answer."""

    def __init__(self, port):
        self.port = port
        self.answers = self.not_owner = self.late = 0

    def run(self):
        while not is_stopped.is_set():
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=15) as self.socket:
                    self.serve()
            except OSError:
                time.sleep(0.05)
            except Exception as error:
                faults.append(f"the reader of node {self.port}: {error!r}")
                return

    def send(self, kind, payload, shard=0, correlation=0):
        self.socket.sendall(struct.pack(">IBBHI", len(payload) + 8, kind, 0, shard, correlation) + payload)

    def receive(self):
        length, kind, _, _, correlation = struct.unpack(">IBBHI", self.exactly(12))
        return kind, correlation, Fields(self.exactly(length - 8))

    def exactly(self, count):
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise ConnectionError("the node has closed the connection")
            data += part
        return data

    def serve(self):
        session, nonce = os.urandom(16), os.urandom(32)
        hello = b"TDMK" + varint(1) + varint(1) + session + varint(0) + nonce + varint(1 << 20) + string(b"stale")
        self.send(HELLO, hello)
        kind, _, fields = self.receive()
        assert kind == CHALLENGE, kind
        assert fields.varint() == 1
        theirs = fields.bytes(32)
        proof = lambda text: hmac.new(secret, text + nonce + theirs + session, hashlib.sha256).digest()
        assert fields.string() == proof(b"tidemark store 1"), "the node's proof"
        fields.varint()  # frame_length_max
        window = fields.varint()
        self.send(PROOF, string(proof(b"tidemark gateway 1")))
        kind, _, _ = self.receive()
        assert kind == READY, kind
        self.window = window
        self.waiting = {}
        self.sent = 0
        thread = threading.Thread(target=self.query, daemon=True)
        thread.start()
        try:
            while not is_stopped.is_set():
                self.take(*self.receive())
        finally:
            self.socket.close()
            thread.join()

    def query(self):
        try:
            while not is_stopped.is_set():
                for channel, cid in enumerate(cids):
                    if len(self.waiting) >= self.window:
                        break
                    self.sent += 1
                    self.waiting[self.sent] = channel, acknowledged[channel], time.monotonic()
                    self.send(GET_CHANNEL, string(cid.encode()), shard_of[channel], self.sent)
                time.sleep(QUERY_INTERVAL)
        except OSError:
            pass

    def take(self, kind, correlation, fields):
        if kind == PING:
            self.send(PONG, fields.payload)
        elif kind == SHARD_MAP:
            pass
        elif kind == ERROR:
            self.waiting.pop(correlation)
            if fields.varint() == NOT_OWNER:
                self.not_owner += 1
        else:
            assert kind == GET_CHANNEL | REPLY, kind
            channel, at_least, sent = self.waiting.pop(correlation)
            assert fields.string() == cids[channel].encode()
            fields.varint()  # created
            for _ in range(fields.varint()):
                fields.varint()  # an option
                fields.string()  # its value
            fields.varint()  # member_count
            newest = fields.varint()
            self.answers += 1
            if time.monotonic() - sent > LATE:
                self.late += 1
            if newest < at_least:
                faults.append(f"node {self.port} shows {newest} of {cids[channel]} after {at_least}")


client = httpx.Client(
    http1=False,
    http2=True,
    timeout=20,
    base_url=f"http://127.0.0.1:{gateway}",
    headers={"authorization": "Bearer " + token},
)


def request(method, path, body):
    answer = client.request(method, path, json=body)
    assert answer.status_code in (200, 201), (path, body, answer.status_code, answer.text)
    return answer.json()


for cid in cids:
    request("PUT", f"/v1/channels/{cid}", {"members": [{"user_id": "alice"}, {"user_id": "bob"}]})
readers = [Reader(port) for port in nodes]
threads = [threading.Thread(target=reader.run, daemon=True) for reader in readers]
for thread in threads:
    thread.start()
threading.Thread(target=lambda: (sys.stdin.readline(), is_stopped.set()), daemon=True).start()
count = 0
while not is_stopped.is_set():
    channel = count % CHANNELS
    count += 1
    message = request("POST", f"/v1/channels/{cids[channel]}/messages", {"id": f"m{count}", "user_id": "alice"})
    acknowledged[channel] = message["message"]["seq"]
    if count == 40:
        print("begun", flush=True)
answers, late = sum(reader.answers for reader in readers), sum(reader.late for reader in readers)
refused = sum(reader.not_owner for reader in readers)
for reader in readers:
    if reader.answers == 0 or reader.not_owner == 0:
        faults.append(f"node {reader.port}: {reader.answers} answers, {reader.not_owner} refusals")
result = "fault" if faults else "ok"
for fault in faults[:5]:
    print(fault, file=sys.stderr)
print(f"{result} {answers} answers, {late} of them late, {refused} refused by nodes that were not owners", flush=True)
