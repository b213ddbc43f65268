"""Rules about single messages over the real pair: repeated registrations, impossible acknowledgement times,
and public mark-unread.

usage: message_rules.py BASE_URL JWT_SECRET_FILE CASE"""
import sys
import time

import httpx
from access_token import token

base, secret_file, case = sys.argv[1:]
secret = open(secret_file, "rb").readline().rstrip(b"\n")
client = httpx.Client(http1=False, http2=True, base_url=base, timeout=20)


def call(method, path, user, body=None):
    answer = client.request(method, path, headers={"authorization": "Bearer " + token(secret, user)}, json=body)
    return answer.status_code, answer.json()


def expect(status, method, path, user, body=None):
    answer = call(method, path, user, body)
    assert answer[0] == status, (method, path, user, body, answer)
    return answer[1]


def equal(actual, expected, what):
    assert actual == expected, f"{what}: {actual}, not {expected}"


def conflicts():
    """The same id with the same fields is 200; with another sender, parent or flag it is 409, even if the
    acknowledgement request was refused. A deleted id stays 409."""
    path = "/v1/channels/messaging:conflicts"
    expect(201, "PUT", path, None, {"members": ["alice", "bob"], "options": {"receipt_request_roles": ["admin"]}})
    first = {"id": "m1", "user_id": "alice"}
    for body in (
        first,
        {"id": "silent", "user_id": "alice", "silent": True},
        {"id": "system"},
        {"id": "refused", "user_id": "alice", "receipt": True},
        {"id": "r1", "user_id": "bob", "parent_id": "m1"},
    ):
        made = expect(201, "POST", path + "/messages", None, body)
        again = expect(200, "POST", path + "/messages", None, body)
        for field in ("id", "cid", "seq"):
            equal(again["message"][field], made["message"][field], f"{field} of the repeated {body}")
        equal(again["message"].get("receipt_refused"), made["message"].get("receipt_refused"), f"refusal of {body}")
    others = [
        {"id": "m1", "user_id": "bob"},
        {"id": "m1"},
        {"id": "m1", "user_id": "alice", "silent": True},
        {"id": "m1", "user_id": "alice", "receipt": True},
        {"id": "m1", "user_id": "alice", "parent_id": "silent"},
        {"id": "silent", "user_id": "alice"},
        {"id": "system", "user_id": "alice"},
        {"id": "refused", "user_id": "alice"},
        {"id": "r1", "user_id": "bob"},
        {"id": "r1", "user_id": "bob", "parent_id": "silent"},
        {"id": "r1", "user_id": "alice", "parent_id": "m1"},
        {"id": "r1", "user_id": "bob", "parent_id": "m1", "silent": True},
        {"id": "r1", "user_id": "bob", "parent_id": "m1", "receipt": True},
    ]
    before = expect(200, "GET", path, None), expect(200, "GET", path + "/read-state", None)
    for body in others:
        equal(expect(409, "POST", path + "/messages", None, body)["code"], "message_conflict", f"{body}")
    results = expect(
        200,
        "POST",
        "/v1/messages",
        None,
        {"messages": [{"cid": "messaging:conflicts", **body} for body in others + [first]]},
    )["results"]
    equal([result.get("code") for result in results], ["message_conflict"] * len(others) + [None], "a batch")
    equal((expect(200, "GET", path, None), expect(200, "GET", path + "/read-state", None)), before, "after conflicts")
    expect(200, "DELETE", path + "/messages/m1", None)
    for body in (first, {"id": "m1", "user_id": "bob"}):
        equal(expect(409, "POST", path + "/messages", None, body)["code"], "message_deleted", f"{body}")


