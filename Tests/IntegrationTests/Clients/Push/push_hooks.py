"""Webhooks signed by the Standard Webhooks package, posted with curl.

Arguments: a gateway's h2c address, its hook's secret, another secret, a ticket."""
import datetime, json, subprocess, sys
from standardwebhooks import Webhook

ADDRESS, SECRET, OTHER, TICKET = sys.argv[1:5]


def post(webhook_id, secret, body, moved=0, sent_body=None):
    """Returns the answer's status and JSON. `moved`: seconds from now; `sent_body`: a body other than the signed
    one."""
    time = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=moved)
    signature = Webhook(secret).sign(webhook_id, time, body)
    done = subprocess.run(
        [
            "curl",
            "-sS",
            "--http2-prior-knowledge",
            "-w",
            "\n%{http_code}",
            "-H",
            "content-type: application/json",
            "-H",
            "webhook-id: " + webhook_id,
            "-H",
            f"webhook-timestamp: {int(time.timestamp())}",
            "-H",
            "webhook-signature: " + signature,
            "--data-binary",
            sent_body or body,
            ADDRESS + "/v1/push/hooks/relay",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    answer, status = done.stdout.rsplit("\n", 1)
    return int(status), json.loads(answer)


def expect(answer, status, part):
    if answer[0] != status or not part.items() <= answer[1].items():
        print("not so:", answer, "instead of", status, part)
        sys.exit(1)


delivery = json.dumps(
    {"type": "push.delivered", "timestamp": "2026-03-01T12:00:00Z", "data": {"ticket": TICKET, "device": "ios"}}
)
several = json.dumps(
    [
        json.loads(delivery),
        {"type": "push.sent", "data": {"ticket": TICKET}},
        {"type": "push.delivered", "data": {"ticket": "none"}},
    ]
)

expect(post("msg_1", SECRET, delivery), 200, {"results": [{"ok": True}], "ignored": 0})
expect(post("msg_1", SECRET, delivery), 409, {"code": "webhook_replayed"})
expect(
    post("msg_2", SECRET, several),
    200,
    {"results": [{"ok": True}, {"ok": False, "code": "ticket_invalid"}], "ignored": 1},
)
expect(post("msg_3", OTHER, delivery), 401, {"code": "webhook_signature_invalid"})
expect(post("msg_3", SECRET, delivery, sent_body=delivery + " "), 401, {"code": "webhook_signature_invalid"})
expect(post("msg_3", SECRET, delivery, moved=-400), 400, {"code": "webhook_too_old"})
expect(post("msg_3", SECRET, delivery, moved=400), 400, {"code": "webhook_too_old"})
expect(post("msg_3", SECRET, delivery), 200, {"results": [{"ok": True}]})
# Control characters in the webhook's id (of those that HTTP/2 allows in a header), and in the provider's.
strange = json.dumps(
    {
        "type": "push.delivered",
        "data": {"cid": "nowhere", "provider_message_id": "id\n2026 forged \u001b[31m\u009b1m\u2028end"},
    }
)
expect(post("msg_4\u009b31m", SECRET, strange), 401, {"detail": "the header webhook-id is missing or malformed"})
expect(post("msg_4", SECRET, strange), 200, {"results": [{"ok": False, "code": "invalid_field"}], "ignored": 0})
print("ok 10 webhooks")
