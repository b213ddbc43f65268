"""The steps of a Python backend: register a message, mark it read, query it.

usage: httpx_tour.py BASE_URL CA_FILE|- SERVER_TOKEN USER_TOKEN"""
import sys
import httpx

base, ca, server, user = sys.argv[1:5]
with httpx.Client(http1=ca != "-", http2=True, base_url=base, verify=ca if ca != "-" else True, timeout=15) as client:
    as_server, as_user = {"authorization": "Bearer " + server}, {"authorization": "Bearer " + user}
    channel = client.put("/v1/channels/messaging:httpx", headers=as_server, json={"members": ["alice", "bob"]})
    assert channel.status_code == 201 and channel.http_version == "HTTP/2", (
        channel,
        channel.http_version,
        channel.text,
    )
    message = client.post(
        "/v1/channels/messaging:httpx/messages", headers=as_server, json={"id": "h1", "user_id": "alice"}
    )
    assert message.json()["message"] == {"id": "h1", "cid": "messaging:httpx", "seq": 1, "status": "sent"}, message.text
    row = client.post("/v1/channels/messaging:httpx/read", headers=as_user, json={"message_id": "h1"}).json()["read"]
    assert row["last_read_seq"] == 1 and row["unread_messages"] == 0, row
    status = client.get("/v1/channels/messaging:httpx/messages/h1/status", headers=as_user).json()
    assert (status["status"], status["read_count"], status["member_count"]) == ("read", 1, 1), status
print("ok", client.base_url)