def impossible_times():
    """`acked_at` is no earlier than the message's registration and the row's last step, and no later than
    now (R20)."""
    path = "/v1/channels/messaging:times"
    expect(201, "PUT", path, None, {"members": ["alice", "bob", "carol"]})

    def acknowledge(message, user, acked_at):
        ack = {"cid": "messaging:times", "message_id": message, "user_id": user, "acked_at": acked_at}
        equal(expect(200, "POST", "/v1/push/acks", None, {"acks": [ack]})["results"][0]["ok"], True, f"{ack}")

    def delivered(message, user):
        answer = expect(200, "GET", f"{path}/messages/{message}/members?user_ids={user}", None)
        return answer["members"][0]["delivered_at"]

    expect(201, "POST", path + "/messages", None, {"id": "m1", "user_id": "alice"})
    # The gateway's clock just before the registration, by the store's time.
    before = expect(200, "GET", path + "/messages/m1/status", None)["created_at"]
    acknowledge("m1", "bob", "2020-01-01T00:00:00.000Z")
    registered = delivered("m1", "bob")
    assert before <= registered, f"acknowledged at {registered}, before it was registered at {before}"
    acknowledge("m1", "carol", "2200-01-01T00:00:00.000Z")
    first = delivered("m1", "carol")
    assert registered <= first < "2200", f"acknowledged in the future, at {first}"
    time.sleep(0.01)
    expect(201, "POST", path + "/messages", None, {"id": "m2", "user_id": "alice"})
    before = expect(200, "GET", path + "/messages/m2/status", None)["created_at"]
    acknowledge("m2", "carol", first)
    assert (
        first < before <= delivered("m2", "carol")
    ), "acknowledged with the last step's time, before the message was registered"
    rows = expect(200, "GET", path + "/read-state", None)["read"]
    shown = {row["user"]["id"]: row["last_delivered_at"] for row in rows}
    equal(shown["bob"], registered, "bob's row")


def public_unread():
    """`mark_unread: public` takes reads back, never deliveries (R4), for all users and in every form of
    answer."""
    path = "/v1/channels/messaging:public"
    expect(201, "PUT", path, None, {"members": ["alice", "bob", "carol"], "options": {"mark_unread": "public"}})
    for number in (1, 2, 3):
        expect(201, "POST", path + "/messages", None, {"id": f"m{number}", "user_id": "alice"})
    expect(200, "POST", path + "/read", "bob", {"message_id": "m2"})
    expect(200, "POST", path + "/unread", "bob", {"message_id": "m1"})

    def check(viewer, word, read, delivered):
        for message in ("m1", "m2"):
            status = expect(200, "GET", f"{path}/messages/{message}/status", viewer)
            found = status["status"], status["read_count"], status["delivered_count"]
            equal(found, (word, read, delivered), f"{message} for {viewer}")
            listed = expect(200, "GET", f"{path}/messages/{message}/delivered", viewer)["members"]
            equal(
                [entry["user"]["id"] for entry in listed],
                ["bob"] if delivered > read else [],
                f"delivered {message} for {viewer}",
            )
            assert all(entry["exact"] and entry["delivered_at"] for entry in listed), listed
            member = expect(200, "GET", f"{path}/messages/{message}/members?user_ids=bob", viewer)["members"][0]
            equal(member["status"], word, f"bob and {message} for {viewer}")
        many = expect(200, "POST", path + "/receipts/query", viewer, {"message_ids": ["m1", "m2"] * 20})["statuses"]
        equal(
            {(status["status"], status["delivered_count"]) for status in many},
            {(word, delivered)},
            f"counted together for {viewer}",
        )

    for viewer in (None, "alice", "carol"):
        check(viewer, "delivered", 0, 1)
        rows = {row["user"]["id"]: row for row in expect(200, "GET", path + "/read-state", viewer)["read"]}
        equal((rows["bob"]["last_read_seq"], rows["bob"]["last_delivered_seq"]), (0, 2), f"bob's row for {viewer}")
    # Where reads may not be shown at all, no delivery follows from them.
    expect(200, "PUT", "/v1/users/bob", "bob", {"privacy_settings": {"read_receipts": {"enabled": False}}})
    for viewer in (None, "alice", "carol"):
        check(viewer, "sent", 0, 0)
    # For bob himself it is still delivered.
    own = expect(200, "GET", path + "/messages/m2/members?user_ids=bob", "bob")["members"][0]
    equal(own["status"], "delivered", "bob's own eyes")


{"conflicts": conflicts, "impossible_times": impossible_times, "public_unread": public_unread}[case]()
print(f"ok {case}")
