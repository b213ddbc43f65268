"""Registers messages, and marks them read and unread, one request after the other, while nodes of a cluster end.

Usage: cluster_marks.py PORT TOKEN [SLOW [NAME]]. It reads `stop` from its input, and writes `begun`, then a line for
each request that took SLOW seconds or longer (0.5 by default), then the result with the longest time. It has channels
in all shards, and new members, whose lists of channels are in other shards. NAME is a part of their names.
Every request must succeed. A message gets the next sequence number and a mark the next unread epoch, so a lost or
repeated command shows at once. A list of channels that misses one shows at the end."""
import sys
import threading
import time

import httpx
from waiting import eventually_equal

CHANNELS = 16

port, token = sys.argv[1], sys.argv[2]
slow = float(sys.argv[3]) if len(sys.argv) > 3 else 0.5
name = sys.argv[4] if len(sys.argv) > 4 else "cluster"
longest = 0.0
client = httpx.Client(
    http1=False,
    http2=True,
    timeout=20,
    base_url=f"http://127.0.0.1:{port}",
    headers={"authorization": "Bearer " + token},
)
is_stopped = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), is_stopped.set()), daemon=True).start()


def request(method, path, body=None):
    global longest
    began = time.monotonic()
    answer = client.request(method, path, json=body)
    took = time.monotonic() - began
    longest = max(longest, took)
    if took > slow:
        print(f"slow {time.time():.3f} {took:.2f} {path}", flush=True)
    assert answer.status_code in (200, 201), (path, body, answer.status_code, answer.text)
    return answer.json()


def channel(number):
    return f"/v1/channels/team:{name}-{number}"


for number in range(CHANNELS):
    request("PUT", channel(number), {"members": [{"user_id": "alice"}, {"user_id": "bob"}]})
rounds = 0
joined = {}
while not is_stopped.is_set():
    number, turn = rounds % CHANNELS, rounds // CHANNELS + 1
    rounds += 1
    message = request("POST", channel(number) + "/messages", {"id": f"m{turn}", "user_id": "alice"})["message"]
    assert message["seq"] == turn, (number, turn, message)
    row = request("POST", channel(number) + "/read", {"user_id": "bob", "message_id": f"m{turn}"})
    assert row["read"]["last_read_seq"] == turn, (number, turn, row)
    row = request("POST", channel(number) + "/unread", {"user_id": "bob", "message_id": f"m{turn}"})
    assert row["read"]["unread_epoch"] == turn, (number, turn, row)
    user = f"{name}-user-{rounds % 40}"
    request("POST", channel(number) + "/members", {"add": [{"user_id": user}]})
    joined.setdefault(user, set()).add(f"team:{name}-{number}")
    if rounds == 40:
        print("begun", flush=True)
for number in range(min(rounds, CHANNELS)):
    turn = (rounds - 1 - number) // CHANNELS + 1
    rows = request("GET", channel(number) + "/read-state")["read"]
    bob = next(row for row in rows if row["user"]["id"] == "bob")
    assert bob["unread_epoch"] == turn, (number, turn, bob)
for user, channels in joined.items():
    path = f"/v1/users/{user}/channels?limit=100"
    eventually_equal(
        f"the channels of {user}", channels, lambda: {entry["cid"] for entry in request("GET", path)["channels"]}
    )
print(f"ok {rounds} rounds, longest {longest:.3f} s", flush=True)
