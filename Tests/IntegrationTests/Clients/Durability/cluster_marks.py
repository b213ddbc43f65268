"""Registers messages, and marks them read and unread, one request after the other, while nodes of a cluster end.

Usage: cluster_marks.py PORT TOKEN. It reads `stop` from its input, and writes `begun`, then a line for each request that
took long, then the result. Every request must succeed. A message gets the next sequence number and a mark the next unread
epoch, so a lost or repeated command shows at once."""
import sys
import threading
import time

import httpx

port, token = sys.argv[1], sys.argv[2]
client = httpx.Client(
    http1=False,
    http2=True,
    timeout=20,
    base_url=f"http://127.0.0.1:{port}",
    headers={"authorization": "Bearer " + token},
)
is_stopped = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), is_stopped.set()), daemon=True).start()


def post(path, body):
    began = time.monotonic()
    answer = client.post(path, json=body)
    took = time.monotonic() - began
    if took > 0.5:
        print(f"slow {took:.2f} {path}", flush=True)
    assert answer.status_code in (200, 201), (path, body, answer.status_code, answer.text)
    return answer.json()


channel = "/v1/channels/team:cluster"
answer = client.put(channel, json={"members": [{"user_id": "alice"}, {"user_id": "bob"}]})
assert answer.status_code == 201, answer.text
rounds = 0
while not is_stopped.is_set():
    rounds += 1
    message = post(channel + "/messages", {"id": f"m{rounds}", "user_id": "alice"})["message"]
    assert message["seq"] == rounds, (rounds, message)
    row = post(channel + "/read", {"user_id": "bob", "message_id": f"m{rounds}"})
    assert row["read"]["last_read_seq"] == rounds, (rounds, row)
    row = post(channel + "/unread", {"user_id": "bob", "message_id": f"m{rounds}"})
    assert row["read"]["unread_epoch"] == rounds, (rounds, row)
    if rounds == 20:
        print("begun", flush=True)
rows = client.get(channel + "/read-state").json()["read"]
bob = next(row for row in rows if row["user"]["id"] == "bob")
assert bob["unread_epoch"] == rounds, (rounds, bob)
print(f"ok {rounds} rounds", flush=True)
