"""A user's token learns nothing of channels and users that are not its own.

The answers about an existing id and about an unknown one are equal, headers included.

usage: existence_routes.py BASE_URL JWT_SECRET_FILE"""
import json
import sys

import httpx
from access_token import token

base, secret_file = sys.argv[1:]
secret = open(secret_file, "rb").readline().rstrip(b"\n")
client = httpx.Client(http1=False, http2=True, base_url=base, timeout=60)


def call(method, path, bearer, body=None):
    return client.request(method, path, headers={"authorization": "Bearer " + bearer}, json=body)


def view(answer, name):
    """An answer without the fields that differ between any two requests, and without its own channel's or
    user's name."""
    headers = {
        key: value for key, value in answer.headers.items() if key not in ("date", "x-request-id", "content-length")
    }
    try:
        document = answer.json()
        if isinstance(document, dict):
            document.pop("request_id", None)
    except ValueError:
        document = answer.text
    return answer.status_code, headers, json.dumps(document, sort_keys=True).replace(name, "NAME")


server, eve = token(secret), token(secret, "eve")
assert call("PUT", "/v1/channels/messaging:alice-bob", server, {"members": ["alice", "bob"]}).status_code == 201
assert call("PUT", "/v1/channels/messaging:eve-own", server, {"members": ["eve"]}).status_code == 201
for body in (
    {"id": "m1", "user_id": "alice", "receipt": True},
    {"id": "r1", "user_id": "bob", "parent_id": "m1"},
    {"id": "m2", "user_id": "alice"},
):
    assert call("POST", "/v1/channels/messaging:alice-bob/messages", server, body).status_code == 201
assert call("DELETE", "/v1/channels/messaging:alice-bob/messages/m2", server).status_code == 200
for user in ("alice", "eve"):
    assert (
        call("PUT", f"/v1/users/{user}", server, {"privacy_settings": {"read_receipts": {"enabled": True}}}).status_code
        == 200
    )

about_channels = []
for message in ("m1", "m2", "r1", "none"):
    for body in (
        {"message_id": message},
        {"thread_id": message},
        {"message_id": "r1", "thread_id": message},
        {"message_id": message, "unread_epoch": 3},
    ):
        about_channels += [
            ("POST", f"/v1/channels/CID/{mark}{query}", body)
            for mark in ("read", "unread")
            for query in ("", "?totals=true")
        ]
    about_channels += [
        ("POST", "/v1/channels/CID/receipts", {"message_ids": [message], "note": "seen"}),
        ("POST", "/v1/channels/CID/receipts/query", {"message_ids": [message, "none"]}),
        (
            "POST",
            "/v1/channels/delivered",
            {
                "latest_delivered_messages": [
                    {"cid": "CID", "id": message},
                    {"cid": "CID", "id": message, "parent_id": "m1"},
                ]
            },
        ),
        ("POST", "/v1/channels/read", {"read_by_channel": {"CID": message}}),
        ("GET", f"/v1/channels/CID/messages/{message}/status", None),
        ("GET", f"/v1/channels/CID/messages/{message}/members?user_ids=alice,bob,eve", None),
    ]
    for which in ("readers", "delivered", "unread"):
        for query in ("", "?order=time", "?limit=1&cursor=r1", "?cursor=nonsense", "?limit=0", "?order=none"):
            about_channels.append(("GET", f"/v1/channels/CID/messages/{message}/{which}{query}", None))
