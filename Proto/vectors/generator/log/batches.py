"""Batches of the log, and pages."""

from ..fields.notation import encode_all, varint
from ..fields.values import STORE, T0
from .effects import session_record
from .vectors import EFFECT_VECTORS


def named(*names):
    return [next(e for e in EFFECT_VECTORS if e["name"] == name) for name in names]


BATCH_VECTORS = []
for name, index, when, sessions, effects in [
    ("nothing but a time", 1, T0, [], []),
    ("one mark", 2, T0, [session_record(1, [], T0)], [EFFECT_VECTORS[7]]),
    ("every effect", 2**64 - 1, T0 + 9,
     [session_record(300, [3, 298], T0), session_record(2**64 - 1, [], T0, session=STORE)], EFFECT_VECTORS),
]:
    data = (b"\x01" + varint(index) + varint(when) + varint(len(sessions)) + b"".join(map(encode_all, sessions))
            + varint(len(effects)) + b"".join(bytes.fromhex(e["hex"]) for e in effects))
    BATCH_VECTORS.append({
        "name": name, "index": index, "time": when, "sessions": sessions, "effects": [e["name"] for e in effects],
        "hex": data.hex()})

PAGE_VECTORS = []
for name, index, effects in [
    ("an empty page", 0, []),
    ("rows", 77, EFFECT_VECTORS[2:4]),
    ("a segment", 2**32, EFFECT_VECTORS[12:14]),
    ("the shard's head", 5, EFFECT_VECTORS[16:18]),
    ("rows with steps", 78, named("row_assigned: one step", "row_assigned: read while hidden", "step_tail_assigned")),
    ("receipts of a message", 79, named("acknowledged", "acknowledged: while hidden, the longest note")),
    ("users", 80, named("user_assigned", "user_assigned: everything set", "user_settled")),
    ("types", 81, named("channel_type_assigned", "type_settled")),
    ("a channel's head", 82, named("channel_assigned", "truncated", "message_counts_assigned: three segments")),
    ("rows of a thread", 83, named("in_thread: row_assigned", "in_thread: row_erased",
                                   "in_thread: step_tail_assigned: two segments and steps since")),
    ("a segment of a thread", 84, named("in_thread: message_assigned", "in_thread: message_deleted",
                                        "in_thread: sender_erased")),
    ("users, one erased", 85, named("user_assigned", "user_erased")),
    ("memberships", 86, named("membership_assigned", "membership_assigned: a sender who is no member",
                              "membership_assigned: a tombstone")),
    ("outbox", 87, named("membership_queued", "membership_queued: gone, and longer than 127 bytes")),
    ("how far the index is", 88, named("memberships_confirmed", "memberships_received", "index_epoch_assigned")),
    ("rows with times of push acks", 89, named("row_assigned: with the time of a push ack",
                                               "row_assigned: with a marker and the time of a push ack",
                                               "step_tail_assigned: a step that was acknowledged later")),
    ("webhooks", 90, named("webhook_noted")),
    ("tokens", 92, named("token_revoked", "token_revoked: taken back")),
    ("consumers", 93, named("consumer_assigned", "consumer_assigned: with filters, and read", "consumer_state_assigned",
                            "consumer_workers_assigned")),
    ("consumers, while the feed is off", 94, named("feed_switched", "consumer_assigned")),
    ("consumers that are behind deleted channels", 95, named("names_lost", "deletion_held",
                                                             "consumer_assigned")),
    ("the shard's head, with ids of the new kind", 91, EFFECT_VECTORS[16:17] + named("ids_widened")),
]:
    data = b"\x01" + varint(index) + varint(len(effects)) + b"".join(bytes.fromhex(e["hex"]) for e in effects)
    PAGE_VECTORS.append({"name": name, "index": index, "effects": [e["name"] for e in effects], "hex": data.hex()})
