"""Changes a user's settings and a channel type through a gateway that is killed at any moment. Through
another gateway it checks that every shard ends with the same value.

usage: settlement.py OTHER_GATEWAY_URL SERVER_TOKEN ROUNDS SEED GATEWAY_URL GATEWAY_PROGRAM ARGUMENT…"""
import random
import subprocess
import sys
import threading
import time

import httpx
from waiting import eventually

other_url, token, rounds, seed, url = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
program = sys.argv[6:]
draw = random.Random(seed)
headers = {"authorization": "Bearer " + token}
other = httpx.Client(http1=False, http2=True, base_url=other_url, headers=headers, timeout=20)
# Enough channels for every shard to have one.
channels = [f"settled:c{number}" for number in range(96)]


def check(answer, *statuses):
    assert answer.status_code in statuses, (answer.request.url, answer.status_code, answer.text)
    return answer.json()


def start():
    process = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def answers():
        try:
            with httpx.Client(http1=False, http2=True, base_url=url, headers=headers, timeout=2) as client:
                return client.get("/v1/users/uma").status_code == 200
        except httpx.HTTPError:
            return False

    eventually("the start of the gateway", answers)
    return process


def seen():
    """For each channel: the shown state of the user who may hide, and whether its type shows reads at all."""
    found = set()
    for cid in channels:
        status = check(other.get(f"/v1/channels/{cid}/messages/m1/status"), 200)
        found.add((status["read_count"] == 1, status["read_events"]))
    return found


for cid in channels:
    check(other.put(f"/v1/channels/{cid}", json={"members": ["alice", "uma"]}), 201)
    check(other.post(f"/v1/channels/{cid}/messages", json={"id": "m1", "user_id": "alice"}), 201)
    check(other.post(f"/v1/channels/{cid}/read", json={"user_id": "uma", "message_id": "m1"}), 200)

cut = answered = 0
shows, events = True, True
gateway = start()
for number in range(rounds):
    of_user = draw.random() < 0.7
    if of_user:
        shows = not shows
        path, body = "/v1/users/uma", {
            "privacy_settings": {"read_receipts": {"enabled": shows}, "delivery_receipts": {"enabled": shows}}
        }
    else:
        events = not events
        path, body = "/v1/channel-types/settled", {"read_events": events}
    client = httpx.Client(http1=False, http2=True, base_url=url, headers=headers, timeout=5)
    client.get("/v1/users/uma")
    outcome = []

    def put():
        try:
            outcome.append(client.put(path, json=body).status_code)
        except httpx.HTTPError:
            outcome.append(0)

    thread = threading.Thread(target=put)
    thread.start()
    time.sleep(draw.random() * 0.008)
    gateway.kill()
    gateway.wait()
    thread.join()
    client.close()
    answered += outcome == [200]
    cut += outcome != [200]
    gateway = start()
    # Without a retry by the client. An unanswered change may have had no effect, but then in every shard.
    def agreed():
        """The settings and options, once every shard shows what they say."""
        settings = check(other.get("/v1/users/uma"), 200)["privacy_settings"]
        kind = check(other.get("/v1/channel-types/settled"), 200)["options"]
        is_shown, is_on = settings["read_receipts"]["enabled"], kind["read_events"]
        return (settings, kind) if seen() == {(is_shown and is_on, is_on)} else None

    settings, kind = eventually(f"the same value in every shard, round {number}, {path} {body}: {outcome}", agreed)
    is_shown, is_on = settings["read_receipts"]["enabled"], kind["read_events"]
    if outcome == [200]:
        assert (is_shown if of_user else is_on) == (shows if of_user else events), (path, body, settings, kind)
    shows, events = is_shown, is_on
gateway.kill()
gateway.wait()
print(f"ok {rounds} rounds, {cut} cut, {answered} answered")