about_channels += [
    ("POST", "/v1/channels/CID/read", None),
    ("POST", "/v1/channels/CID/read?message_id=m1", None),
    ("POST", "/v1/channels/CID/unread", None),
    ("POST", "/v1/channels/CID/read", {"message_id": 7}),
    ("POST", "/v1/channels/CID/read", {"message_id": "a b"}),
    ("POST", "/v1/channels/CID/read", {"user_id": "alice"}),
    ("POST", "/v1/channels/read", {"read_by_channel": {"CID": ""}}),
    ("POST", "/v1/channels/CID/receipts", {"message_ids": []}),
    ("POST", "/v1/channels/CID/receipts", {"message_ids": ["m1"], "note": "x" * 1025}),
    ("GET", "/v1/channels/CID/read-state", None),
    ("GET", "/v1/channels/CID/read-state?limit=1&cursor=r1", None),
    ("GET", "/v1/channels/CID/read-state?user_id=alice", None),
    ("GET", "/v1/channels/CID/read-state?cursor=7", None),
    ("GET", "/v1/channels/CID", None),
    ("PUT", "/v1/channels/CID", {"members": ["eve"]}),
    ("DELETE", "/v1/channels/CID", None),
    ("POST", "/v1/channels/CID/members", {"add": ["eve"]}),
    ("POST", "/v1/channels/CID/messages", {"id": "x"}),
    ("DELETE", "/v1/channels/CID/messages/m1", None),
    ("POST", "/v1/channels/CID/truncate", {"before": "m1"}),
    ("GET", "/v1/events?channels=CID", None),
    ("GET", "/v1/events?channels=messaging:eve-own,CID", None),
    ("HEAD", "/v1/channels/CID/read-state", None),
]
compared = 0
for bearer in (eve, token(secret, "eve", iat=1)):
    for method, path, body in about_channels:
        views = []
        for cid in ("messaging:alice-bob", "messaging:no-such-"):
            text = json.dumps(body).replace("CID", cid)
            views.append(view(call(method, path.replace("CID", cid), bearer, json.loads(text)), cid))
        assert views[0] == views[1], f"{method} {path} {body}: of a channel that exists {views[0]}, else {views[1]}"
        # No text mentions a membership.
        assert "member" not in views[0][2].replace("members", "").replace(
            "or the user is not a member of it", ""
        ), views[0]
        compared += 1
    # The same with a token that was revoked in the meantime: the revocation is not reported for existing
    # channels alone.
    assert call("PUT", "/v1/users/eve", server, {"revoke_tokens_before": "2020-01-01T00:00:00Z"}).status_code == 200
for path in (
    "read",
    "unread",
    "read-state",
    "receipts/query",
    "messages/m1/status",
    "messages/m1/readers",
    "messages/m1/members?user_ids=bob",
):
    body = {"message_ids": ["m1"]} if path.startswith("receipts") else {"message_id": "m1"}
    method = "POST" if path in ("read", "unread", "receipts/query") else "GET"
    answer = call(method, "/v1/channels/messaging:alice-bob/" + path, eve, body if method == "POST" else None)
    assert (answer.status_code, answer.json()["code"]) == (
        404,
        "channel_not_found",
    ) and "retry-after" not in answer.headers, (path, answer.text)

# A server gets the exact reason.
named = {"message_id": "m1", "user_id": "eve"}
for cid, code in (("messaging:alice-bob", "member_not_found"), ("messaging:no-such-", "channel_not_found")):
    answer = call("POST", f"/v1/channels/{cid}/read", server, named)
    assert (answer.status_code, answer.json()["code"]) == (404, code), answer.text
    answer = call(
        "POST",
        "/v1/channels/delivered",
        server,
        {"latest_delivered_messages": [{"cid": cid, "id": "m1"}], "user_id": "eve"},
    )
    assert answer.json()["results"][0]["code"] == code, answer.text

# Another user's routes: alice has settings and channels, zoe never existed.
for method, path, body in [
    ("GET", "/v1/users/USER", None),
    ("PUT", "/v1/users/USER", {"privacy_settings": {"read_receipts": {"enabled": False}}}),
    ("PUT", "/v1/users/USER", {"nonsense": 1}),
    ("DELETE", "/v1/users/USER", None),
    ("GET", "/v1/users/USER/unread", None),
    ("GET", "/v1/users/USER/channels", None),
    ("GET", "/v1/users/USER/unread?limit=0", None),
    ("GET", "/v1/users/USER/channels?cursor=x", None),
]:
    views = [view(call(method, path.replace("USER", user), eve, body), user) for user in ("alice", "zoe")]
    assert views[0] == views[1] and views[0][0] == 403, f"{method} {path}: {views}"
    compared += 1
print(f"ok {compared} answers compared")
