"""Erases a user of a cluster while nodes of it are down.

Usage: cluster_erasure.py PORT TOKEN USER. It makes the user a member of channels in all shards, marks messages as read,
and writes `begun`. With `erase` from its input it asks for the erasure until it is complete, and writes `erased`."""
import sys
import time

import httpx

CHANNELS = 16

port, token, user = sys.argv[1:]
client = httpx.Client(
    http1=False,
    http2=True,
    timeout=60,
    base_url=f"http://127.0.0.1:{port}",
    headers={"authorization": "Bearer " + token},
)


def request(method, path, body=None, expected=(200, 201)):
    answer = client.request(method, path, json=body)
    assert answer.status_code in expected, (path, body, answer.status_code, answer.text)
    return answer


for number in range(CHANNELS):
    channel = f"/v1/channels/team:erasure-{number}"
    request("PUT", channel, {"members": [{"user_id": user}, {"user_id": "bob"}]})
    request("POST", channel + "/messages", {"id": "m1", "user_id": "bob"})
    request("POST", channel + "/read", {"user_id": user, "message_id": "m1"})
print("begun", flush=True)
assert sys.stdin.readline() == "erase\n"
deadline = time.monotonic() + 300
while True:
    answer = request("DELETE", f"/v1/users/{user}", expected=(200, 503))
    if answer.status_code == 200:
        break
    assert time.monotonic() < deadline, answer.text
    time.sleep(0.2)
rows = request("GET", "/v1/channels/team:erasure-0/read-state").json()["read"]
assert [row["user"]["id"] for row in rows] == ["bob"], rows
print("erased", flush=True)
