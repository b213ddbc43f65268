"""Frames of tickets, push acks, webhooks and revoked tokens."""

from ..fields.channels import request
from ..fields.notation import byte, many, number, string, time
from ..fields.push import ack_source, delivery, place, revocation
from ..fields.values import CID, T0
from ..framing import frame

PUSH_FRAMES = [
    # Push.
    frame("ticket_place", request(CID, None, string("user", "alice"), string("message", "m-42")), shard=11,
          correlation=29),
    frame("ticket_place_reply", place(7, 0, None, 42, "alice", "m-42"), shard=11, correlation=29),
    frame("ticket_place_reply", place(2**64 - 1, 16777215, 2**32 - 1, 2**32 - 1, "a" * 128, "m" * 128,
                                      "t" * 64 + ":" + "c" * 128),
          correlation=29, name="ticket_place_reply: of a reply, everything as large as it can be"),
    frame("acknowledge_push", request(
        CID, 39, string("user", "alice"), string("message", "m-42"), time("acked", T0), number("flags", 1)), shard=11,
        correlation=30),
    frame("acknowledge_push", request(
        CID, 40, string("user", "alice"), string("message", "m-42"), time("acked", 0), number("flags", 0)), flags=1,
        correlation=30, issued=1_700_000_000, name="acknowledge_push: now, a resend, for a token"),
    frame("acknowledge_push", request(
        CID, 41, string("user", "alice"), string("message", "m-42"), time("acked", T0), number("flags", 3),
        *ack_source("apns", "phone")), shard=11, correlation=30,
        name="acknowledge_push: with names, a provider and a device"),
    frame("acknowledge_push", request(
        CID, 42, string("user", "alice"), string("message", "m-42"), time("acked", 0), number("flags", 2),
        *ack_source("p" * 32, "d" * 32)), flags=1, correlation=30, issued=1_700_000_000,
        name="acknowledge_push: the longest provider and device, a resend, for a token"),
    frame("acknowledge_push", request(
        CID, 43, string("user", "alice"), string("message", "m-42"), time("acked", 0), number("flags", 2),
        *ack_source("fcm", "")), correlation=30, name="acknowledge_push: a provider without a device"),
    frame("acknowledge_push_reply", delivery(1, T0, T0 + 750), correlation=30),
    frame("acknowledge_push_reply", delivery(1, T0, T0 + 750, CID, "alice", "m-42"), correlation=30,
          name="acknowledge_push_reply: with names"),
    frame("acknowledge_push_reply", delivery(0, T0, 0), correlation=30,
          name="acknowledge_push_reply: a thread that they are not in"),
    frame("redeem_ticket", [number("counter", 41)] + place(7, 0, None, 42, "alice", "m-42")
          + [time("acked", 0), number("flags", 1)],
          shard=11, correlation=31),
    frame("redeem_ticket", [number("counter", 42)] + place(7, 300, 42, 1, "bob@example.org", "r-1")
          + [time("acked", T0), number("flags", 0)],
          flags=1, correlation=31, name="redeem_ticket: of a reply, acknowledged before, a resend"),
    frame("redeem_ticket", [number("counter", 43)] + place(7, 0, None, 42, "alice", "m-42")
          + [time("acked", T0), number("flags", 3), *ack_source("fcm", "android")],
          shard=11, correlation=31, name="redeem_ticket: with names, a provider and a device"),
    frame("redeem_ticket", [number("counter", 44)] + place(7, 300, 42, 1, "bob@example.org", "r-1")
          + [time("acked", 0), number("flags", 2), *ack_source("", "web")],
          flags=1, correlation=31, issued=1_700_000_000,
          name="redeem_ticket: a device without a provider, a resend, for a token"),
    frame("redeem_ticket_reply", delivery(1, T0, T0 + 750, CID, "alice", "m-42"), correlation=31),
    frame("redeem_ticket_reply", delivery(0, 1, 2**63 - 1, "t" * 64 + ":" + "c" * 128, "a" * 128, "m" * 128),
          correlation=31, name="redeem_ticket_reply: known, the longest names"),
    frame("webhook_known", [string("key", "relay/msg_2b5Yz")], shard=3, correlation=32),
    frame("webhook_known_reply", [byte("known", 1)], correlation=32),
    frame("webhook_known_reply", [byte("known", 0)], correlation=32, name="webhook_known_reply: not known"),
    frame("note_webhook", [string("key", "k" * 256), number("counter", 43), time("until", T0 + 600_000)], shard=3,
          correlation=33),
    frame("note_webhook_reply", [byte("noted", 1)], correlation=33),
    frame("note_webhook_reply", [byte("noted", 0)], correlation=33, name="note_webhook_reply: it was known"),
    frame("revoke_token", [string("jti", "backend-7"), number("counter", 45), byte("revoked", 1),
                           time("until", T0 + 86_400_000)], correlation=45),
    frame("revoke_token", [string("jti", "j" * 255), number("counter", 46), byte("revoked", 0), time("until", 0)],
          flags=1, correlation=46, name="revoke_token: taken back, the longest id, a resend"),
    frame("revoke_token_reply", [time("until", T0 + 86_400_000), number("version", 7)], correlation=45),
    frame("revoke_token_reply", [time("until", 0), number("version", 2**64 - 1)], correlation=46,
          name="revoke_token_reply: not revoked"),
    frame("get_token", [string("jti", "Zo\u00eb/1")], correlation=47),
    frame("get_token_reply", [time("until", 0), number("version", 0)], correlation=47),
    frame("list_revoked_tokens", [number("known", 0), number("after", 0)], correlation=48),
    frame("list_revoked_tokens", [number("known", 300), number("after", 128)], correlation=48,
          name="list_revoked_tokens: the next part"),
    frame("list_revoked_tokens_reply", [number("version", 9), number("flags", 0), time("ended", 0),
                                        many("revocations", [])], correlation=48),
    frame("list_revoked_tokens_reply", [number("version", 300), number("flags", 3), time("ended", T0),
          many("revocations", [revocation("backend-7", T0 + 86_400_000, 7), revocation("j" * 255, 2**63 - 1, 128)])],
          correlation=48, name="list_revoked_tokens_reply: the beginning of a long list"),
    frame("present_ticket", [number("counter", 44), string("ticket", "t" * 160), time("acked", T0), number("flags", 1)],
          correlation=34),
    frame("present_ticket_reply", delivery(1, T0, T0 + 750, CID, "alice", "m-42"), correlation=34),
]
