#!/usr/bin/env python3
"""Writes the golden vectors of the frame protocol, from frames.md alone, and of tickets, from tickets.md.

This encoder shares nothing with the Swift code, so that a mistake has to be made twice to go unseen. Python's standard
library only; the hashes come from the foreign tool xxhsum (Debian package xxhash).

    ./generate.py            writes the .json files beside it
    ./generate.py --check    exits 1 if one of them is not what it would write
"""

import base64
import hashlib
import hmac
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent

# ---------------------------------------------------------------------------------------------------------- fields


def varint(value):
    assert 0 <= value < 2**64
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode(kind, value):
    """One field by its notation in frames.md."""
    if kind in ("varint", "time"):
        return varint(value)
    if kind == "byte":
        return bytes([value])
    if kind == "bytes":
        return bytes.fromhex(value)
    if kind == "string":
        raw = value.encode("utf-8")
        return varint(len(raw)) + raw
    if kind == "blob":  # a string of bytes that are no text: the proofs
        raw = bytes.fromhex(value)
        return varint(len(raw)) + raw
    if kind == "opt":
        return varint(0 if value is None else value + 1)
    if kind == "effect":  # an effect in an effect, by the name of its vector
        return EFFECT_BYTES[value]
    if kind == "list":
        return varint(len(value)) + b"".join(encode_all(entry) for entry in value)
    raise ValueError(kind)


def encode_all(fields):
    return b"".join(encode(kind, value) for _, kind, value in fields)


# Constructors: a field is [name, notation, value].
def string(name, value):
    return [name, "string", value]


def number(name, value):
    return [name, "varint", value]


def byte(name, value):
    return [name, "byte", value]


def time(name, value):
    return [name, "time", value]


def opt(name, value):
    return [name, "opt", value]


def raw(name, value):
    return [name, "bytes", value]


def blob(name, value):
    return [name, "blob", value]


def many(name, entries):
    return [name, "list", entries]


def options(name, values):
    """`values`: option number to its value's bytes in hexadecimal."""
    return many(name, [[number("option", n), blob("value", v)] for n, v in sorted(values.items())])


def row(user, read=(0, "", 0), delivered=(0, "", 0), own=None, flags=1, mentions=0, joined=None):
    """`flags`: of a row with own details: 1, or 3 and 7 of the viewer's own."""
    fields = [
        string("user", user),
        time("last_read", read[0]),
        string("last_read_message", read[1]),
        number("last_read_sequence", read[2]),
        time("last_delivered", delivered[0]),
        string("last_delivered_message", delivered[1]),
        number("last_delivered_sequence", delivered[2]),
        number("flags", (0 if own is None else flags) | (0 if joined is None else 64)),
    ]
    if own is not None:
        fields += [
            number("unread_messages", own[0]),
            string("first_unread_message", own[1]),
            number("unread_epoch", own[2]),
        ]
        if flags & 2:
            fields.append(number("unread_mentions", mentions))
    if joined is not None:
        fields.append(number("joined_sequence", joined))
    return fields


def channel(cid, created, own_options, members, newest, newest_message, registered):
    return [
        string("cid", cid),
        time("created", created),
        options("options", own_options),
        number("member_count", members),
        number("newest_sequence", newest),
        string("newest_message", newest_message),
        time("newest_registered", registered),
    ]


def status(sequence, state, read, delivered, members, flags, created, acknowledged_=None, receipt_=0):
    return [
        number("sequence", sequence),
        byte("status", state),
        byte("receipt_status", receipt_),
        number("read_count", read),
        number("delivered_count", delivered),
        number("unread_count", members - read),
        number("member_count", members),
        number("flags", flags),
        time("created", created),
    ] + ([] if acknowledged_ is None else [number("acknowledged_count", acknowledged_)])


def type_record(name, version, values):
    return [string("type", name), number("version", version), options("options", values)]


# Values of options, in hexadecimal.
def nullable(value):
    return encode("opt", value).hex()


def request_roles(*roles):
    return "01" + encode("list", [[string("role", role)] for role in roles]).hex()


def reminder_rules(*rules):
    return encode("list", [[number("after", a), byte("when", w), number("limit", n)] for a, w, n in rules]).hex()


def rule_count(n):
    return "02" + varint(n).hex()


def rule_percentage(n):
    return "03" + bytes([n]).hex()


EVERY_OPTION = {
    1: "00", 2: "00", 3: "02", 4: "01", 5: "01", 6: nullable(604_800), 7: nullable(200), 8: nullable(1000),
    9: request_roles("moderator", "on.call-1_x"), 10: "01", 11: rule_percentage(75), 12: varint(4096).hex(),
    13: reminder_rules((1, 0, 1), (3_600, 1, 1_000), (86_400, 2, 100_000), (31_622_400, 1, 128)),
}
# The values of a patch that removes an option.
NULL_OPTIONS = {6: nullable(None), 7: nullable(None), 8: nullable(None), 9: "00"}


def user_settings(user, version=0, flags=0, read_since=0, delivered_since=0, revoked=0):
    return [
        string("user", user), number("version", version), number("flags", flags), time("read_shown_since", read_since),
        time("delivered_shown_since", delivered_since), time("tokens_revoked_before", revoked)]


def entry(user, when=0, exact=0, note=""):
    return [string("user", user), time("time", when), byte("exact", exact), string("note", note)]


def member_status(user, state, read=0, delivered=0, flags=3, acknowledged_=None):
    return [string("user", user), number("found", 0), byte("status", state), time("read", read),
            time("delivered", delivered), byte("flags", flags)] + (
                [] if acknowledged_ is None else [time("acknowledged", acknowledged_)])


# ---------------------------------------------------------------------------------------------------------- frames

KINDS = {
    "hello": 0x01, "challenge": 0x02, "proof": 0x03, "ready": 0x04, "ping": 0x05, "pong": 0x06, "drain": 0x07,
    "events": 0x08, "shard_map": 0x09, "error": 0x0F,
    "put_channel": 0x10, "change_members": 0x11, "register_message": 0x12, "delete_message": 0x13, "mark_read": 0x14,
    "mark_unread": 0x15, "mark_delivered": 0x16, "patch_channel_type": 0x17, "assign_channel_type": 0x18,
    "acknowledge": 0x19, "patch_user": 0x1A, "assign_user": 0x1B, "settle": 0x1C, "delete_channel": 0x1D,
    "truncate_channel": 0x1E, "erase_member": 0x1F,
    "get_channel": 0x20, "read_state": 0x21, "statuses": 0x22, "get_channel_type": 0x23, "list_channel_types": 0x24,
    "get_user": 0x25, "list_unsettled": 0x26, "list_members": 0x27, "member_statuses": 0x28,
    "list_channels": 0x29, "unread_counts": 0x2A, "purge": 0x2B, "rebuild_index": 0x2C,
    "ticket_place": 0x2D, "webhook_known": 0x2E,
    "subscribe": 0x30, "unsubscribe": 0x31, "subscribe_user": 0x32, "announce_row": 0x33,
    "get_token": 0x34, "list_revoked_tokens": 0x35, "revoke_token": 0x46,
    "thread_read_state": 0x37, "user_receipts": 0x38, "user_threads": 0x39,
    "acknowledge_push": 0x40, "redeem_ticket": 0x41, "note_webhook": 0x42, "present_ticket": 0x43,
    "list_roster": 0x44, "list_messages": 0x45,
    "deliver_changes": 0x50, "confirm_changes": 0x51, "snapshot_begin": 0x52, "snapshot_read": 0x53,
    "record_keys": 0x54,
    "backup_begin": 0x4C, "backup_read": 0x4D, "backup_digest": 0x4E, "backup_end": 0x4F,
    "set_member": 0x3A, "mark_unread_since": 0x3B,
    "list_consumers": 0x3C, "read_feed": 0x3D, "put_consumer": 0x47, "remove_consumer": 0x48, "open_partition": 0x49,
    "commit_consumer": 0x4A, "lease_partitions": 0x4B,
    "import_channel": 0x60, "import_messages": 0x61, "import_members": 0x62, "import_acknowledgements": 0x63,
    "list_stored_channels": 0x64, "export_channel": 0x65, "list_users": 0x66,
    "put_push_job": 0x67, "claim_push_jobs": 0x68, "update_push_jobs": 0x69,
}
KINDS |= {name + "_reply": kind | 0x80 for name, kind in KINDS.items()
          if 0x10 <= kind < 0x50 or kind in (0x52, 0x53, 0x54) or 0x60 <= kind <= 0x69}


def xxh64(data):
    out = subprocess.run(["xxhsum", "-H1", "-"], input=data, capture_output=True, check=True).stdout
    return out.split()[0].decode()


def header(length, kind, flags=0, shard=0, correlation=0):
    return (
        length.to_bytes(4, "big") + bytes([kind, flags]) + shard.to_bytes(2, "big") + correlation.to_bytes(4, "big"))


def frame(kind, fields, flags=0, shard=0, correlation=0, name=None, issued=None, thread=None):
    if thread is not None:
        flags |= 4
        fields = fields + [string("thread", thread)]
    if issued is not None:
        flags |= 2
        fields = fields + [raw("issued", issued.to_bytes(4, "big").hex())]
    payload = encode_all(fields)
    return {
        "name": name or kind,
        "kind": kind,
        "kind_number": KINDS[kind],
        "flags": flags,
        "shard": shard,
        "correlation": correlation,
        "fields": fields,
        "hex": (header(8 + len(payload), KINDS[kind], flags, shard, correlation) + payload).hex(),
    }


SESSION = "00112233445566778899aabbccddeeff"
STORE = "f0e0d0c0b0a090807060504030201000"
NONCE_1 = bytes(range(32)).hex()
NONCE_2 = bytes(range(255, 223, -1)).hex()
PROOF = bytes((7 * i + 3) & 255 for i in range(32)).hex()
T0 = 1_767_225_600_000  # 2026-01-01T00:00:00Z
CID = "messaging:general"


def hello_fields(lowest=1, highest=1, age=None, limit=1 << 20, name="gw-1"):
    return [
        raw("magic", b"TDMK".hex()), number("version_lowest", lowest), number("version_highest", highest),
        raw("session", SESSION), opt("session_age", age), raw("nonce", NONCE_1), number("frame_length_max", limit),
        string("name", name),
    ]


def challenge_fields(proof=PROOF, shards=16):
    return [
        number("version", 1), raw("nonce", NONCE_2), blob("proof", proof), number("frame_length_max", 1 << 20),
        number("window", 32768), number("shard_count", shards), raw("store", STORE),
    ]


def request(cid=CID, counter=None, *rest):
    return [string("cid", cid)] + ([] if counter is None else [number("counter", counter)]) + list(rest)


def typed(name, counter=None, *rest):
    return [string("type", name)] + ([] if counter is None else [number("counter", counter)]) + list(rest)


def settings_of(user, counter, *rest):
    return [string("user", user), number("counter", counter), *rest]


def messages(*ids):
    return many("messages", [[string("message", id)] for id in ids])


def place(channel_number, row_number, parent, sequence, user, message_id, cid=CID):
    return [number("channel", channel_number), number("row", row_number), opt("parent", parent),
            number("sequence", sequence), raw("check", xxh64(b"\0".join(t.encode() for t in (cid, user, message_id))))]


def delivery(moved, sent, delivered, cid="", user="", message_id=""):
    return [byte("moved", moved), time("sent", sent), time("delivered", delivered), string("cid", cid),
            string("user", user), string("message", message_id)]


def revocation(jti, until, version):
    return [string("jti", jti), time("until", until), number("version", version)]


def viewed(viewer, message_id, flags=0):
    return request(CID, None, number("viewer_flags", flags), string("viewer", viewer), string("message", message_id))


def page_of_members(viewer, message_id, kind, order, limit, cursor, flags=0):
    return viewed(viewer, message_id, flags) + [
        byte("list", kind), byte("order", order), number("limit", limit), string("cursor", cursor)]


def channel_entry(cid, row_number, member, joined, deleted=None):
    fields = [string("cid", cid), opt("row", row_number), byte("member", member), time("joined", joined)]
    return fields + ([] if deleted is None else [time("deleted", deleted)])


def unread_of(*entries):
    return [many("channels",
                 [[string("cid", cid), string("user", user), number("row", n)] for cid, user, n in entries])]


def unread(messages_, threads, flags=0, mentions=0):
    return [
        number("found", 0), number("unread_messages", messages_), number("unread_threads", threads),
        number("unread_mentions", mentions), byte("unread_flags", flags)]


def list_channels_of(user, flags, limit, cursor, since=None):
    fields = [string("user", user), number("flags", flags), number("limit", limit), opt("cursor", cursor)]
    return fields + ([] if since is None else [time("since", since)])


def backup_part(file, offset, count):
    return [number("file", file), number("offset", offset), number("count", count)]


def backup_contents(indexes, files):
    return [
        raw("store", "0f" * 16), time("time", T0), many("indexes", [[number("index", index)] for index in indexes]),
        many("files", [[string("name", name), number("size", size)] for name, size in files])]


def rebuild(phase, epoch, done=0, channels=0, entries=0):
    return [byte("phase", phase), number("epoch", epoch), number("channels_done", done), number("channels", channels),
            number("entries", entries)]


def channels(*cids):
    return many("channels", [[string("cid", cid)] for cid in cids])


def subscribe(flags, since, *cids):
    return [number("flags", flags), time("since", since), channels(*cids)]


def named(prefix, fields):
    return [[prefix + name, notation, value] for name, notation, value in fields]


def row_event(own, shown, when, own_row, shown_row=None, thread="", unread_in_channel=None):
    fields = [byte("event", 1), string("thread", thread), byte("own", own), byte("shown", shown), time("time", when),
              opt("unread_in_channel", unread_in_channel)]
    return fields + own_row + ([] if shown_row is None else named("shown_", shown_row))


def message_new(sequence, message_id, sender, registered, created, flags, thread=""):
    return [byte("event", 2), string("thread", thread), number("sequence", sequence), string("message", message_id),
            string("sender", sender), time("registered", registered), time("created", created),
            byte("message_flags", flags)]


def message_deleted_event(sequence, message_id, when, thread=""):
    return [byte("event", 3), string("thread", thread), number("sequence", sequence), string("message", message_id),
            time("time", when)]


def truncated_event(sequence, when):
    return [byte("event", 4), number("sequence", sequence), time("time", when)]


def channel_updated(when, fields):
    return [byte("event", 5), time("time", when)] + fields


def channel_deleted_event(when):
    return [byte("event", 6), time("time", when)]


def member_added(user, role, when, count, sequence=0, message_id="", joined=0):
    return [byte("event", 7), string("user", user), string("role", role), time("time", when),
            number("member_count", count), number("sequence", sequence), string("message", message_id),
            number("joined_sequence", joined)]


def limits(*entries):
    """(from, through, hidden, joined)…, of the next event."""
    return [byte("event", 32), many("limits", [
        [time("from", first), time("through", last), byte("hidden", hidden), number("joined_sequence", joined)]
        for first, last, hidden, joined in entries])]


def member_removed(user, when, count):
    return [byte("event", 8), string("user", user), time("time", when), number("member_count", count)]


def status_event(sender, first, last, message_id, state, when, thread=""):
    return [byte("event", 9), string("thread", thread), string("sender", sender), number("from", first),
            number("to", last), string("message", message_id), byte("status", state), time("time", when)]


def receipt_event(sequence, message_id, sender, state, read, unread_, user, note, when, acknowledged_=0,
                  acknowledged_at=0):
    return [byte("event", 10), number("sequence", sequence), string("message", message_id), string("sender", sender),
            byte("receipt_status", state), number("read_count", read), number("unread_count", unread_),
            string("user", user), string("note", note), time("time", when),
            number("acknowledged_count", acknowledged_), time("acknowledged_at", acknowledged_at)]


def membership_event(fields, when, gone):
    return [byte("event", 1)] + fields + [time("time", when), byte("gone", gone)]


def tokens_revoked_event(when):
    return [byte("event", 2), time("time", when)]


def channel_events(*pairs):
    """(cid, [event…])…"""
    return many("channels", [[string("cid", cid), many("events", events)] for cid, events in pairs])


def user_events(*pairs):
    return many("users", [[string("user", user), many("events", events)] for user, events in pairs])


def told(through, lost=0, of_channels=(), of_users=()):
    return [time("through", through), byte("lost", lost), channel_events(*of_channels), user_events(*of_users)]


def subscribed(through, complete=1, *of_channels):
    return [time("through", through), byte("complete", complete), channel_events(*of_channels)]


def membership(cid, channel_number, row_number, member, joined, epoch, deleted=None):
    fields = [string("cid", cid), number("channel_there", channel_number), opt("row", row_number),
              byte("member", member), time("joined", joined), number("epoch", epoch)]
    return fields + ([] if deleted is None else [time("deleted", deleted)])


def members(name, *pairs):
    return many(name, [[string("user", user), string("role", role)] for user, role in pairs])


def partition(index, partitions):
    return [number("index", index), number("partitions", partitions)]


def indexes(name, *values):
    return many(name, [[number("index", value)] for value in values])


def types(*values):
    return many("channel_types", [[string("type", value)] for value in values])


def consumer(name, kinds=0, channel_types=(), since=0, position=1, position_time=T0, committed_at=T0, index=0,
             partitions=1, epoch=0):
    """A consumer with its name."""
    return [
        string("consumer", name), number("kinds", kinds), types(*channel_types), time("since", since),
        number("number", position), time("position_time", position_time), time("committed_at", committed_at),
        *partition(index, partitions), number("epoch", epoch)]


def of_consumer(name, counter, *rest):
    return [string("consumer", name), number("counter", counter), *rest]


def record(kind, record_number, when, cid="", user="", message_id="", sequence=0, thread="", first=0, second=0, text="",
           detail="", users=()):
    fields = [
        byte("kind", kind), number("number", record_number), time("at", when), string("cid", cid), string("user", user),
        string("message", message_id), number("sequence", sequence), string("thread", thread), number("first", first),
        number("second", second), string("text", text), string("detail", detail)]
    return fields + ([many("users", [[string("user", user)] for user in users])] if kind == 19 else [])


def reminders(*rules):
    return many("reminders", [[number("after", a), byte("when", w), number("limit", n)] for a, w, n in rules])


def timer(channel_number, thread, sequence, due, after, purpose, limit=None):
    fields = [
        number("channel", channel_number), number("thread", thread), number("sequence", sequence), time("due", due),
        number("after", after), byte("purpose", purpose)]
    return fields + ([] if limit is None else [number("limit", limit)])


def feed_page(number_, end, through, *records, gap_to=0):
    return [
        number("number", number_), number("end", end), time("through", through), time("gap_to", gap_to),
        many("records", records)]


def ack_source(provider, device):
    """What follows flag 2 of a push ack."""
    return [string("provider", provider), string("device", device)]


def commit(name, counter, index, partitions, flags, number_=0, when=0, epoch=0, state=""):
    return of_consumer(
        name, counter, *partition(index, partitions), number("flags", flags), number("number", number_),
        time("position_time", when), number("epoch", epoch), string("state", state))


def moved_message(id, user="", parent="", sequence=0, registered=0, created=0, expires=0, deleted=0, flags=0,
                  *mentions):
    return [string("message", id), string("user", user), string("parent", parent), number("sequence", sequence),
            time("registered_at", registered), time("created_at", created), time("expires_at", expires),
            time("deleted_at", deleted), byte("flags", flags),
            many("mentions", [[string("user", u)] for u in mentions])]


def moved_member(user, role="", thread="", flags=0, joined=None, joined_at=0, left=0, read=("", 0), delivered=("", 0),
                 unread_from="", epoch=0, moved=(0, 0), acknowledged=0, bounds=(None, None), *moves):
    return [string("user", user), string("role", role), string("parent", thread), byte("flags", flags),
            opt("joined", joined), time("joined_at", joined_at), time("left_at", left),
            string("last_read_message", read[0]), time("last_read_at", read[1]),
            string("last_delivered_message", delivered[0]), time("last_delivered_at", delivered[1]),
            string("first_unread_message", unread_from), number("unread_epoch", epoch), number("read_moves", moved[0]),
            number("delivered_moves", moved[1]), number("acknowledged_through", acknowledged),
            opt("counted_after", bounds[0]), opt("unread_after", bounds[1]),
            many("moves", [[byte("move", move), number("sequence", sequence), time("at", at)]
                           for move, sequence, at in moves])]


def moved_acknowledgement(message_id, user, when, note="", flags=0):
    return [string("message", message_id), string("user", user), time("at", when), string("note", note),
            byte("flags", flags)]


WHOLE_MESSAGE = moved_message("m" * 255, "u" * 255, "p" * 255, 2**32 - 1, 2**63 - 1, 2**63 - 1, 2**63 - 1, 2**63 - 1,
                              127, "carol", "Zo\u00eb")
WHOLE_MEMBER = moved_member(
    "u" * 255, "r" * 64, "t" * 255, 127, 2**32 - 2, 2**63 - 1, 2**63 - 1, ("m" * 255, 2**63 - 1),
    ("d" * 255, 2**63 - 1), "f" * 255, 2**32 - 1, (2**32 - 1, 2**32 - 1), 2**32 - 1, (2**32 - 2, 2**32 - 2),
    (0, 1, T0), (3, 2**32 - 1, 2**63 - 1))


def push_users(*pairs):
    return many("users", [[string("user", user), string("devices", devices)] for user, devices in pairs])


def push_job(key, created, expires, content, *users):
    return [number("key", key), time("created", created), time("expires_at", expires), string("content", content),
            push_users(*users)]


def put_push_job(counter, message_id, key, milliseconds, content, *users, cid=CID):
    return [string("cid", cid), number("counter", counter), string("message", message_id), number("key", key),
            number("milliseconds", milliseconds), string("content", content), push_users(*users)]


def claimed_job(claim, key, *rest):
    fields = push_job(key, *rest)
    return fields[:1] + [number("claim", claim)] + fields[1:]


def named_jobs(name, *pairs):
    return many(name, [[number("key", key), number("claim", claim)] for key, claim in pairs])


def update_jobs(counter, done, milliseconds, *jobs):
    return [number("counter", counter), byte("done", done), number("milliseconds", milliseconds),
            named_jobs("jobs", *jobs)]


def lease(name, counter, worker, partitions, milliseconds, *held):
    return of_consumer(
        name, counter, string("worker", worker), number("partitions", partitions), number("milliseconds", milliseconds),
        indexes("held", *held))


# Bob has read up to m-42: the row of his own devices, and the row that others see.
BOB_OWN = row("bob", (T0 + 7, "m-42", 42), (T0 + 7, "m-42", 42), (3, "m-43", 1))
BOB_SHOWN = row("bob", (T0 + 7, "m-42", 42), (T0 + 7, "m-42", 42))

FRAMES = [
    frame("hello", hello_fields()),
    frame("hello", hello_fields(1, 3, 0, 65536, ""), name="hello: an old session, heard of just now"),
    frame("hello", hello_fields(1, 1, 599_999, 16384, "gätewäy"), name="hello: an age of several bytes"),
    frame("challenge", challenge_fields()),
    frame("challenge", challenge_fields("", 65535), name="challenge: no secret, most shards"),
    frame("proof", [blob("proof", PROOF)]),
    frame("proof", [blob("proof", "")], name="proof: no secret"),
    frame("ready", [
        byte("session", 0), number("session_lifetime", 600_000),
        many("shards", [[number("first", 0), number("count", 16), string("address", "")]])]),
    frame("ready", [
        byte("session", 1), number("session_lifetime", 0),
        many("shards", [
            [number("first", 0), number("count", 8), string("address", "")],
            [number("first", 8), number("count", 8), string("address", "store-2:7777")]])],
        name="ready: resumed, two stores"),
    frame("ready", [byte("session", 1), number("session_lifetime", 1), many("shards", [])], name="ready: no shards"),
    frame("ping", [raw("bytes", "0102030405060708")], correlation=0),
    frame("pong", [raw("bytes", "0102030405060708")], correlation=9),
    frame("drain", []),
    frame("shard_map", [many("owned", []), number("node", 1), many("peers", [])],
          name="shard_map: a node that owns nothing"),
    frame("shard_map", [
        many("owned", [
            [number("first", 0), number("count", 4), number("epoch", 1)],
            [number("first", 8), number("count", 1), number("epoch", 2**64 - 1)]]),
        number("node", 3),
        many("peers", [
            [number("node", 2), string("host", "10.0.0.2"), number("port", 7410)],
            [number("node", 65535), string("host", "store-3.example"), number("port", 65535)]])]),
    frame("deliver_changes", [
        number("from", 3), number("after", 0), many("changes", [
            [number("number", 1), string("user", "alice"), byte("gone", 0)] + membership(CID, 1, 0, 1, T0, 0),
            [number("number", 2**62), string("user", "bob"), byte("gone", 1)]
            + membership(CID, 1, 0, 2, T0, 0, T0)])], shard=5),
    frame("deliver_changes", [number("from", 65535), number("after", 7), many("changes", [])], shard=0,
          name="deliver_changes: nothing"),
    frame("confirm_changes", [number("from", 5), number("through", 1024)], shard=3),
    frame("snapshot_begin", [byte("group", 2), number("first", 10), number("count", 6), byte("from", 0)],
          correlation=1),
    frame("snapshot_begin", [byte("group", 255), number("first", 0), number("count", 65535), byte("from", 1)],
          correlation=1, name="snapshot_begin: also from the owner"),
    frame("snapshot_begin_reply", [number("position", 2**40), number("epoch", 3), raw("hash", "0123456789abcdef"),
                                   number("record_key", 300)],
          correlation=1),
    frame("snapshot_read", [], correlation=2),
    frame("snapshot_read_reply", [byte("is_last", 0), number("total", 8),
                                  raw("digest", hashlib.sha256(b"tidemark").hexdigest()), raw("bytes", b"mark".hex())],
          correlation=2),
    frame("snapshot_read_reply", [byte("is_last", 1), number("total", 8),
                                  raw("digest", hashlib.sha256(b"tidemark").hexdigest()), raw("bytes", "")],
          correlation=3, name="snapshot_read_reply: the end"),
    frame("record_keys", [byte("group", 7)], correlation=4),
    frame("record_keys_reply", [many("keys", [])], correlation=4, name="record_keys_reply: none"),
    frame("record_keys_reply", [many("keys", [[number("number", n), raw("secret", bytes(range(n, n + 32)).hex())]
                                                 for n in (1, 200)])], correlation=4),
    frame("error", [number("code", 4), number("retry_after", 0), string("detail", "")]),
    frame("error", [number("code", 21), number("retry_after", 250), string("detail", "window")],
          shard=3, correlation=0x01020304, name="error: a refused request"),
    frame("error", [number("code", 30), number("retry_after", 0), string("detail", "d" * 256)],
          correlation=0xFFFFFFFF, name="error: the longest detail"),
    frame("put_channel", request(
        CID, 1, options("patch", {1: "00", 3: "02"}), members("members", ("alice", ""), ("bob", "moderator"))),
        shard=5, correlation=0x10001),
    frame("put_channel_reply", [byte("was_created", 1)] + channel(CID, T0, {1: "00", 3: "02"}, 2, 0, "", 0),
          shard=5, correlation=0x10001),
    frame("put_channel", request("a:b", 2, options("patch", {}), members("members")), name="put_channel: empty"),
    frame("change_members", request(
        CID, 128, members("add", ("carol@example.org", "admin")), many("remove", [[string("user", "bob")]])),
        shard=65535, correlation=2),
    frame("change_members_reply", channel(CID, T0, {}, 2, 300, "m-300", T0 + 5), correlation=2),
    frame("register_message", request(
        CID, 16384, string("message", "m-1"), string("user", "alice"), time("created", T0), number("flags", 0)),
        correlation=3),
    frame("register_message", request(
        CID, 2**63, string("message", "m" * 128), string("user", ""), time("created", 0), number("flags", 1)),
        correlation=3, name="register_message: silent, by the system, a high counter"),
    frame("register_message", request(
        CID, 17, string("message", "m-2"), string("user", "alice"), time("created", 0), number("flags", 3)),
        correlation=3, name="register_message: silent, with a receipt"),
    frame("register_message", request(
        CID, 18, string("message", "m-3"), string("user", "alice"), time("created", 0), number("flags", 4)),
        correlation=3, name="register_message: moves no position"),
    frame("register_message", request(
        CID, 19, string("message", "m-4"), string("user", "alice"), time("created", 0), number("flags", 8)),
        correlation=3, name="register_message: mentions all"),
    frame("register_message", request(
        CID, 20, string("message", "m-5"), string("user", "alice"), time("created", 0), number("flags", 16),
        many("mentions", [[string("user", "bob")], [string("user", "carol")]])),
        correlation=3, name="register_message: mentions two"),
    frame("register_message", request(
        CID, 21, string("message", "m-6"), string("user", "alice"), time("created", 0), number("flags", 48),
        many("mentions", [[string("user", "bob")]]), reminders((300, 1, 1_000), (86_400, 2, 100_000))),
        correlation=3, name="register_message: mentions one, with two reminders"),
    frame("register_message", request(
        CID, 22, string("message", "m-7"), string("user", "alice"), time("created", 0), number("flags", 32),
        reminders()), correlation=3, name="register_message: no reminders, whatever its channel has"),
    frame("register_message_reply", [
        byte("was_created", 1), number("sequence", 1), byte("status", 0), byte("receipt_refusal", 0)], correlation=3),
    frame("register_message_reply", [
        byte("was_created", 0), number("sequence", 2), byte("status", 2), byte("receipt_refusal", 1)], correlation=3,
        name="register_message_reply: the day has its receipts"),
    frame("register_message_reply", [
        byte("was_created", 1), number("sequence", 3), byte("status", 0), byte("receipt_refusal", 2)], correlation=3,
        name="register_message_reply: a receipt is not this sender's to ask for"),
    frame("delete_message", request(CID, 5, string("message", "m-1")), correlation=4),
    frame("delete_message_reply", [number("sequence", 4294967294)], correlation=4),
    frame("mark_read", request(CID, 6, string("user", "alice"), string("message", "m-1"), opt("unread_epoch", None)),
          shard=11, correlation=5),
    frame("mark_read", request(CID, 6, string("user", "alice"), string("message", ""), opt("unread_epoch", 0)),
          flags=1, shard=11, correlation=5, name="mark_read: to the newest, epoch 0, a resend"),
    frame("mark_read_reply", row("alice", (T0, "m-1", 1), (T0 - 5, "m-2", 2), (1, "m-2", 0), joined=0), correlation=5),
    frame("mark_unread", request(CID, 7, string("user", "alice"), string("message", "m-1"), opt("unread_epoch", 127)),
          correlation=6),
    frame("mark_unread_reply", row("alice", (T0, "m-9", 9), own=(4294967295, "m-1", 3), joined=2**32 - 1),
          correlation=6),
    frame("mark_delivered", request(CID, 8, string("user", "bob"), string("message", "m-1")), correlation=7),
    frame("mark_delivered_reply", row("bob", (T0, "", 0), (T0, "m-1", 1)), correlation=7),
    frame("patch_channel_type", typed("messaging", 9, options("patch", {1: "01", 2: "00", 3: "01", 4: "01"})),
          shard=1, correlation=8),
    frame("patch_channel_type_reply", type_record("messaging", 2, {2: "00", 3: "01", 4: "01"}), correlation=8),
    frame("assign_channel_type", typed("team", 10, number("version", 7), options("options", {4: "01"})),
          correlation=9),
    frame("assign_channel_type_reply", type_record("team", 2**64 - 1, {4: "01"}), correlation=9),
    frame("get_channel", request(), correlation=10),
    frame("get_channel_reply", channel(CID, T0, {4: "01"}, 16777216, 4294967294, "m-x", T0), correlation=10),
    frame("read_state", request(
        CID, None, number("viewer_flags", 0), string("viewer", "alice"), number("limit", 100), opt("cursor", None)),
        correlation=11),
    frame("read_state", request(
        CID, None, number("viewer_flags", 1), string("viewer", ""), number("limit", 1), opt("cursor", 0)),
        correlation=11, name="read_state: a server, the last page"),
    frame("read_state_reply", [
        many("rows", [row("bob", (T0, "", 0)), row("alice", (T0, "m-1", 1), (T0, "m-2", 2), (1, "m-2", 0))]),
        opt("next_cursor", 255)], correlation=11),
    frame("statuses", request(
        CID, None, number("viewer_flags", 0), string("viewer", "alice"),
        many("messages", [[string("message", "m-1")], [string("message", "gone")]])), correlation=12),
    frame("statuses_reply", [many("statuses", [
        [byte("found", 0)] + status(1, 2, 3, 4, 5, 3, T0), [byte("found", 33)], [byte("found", 34)],
        [byte("found", 0)] + status(2, 0, 0, 0, 0, 0, T0),
        [byte("found", 0)] + status(3, 1, 0, 2, 5, 6, T0, 2, 1)])], correlation=12),
    frame("get_channel_type", typed("messaging"), shard=4, correlation=13),
    frame("get_channel_type_reply", type_record("messaging", 0, {}), correlation=13),
    frame("list_channel_types", [], correlation=14),
    frame("list_channel_types_reply", [many("types", [type_record("a", 1, {}), type_record("b", 2, {1: "00"})])],
          correlation=14),

    # Every option, and every form of its value.
    frame("patch_channel_type", typed("messaging", 18, options("patch", EVERY_OPTION)), correlation=15,
          name="patch_channel_type: every option"),
    frame("patch_channel_type_reply", type_record("messaging", 3, EVERY_OPTION), correlation=15,
          name="patch_channel_type_reply: every option"),
    frame("patch_channel_type", typed("messaging", 19, options("patch", NULL_OPTIONS)), correlation=16,
          name="patch_channel_type: what can be null is"),
    frame("put_channel", request(
        CID, 20, options("patch", NULL_OPTIONS | {5: "02", 10: "00", 11: "00", 12: "00"}), members("members")),
        correlation=16, name="put_channel: null, and the lowest of choices and numbers"),
    frame("get_channel_reply", channel(
        CID, T0, {6: nullable(2**32 - 1), 7: nullable(0), 8: nullable(2**32 - 1)}, 2, 0, "", 0), correlation=16,
        name="get_channel_reply: the ends of what can be null"),
    frame("get_channel_type_reply", type_record("messaging", 4, {9: request_roles(), 11: "01"}), correlation=16,
          name="get_channel_type_reply: no role may ask, all have to read"),
    frame("get_channel_type_reply", type_record(
        "messaging", 5, {9: request_roles(*(f"{n:02}" + "r" * 62 for n in range(64))), 11: rule_count(2**32 - 1)}),
        correlation=16, name="get_channel_type_reply: the most and longest roles, the highest count"),
    frame("get_channel_type_reply", type_record("messaging", 6, {11: rule_count(1), 12: "3f"}), correlation=16,
          name="get_channel_type_reply: one member, 63 steps"),
    frame("get_channel_type_reply", type_record("messaging", 7, {6: nullable(1), 11: rule_percentage(1)}),
          correlation=16, name="get_channel_type_reply: one second, 1 %"),
    frame("get_channel_type_reply", type_record("messaging", 8, {11: rule_percentage(100)}), correlation=16,
          name="get_channel_type_reply: 100 %"),

    # Receipts, users, settling, lists.
    frame("acknowledge", request(CID, 21, string("user", "bob"), string("note", ""), messages("m-1")), correlation=17),
    frame("acknowledge", request(
        CID, 22, string("user", "bob"), string("note", "ü" * 512), messages(*(f"m-{n}" for n in range(100)))),
        flags=1, correlation=17, issued=1_700_000_000,
        name="acknowledge: the longest note, the most messages, a resend"),
    frame("acknowledge_reply", [many("codes", [[number("code", n)] for n in (0, 33, 34, 40, 41, 42)])], correlation=17),
    frame("patch_user", settings_of(
        "alice", 23, number("given", 5), number("values", 0), time("tokens_revoked_before", T0)), correlation=18),
    frame("patch_user", settings_of(
        "a" * 128, 24, number("given", 7), number("values", 3), time("tokens_revoked_before", 0)), correlation=18,
        issued=2**32 - 1, name="patch_user: everything given, the longest id"),
    frame("patch_user_reply", user_settings("alice", 1, 1, revoked=T0), correlation=18),
    frame("assign_user", settings_of(
        "alice", 25, number("version", 2**62), number("flags", 3), time("read_shown_since", T0),
        time("delivered_shown_since", T0 + 1), time("tokens_revoked_before", T0 + 2)), shard=15, correlation=19),
    frame("assign_user_reply", user_settings("alice", 2**64 - 1, 3, 2**63 - 1, 1, 127), shard=15, correlation=19),
    frame("settle", [string("name", "messaging"), number("counter", 26), byte("what", 0), number("version", 3)],
          correlation=20),
    frame("settle", [string("name", "alice"), number("counter", 27), byte("what", 1), number("version", 2**62)],
          correlation=20, name="settle: a user"),
    frame("settle_reply", [byte("settled", 1)], correlation=20),
    frame("settle_reply", [byte("settled", 0)], correlation=20, name="settle_reply: there is a newer version"),
    frame("get_user", [string("user", "alice")], correlation=21),
    frame("get_user_reply", user_settings("alice"), correlation=21),
    frame("list_unsettled", [], shard=7, correlation=22),
    frame("list_unsettled_reply", [many("types", []), many("users", [])], shard=7, correlation=22),
    frame("list_unsettled_reply", [
        many("types", [type_record("a", 1, {}), type_record("messaging", 3, EVERY_OPTION)]),
        many("users", [user_settings("alice", 9, 2, T0), user_settings("bob", 1, 0, 0, T0, T0)])],
        shard=7, correlation=22, name="list_unsettled_reply: both"),
    frame("list_members", page_of_members("alice", "m-1", 0, 0, 100, ""), correlation=23),
    frame("list_members", page_of_members("", "m-1", 1, 1, 1, f"t{T0}-bob", flags=1), correlation=23,
          name="list_members: a server, what was delivered, by time, from a cursor on"),
    frame("list_members", page_of_members("alice", "m-1", 2, 0, 50, "j255"), correlation=23, issued=0,
          name="list_members: the unread ones, by a token without a time"),
    frame("list_members", page_of_members("alice", "m-1", 0, 2, 100, f"d{T0}-bob"), correlation=23,
          name="list_members: the newest first, from a cursor on"),
    frame("list_members_reply", [
        many("entries", [entry("bob", T0, 1, "seen"), entry("carol", T0 + 1, 0), entry("dave", note="n" * 1024)]),
        string("next_cursor", "j7")], correlation=23),
    frame("list_members_reply", [many("entries", []), string("next_cursor", "")], correlation=23,
          name="list_members_reply: nobody"),
    frame("list_members_reply", [many("entries", []), string("next_cursor", ""), number("total", 0)], correlation=23,
          name="list_members_reply: the first page, nobody"),
    frame("list_members_reply", [many("entries", []), string("next_cursor", "j7"), number("total", 2**32 - 1)],
          correlation=23, name="list_members_reply: the first page, the largest total"),
    frame("member_statuses", viewed("alice", "m-1") + [many("users", [[string("user", "bob")]])], correlation=24),
    frame("member_statuses", viewed("alice", "m-1", 1) + [
        many("users", [[string("user", f"user-{n}")] for n in range(100)])], correlation=24,
        name="member_statuses: a server for alice, the most users"),
    frame("member_statuses_reply", [many("statuses", [
        member_status("bob", 2, T0 + 1, T0), [string("user", "eve"), number("found", 32)],
        [string("user", "fay"), number("found", 43)], [string("user", "gil"), number("found", 39)],
        member_status("hal", 1, 0, T0, 1), member_status("ivy", 0),
        member_status("jan", 1, 0, T0, 7, T0 + 3), member_status("kim", 0, 0, 0, 4, 2**63 - 1),
        member_status("lea", 2, T0, T0, 2)])], correlation=24),
    frame("list_roster", [string("cid", CID), number("viewer_flags", 0), string("viewer", "alice"),
                          number("limit", 100), opt("cursor", None)],
          correlation=24),
    frame("list_roster", [string("cid", CID), number("viewer_flags", 1), string("viewer", ""), number("limit", 1),
                          opt("cursor", 2**32 - 1)],
          correlation=24, name="list_roster: a server, from the last row on"),
    frame("list_roster_reply", [
        many("members", [[string("user", "alice"), string("role", "owner"), time("joined_at", T0), number("muted", 1)],
                         [string("user", "b" * 255), string("role", ""), time("joined_at", T0 + 1),
                          number("muted", 0)]]), opt("next_cursor", 2)], correlation=24),
    frame("list_roster_reply", [many("members", []), opt("next_cursor", None)], correlation=24,
          name="list_roster_reply: nobody"),
    frame("list_messages", [string("cid", CID), number("limit", 100), opt("cursor", None), opt("reply", None)],
          correlation=24),
    frame("list_messages", [string("cid", CID), number("limit", 1), opt("cursor", 7), opt("reply", 0)], correlation=24,
          name="list_messages: behind the replies to message 7"),
    frame("list_messages_reply", [
        many("messages", [
            [number("sequence", 1), string("message", "r-1"), string("parent", "m-2"), string("sender", ""),
             time("created", T0 + 2), number("flags", 1)],
            [number("sequence", 2), string("message", "m-2"), string("parent", ""), string("sender", "alice"),
             time("created", T0), number("flags", 3)]]),
        opt("next_cursor", 1), opt("next_reply", None)], correlation=24),
    frame("list_messages_reply", [many("messages", []), opt("next_cursor", None), opt("next_reply", None)],
          correlation=24, name="list_messages_reply: none"),

    # When the user's token was issued.
    frame("mark_read", request(CID, 28, string("user", "alice"), string("message", "m-1"), opt("unread_epoch", None)),
          shard=11, correlation=25, issued=1_700_000_000, name="mark_read: for a token of that second"),
    frame("mark_delivered", request(CID, 29, string("user", "alice"), string("message", "")), flags=1, correlation=25,
          issued=0, name="mark_delivered: a resend, for a token that says no time"),
    frame("read_state", request(
        CID, None, number("viewer_flags", 0), string("viewer", "alice"), number("limit", 100), opt("cursor", None)),
        correlation=25, issued=2**32 - 1, name="read_state: the last second there is"),
    frame("get_user", [string("user", "alice")], correlation=25, issued=1_700_000_000,
          name="get_user: for a token of that second"),
    frame("list_unsettled", [], correlation=25, issued=1, name="list_unsettled: nothing but the second"),

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

    # Threads: the parent message stands behind the fields, before the second of the token.
    frame("register_message", request(
        CID, 30, string("message", "m-7"), string("user", "bob"), time("created", T0), number("flags", 0)),
        correlation=27, thread="m-1", name="register_message: a reply"),
    frame("mark_read", request(CID, 31, string("user", "alice"), string("message", ""), opt("unread_epoch", None)),
          shard=11, correlation=27, thread="m-1", name="mark_read: a whole thread"),
    frame("mark_read", request(CID, 31, string("user", "alice"), string("message", "m-7"), opt("unread_epoch", 3)),
          shard=11, correlation=27, thread="m-1", issued=1_700_000_000, name="mark_read: a thread, for a token"),
    frame("mark_unread", request(CID, 32, string("user", "alice"), string("message", "m-7"), opt("unread_epoch", None)),
          flags=1, correlation=27, thread="p" * 128, name="mark_unread: a thread, a resend, the longest id"),
    frame("mark_delivered", request(CID, 33, string("user", "alice"), string("message", "")), flags=1, correlation=27,
          thread="m-1", issued=0, name="mark_delivered: a thread, a resend, for a token that says no time"),

    # Positions in a thread that count nowhere.
    frame("mark_read_reply", row("bob", (T0, "r-1", 1), (T0, "r-1", 1), (0, "", 0)) + [byte("uncounted", 3)],
          correlation=27, name="mark_read_reply: it counts for no reply"),
    frame("mark_delivered_reply", row("bob", own=(0, "", 0)) + [byte("uncounted", 1)], correlation=27,
          name="mark_delivered_reply: not in the thread"),
    frame("mark_unread_reply", row("bob", own=(0, "", 0)) + [byte("uncounted", 2)], correlation=27,
          name="mark_unread_reply: no replies"),
    frame("acknowledge_push_reply", delivery(2, T0, 0), correlation=30,
          name="acknowledge_push_reply: not in the thread"),
    frame("acknowledge_push_reply", delivery(5, T0, T0 + 750), correlation=30,
          name="acknowledge_push_reply: moved, and registered before"),
    frame("thread_read_state", request(
        CID, None, number("viewer_flags", 0), string("viewer", "alice"), string("parent", "m-1"), number("limit", 100),
        string("cursor", "")), shard=11, correlation=36),
    frame("thread_read_state", request(
        CID, None, number("viewer_flags", 1), string("viewer", ""), string("parent", "p" * 128), number("limit", 1),
        string("cursor", "k1767225600000-bob")), correlation=36, issued=1_700_000_000,
        name="thread_read_state: a further page, for a token"),
    frame("thread_read_state_reply", [many("rows", [row("alice", (T0, "r-2", 2), (T0, "r-2", 2), (0, "", 0)),
                                                    row("bob", (T0, "r-1", 1))]),
                                      string("next_cursor", "k1767225600000-bob")], correlation=36),
    frame("thread_read_state_reply", [many("rows", []), string("next_cursor", "")], correlation=36,
          name="thread_read_state_reply: no replies"),

    # A user's own receipts and threads in a channel.
    frame("user_receipts", request(CID, None, string("user", "alice"), byte("state", 0), number("limit", 100),
                                   opt("cursor", None)), shard=11, correlation=37),
    frame("user_receipts", request(CID, None, string("user", "alice"), byte("state", 1), number("limit", 1),
                                   opt("cursor", 2**32 - 1)), correlation=37, issued=1,
          name="user_receipts: acknowledged ones, below a message, for a token"),
    frame("user_receipts_reply", [many("receipts", [
        [number("sequence", 42), string("message", "m-42"), string("sender", "bob"), time("created", T0),
         byte("receipt_status", 1), time("expires", T0 + 1000), time("acknowledged", 0), byte("exact", 1),
         string("note", "")],
        [number("sequence", 40), string("message", "m-40"), string("sender", ""), time("created", T0),
         byte("receipt_status", 2), time("expires", 0), time("acknowledged", T0 + 5), byte("exact", 0),
         string("note", "on it ✓")]]), opt("next_cursor", 40)], correlation=37),
    frame("user_receipts_reply", [many("receipts", []), opt("next_cursor", None)], correlation=37,
          name="user_receipts_reply: none"),
    frame("user_threads", request(CID, None, string("user", "alice"), byte("threads", 1), number("limit", 100),
                                  opt("cursor", None)), shard=11, correlation=38),
    frame("user_threads_reply", [many("threads", [
        [number("parent_sequence", 42), string("parent", "m-42"), number("unread_messages", 2),
         string("last_read_message", "r-1"), string("first_unread_message", "r-2"), string("newest_message", "r-3")],
        [number("parent_sequence", 7), string("parent", "m-7"), number("unread_messages", 0),
         string("last_read_message", ""), string("first_unread_message", ""), string("newest_message", "x-1")]]),
        opt("next_cursor", 7)], correlation=38),
    frame("user_threads_reply", [many("threads", []), opt("next_cursor", None)], correlation=38,
          name="user_threads_reply: none"),

    # Removal, and erasing a user.
    frame("delete_channel", request(CID, 34), shard=5, correlation=28),
    frame("delete_channel_reply", [byte("deleted", 1)], shard=5, correlation=28),
    frame("delete_channel_reply", [byte("deleted", 0)], correlation=28, name="delete_channel_reply: there was none"),
    frame("truncate_channel", request(CID, 35, string("message", "")), correlation=28),
    frame("truncate_channel", request(CID, 36, string("message", "m-300")), flags=1, correlation=28, issued=1,
          name="truncate_channel: those before a message, a resend"),
    frame("truncate_channel_reply", channel(CID, T0, {}, 2, 300, "m-300", T0 + 5), correlation=28),
    frame("erase_member", request(CID, 37, string("user", "alice")), correlation=28),
    frame("erase_member_reply", [byte("erased", 1)], correlation=28),
    frame("erase_member_reply", [byte("erased", 0)], correlation=28, name="erase_member_reply: not known there"),
    frame("patch_user", settings_of(
        "alice", 38, number("given", 8), number("values", 0), time("tokens_revoked_before", 0)), correlation=28,
        name="patch_user: erase"),
    frame("patch_user_reply", user_settings("alice", 3, 4), correlation=28, name="patch_user_reply: being erased"),
    frame("assign_user", settings_of(
        "alice", 39, number("version", 3), number("flags", 4), time("read_shown_since", 0),
        time("delivered_shown_since", 0), time("tokens_revoked_before", 0)), shard=15, correlation=28,
        name="assign_user: being erased"),
    frame("assign_user", settings_of(
        "alice", 40, number("version", 4), number("flags", 8), time("read_shown_since", 0),
        time("delivered_shown_since", 0), time("tokens_revoked_before", 0)), shard=15, correlation=28,
        name="assign_user: erased"),
    frame("assign_user_reply", user_settings("alice", 4, 8), shard=15, correlation=28,
          name="assign_user_reply: erased"),
    frame("get_user_reply", user_settings("alice", 3, 7, T0, T0 + 1, T0 + 2), correlation=28,
          name="get_user_reply: being erased, and everything else"),
    frame("list_unsettled_reply", [many("types", []), many("users", [user_settings("alice", 3, 4)])], correlation=28,
          name="list_unsettled_reply: a user who is being erased"),
    frame("purge", [number("round", 0)], shard=15, correlation=28, name="purge: asked first"),
    frame("purge", [number("round", 2**64 - 1)], shard=15, correlation=28, name="purge: the last round"),
    frame("purge_reply", [number("round", 300)], shard=15, correlation=28, name="purge_reply: to be waited for"),
    frame("purge_reply", [number("round", 0)], shard=15, correlation=28, name="purge_reply: done"),

    # The index of users' channels, and unread counts.
    frame("list_channels", list_channels_of("alice", 0, 100, None), shard=3, correlation=29),
    frame("list_channels", list_channels_of("a" * 128, 1, 1000, 2**32 - 1), correlation=29,
          name="list_channels: also ended ones, the most, the last place, the longest id"),
    frame("list_channels", list_channels_of("alice", 0, 1, 0), correlation=29, issued=1_700_000_000,
          name="list_channels: from the first place on, for a token"),
    frame("list_channels", list_channels_of("alice", 2, 1000, None, T0), shard=3, correlation=29,
          name="list_channels: also deleted ones"),
    frame("list_channels", list_channels_of("alice", 3, 1000, 256, 2**63 - 1), shard=3, correlation=29,
          issued=1_700_000_000, name="list_channels: also ended and deleted ones, for a token"),
    frame("list_channels_reply", [
        many("entries", [
            channel_entry(CID, 0, 1, T0), channel_entry("t" * 64 + ":" + "c" * 128, 16777215, 0, 2**63 - 1),
            channel_entry("team:red", None, 0, 0)]),
        opt("next_cursor", 256)], shard=3, correlation=29),
    frame("list_channels_reply", [many("entries", []), opt("next_cursor", None)], correlation=29,
          name="list_channels_reply: no channel"),
    frame("list_channels_reply", [
        many("entries", [
            channel_entry(CID, 0, 3, T0, T0), channel_entry("team:red", None, 2, 0, 2**63 - 1)]),
        opt("next_cursor", None)], shard=3, correlation=29,
          name="list_channels_reply: one that was made anew, and one that was deleted"),
    frame("unread_counts", unread_of((CID, "alice", 0)), shard=11, correlation=30),
    frame("unread_counts", unread_of(
        (CID, "alice", 16777215), ("team:red", "bob", 300), ("t" * 64 + ":" + "c" * 128, "a" * 128, 0)),
        correlation=30, name="unread_counts: several"),
    frame("unread_counts_reply", [many("counts", [unread(3, 1)])], shard=11, correlation=30),
    frame("unread_counts_reply", [many("counts", [unread(0, 0, 1), unread(5, 2, 2), unread(1, 0, 3, 1)])],
          correlation=30, name="unread_counts_reply: flagged, muted, and both"),
    frame("mark_unread_since", request(CID, 47, string("user", "alice"), time("since", T0), opt("unread_epoch", 3)),
          shard=11, correlation=47),
    frame("mark_unread_since", request(CID, 48, string("user", "alice"), time("since", 1), opt("unread_epoch", None)),
          correlation=47, thread="m-1", name="mark_unread_since: in a thread"),
    frame("mark_unread_since_reply", row("alice", (T0, "m-1", 1), own=(2, "m-2", 4), flags=3), shard=11,
          correlation=47),
    frame("set_member", request(CID, 45, string("user", "alice"), string("role", ""), number("flags", 3)), shard=11,
          correlation=46),
    frame("set_member", request(CID, 46, string("user", "bob"), string("role", "moderator"), number("flags", 4)),
          correlation=46, name="set_member: a role, joining"),
    frame("set_member_reply", [byte("joined", 0), string("role", ""), time("joined_at", T0), byte("muted", 1)],
          shard=11, correlation=46),
    frame("set_member_reply", [byte("joined", 1), string("role", "moderator"), time("joined_at", T0), byte("muted", 0)],
          correlation=46, name="set_member_reply: joined"),
    frame("mark_unread", request(CID, 7, string("user", "alice"), string("message", ""), opt("unread_epoch", None)),
          correlation=6, name="mark_unread: the whole channel"),
    frame("mark_unread_reply", row("alice", (T0, "m-9", 9), own=(0, "", 4), flags=7), correlation=6,
          name="mark_unread_reply: flagged as a whole"),
    frame("mark_read_reply", row("alice", (T0, "m-9", 9), own=(9, "m-10", 4), flags=3, mentions=2), correlation=5,
          name="mark_read_reply: the own row"),
    frame("mark_read_reply",
          row("alice", (T0, "m-9", 9), (T0 - 5, "m-11", 11), own=(9, "m-10", 4), flags=3, mentions=2),
          correlation=5, name="mark_read_reply: three messages"),
    frame("unread_counts_reply", [many("counts", [
        unread(0, 0), [number("found", 31)], [number("found", 32)], [number("found", 22)],
        unread(2**32 - 1, 65536)])], correlation=30, name="unread_counts_reply: what is known of each"),
    frame("rebuild_index", [byte("phase", 0), number("epoch", 0)], shard=2, correlation=31),
    frame("rebuild_index", [byte("phase", 1), number("epoch", 1)], shard=2, correlation=31,
          name="rebuild_index: send again"),
    frame("rebuild_index", [byte("phase", 2), number("epoch", 2**64 - 1)], shard=2, correlation=31,
          name="rebuild_index: sweep, the last epoch"),
    frame("rebuild_index_reply", rebuild(0, 0), shard=2, correlation=31),
    frame("rebuild_index_reply", rebuild(1, 1, 127, 128, 300), shard=2, correlation=31,
          name="rebuild_index_reply: sending again"),
    frame("rebuild_index_reply", rebuild(2, *[2**64 - 1] * 4), shard=2, correlation=31,
          name="rebuild_index_reply: sweeping, everything at its largest"),

    # Backup.
    frame("backup_begin", [], correlation=36),
    frame("backup_begin_reply", backup_contents([7, 0], [("CURRENT", 16), ("000012.sst", 2**40)]), correlation=36),
    frame("backup_begin_reply", backup_contents([2**64 - 1], [("n" * 64, 2**64 - 1)]), correlation=36,
          name="backup_begin_reply: the longest name, everything at its largest"),
    frame("backup_read", backup_part(1, 2**19, 2**19), correlation=37),
    frame("backup_read_reply",
          [raw("digest", hashlib.sha256(b"tidemark").hexdigest()), raw("bytes", b"tidemark".hex())],
          correlation=37),
    frame("backup_digest", backup_part(2**32 - 1, 2**64 - 1, 2**64 - 1), correlation=38,
          name="backup_digest: everything at its largest"),
    frame("backup_digest_reply", [raw("digest", "ab" * 32)], correlation=38),
    frame("backup_end", [], correlation=39),
    frame("backup_end_reply", [], correlation=39),

    # Events: subscriptions and events frames.
    frame("subscribe", subscribe(0, 0, CID), shard=11, correlation=32),
    frame("subscribe", subscribe(1, T0, CID, "team:red", "t" * 64 + ":" + "c" * 128), correlation=32,
          name="subscribe: several, with what has changed since"),
    frame("subscribe", subscribe(1, 2**63 - 1, *(f"a:{n}" for n in range(1024))), correlation=32,
          name="subscribe: the most, since the last time there is"),
    frame("subscribe_reply", subscribed(T0), shard=11, correlation=32),
    frame("subscribe_reply", subscribed(T0 + 9, 0), correlation=32, name="subscribe_reply: too much to tell"),
    frame("subscribe_reply", subscribed(
        T0 + 9, 1,
        (CID, [truncated_event(12, T0 + 1), row_event(1, 1, T0 + 7, BOB_OWN, BOB_SHOWN),
               status_event("alice", 1, 42, "m-42", 2, T0 + 7)]),
        ("team:red", [channel_deleted_event(T0 + 9)]), ("team:blue", [])), correlation=32,
        name="subscribe_reply: what has changed"),
    frame("unsubscribe", [channels(CID)], shard=11, correlation=33),
    frame("unsubscribe", [channels(*(f"a:{n}" for n in range(1024)))], correlation=33, name="unsubscribe: the most"),
    frame("unsubscribe_reply", [], shard=11, correlation=33),
    frame("subscribe_user", [string("user", "alice"), byte("on", 1)], shard=3, correlation=34),
    frame("subscribe_user", [string("user", "a" * 128), byte("on", 0)], correlation=34,
          name="subscribe_user: no longer, the longest id"),
    frame("subscribe_user_reply", [time("through", T0)], shard=3, correlation=34),
    frame("announce_row", [string("user", "alice"), channels(CID)], shard=11, correlation=35),
    frame("announce_row", [string("user", "a" * 128), channels(*(f"a:{n}" for n in range(1024)))], correlation=35,
          name="announce_row: the most, the longest id"),
    frame("announce_row_reply", [], shard=11, correlation=35),
    frame("events", told(T0), shard=11, name="events: nothing but how far it is told"),
    frame("events", told(0), name="events: a shard that has no time yet"),
    frame("events", told(T0 + 9, 1), shard=65535, name="events: some were lost"),
    frame("events", told(
        T0 + 9, 0,
        [(CID, [
            row_event(1, 1, T0 + 7, BOB_OWN, BOB_SHOWN),
            row_event(2, 0, T0 + 7, row("carol", (T0, "m-1", 1), own=(41, "m-2", 7))),
            row_event(0, 2, T0 + 7, BOB_OWN, BOB_SHOWN, thread="m-1"),
            row_event(1, 1, T0 + 8, BOB_OWN, BOB_SHOWN, thread="m-1", unread_in_channel=3),
            row_event(3, 7, T0 + 8, BOB_OWN, row("bob")),
            row_event(1, 9, T0 + 8, BOB_OWN, BOB_SHOWN),
            row_event(0, 15, T0 + 8,
                      row("a" * 128, (2**63 - 1, "m" * 128, 2**32 - 1), (2**63 - 1, "m" * 128, 2**32 - 1),
                          (2**32 - 1, "f" * 128, 2**32 - 1)),
                      row("a" * 128), thread="p" * 128),
            message_new(43, "m-43", "alice", T0 + 8, T0 + 2, 0),
            message_new(1, "r-1", "", T0 + 8, 0, 3, thread="m-1"),
            message_new(44, "m-44", "alice", T0 + 9, T0 + 9, 60), message_new(45, "m-45", "bob", T0 + 9, T0 + 9, 44),
            message_new(46, "m-46", "carol", T0 + 9, T0 + 9, 127),
            message_deleted_event(9, "m-9", T0 + 8),
            message_deleted_event(2, "r-2", T0 + 8, thread="m-1"),
            truncated_event(2**32 - 1, T0 + 8),
            channel_updated(T0 + 8, channel(CID, T0, {1: "00", 3: "02"}, 2, 43, "m-43", T0 + 8)),
            member_added("dave", "", T0 + 8, 4),
            limits((T0 + 7, T0 + 7, 1, 0)),
            member_added("eve@example.org", "admin", T0 + 8, 2**32 - 1, 2**32 - 1, "m" * 128, 2**32 - 1),
            limits((T0 + 4, T0 + 6, 14, 41), (T0 + 1, T0 + 3, 2, 40)),
            row_event(0, 5, T0 + 8, BOB_OWN, BOB_SHOWN),
            member_removed("eve@example.org", T0 + 9, 4),
            status_event("alice", 1, 42, "m-42", 2, T0 + 7),
            status_event("alice", 43, 43, "m-43", 0, T0 + 8, thread="m-1"),
            status_event("", 1, 2**32 - 1, "m-x", 1, 2**63 - 1),
            receipt_event(40, "m-40", "alice", 1, 1, 2, "bob", "on it ✓", T0 + 9, 2**32 - 1, T0 + 8),
            receipt_event(41, "m-41", "", 3, 0, 2**32 - 1, "", "", T0 + 9),
            channel_deleted_event(T0 + 9)]),
         ("team:red", [receipt_event(1, "m-1", "alice", 2, 2, 0, "bob", "n" * 1024, T0 + 9, 2, T0 + 9)]),
         ("team:blue", [])],
        [("alice", [membership_event(channel_entry(CID, 0, 1, T0), T0 + 9, 0)]),
         ("bob", [membership_event(channel_entry("team:red", 300, 0, T0), T0 + 9, 0),
                  membership_event(channel_entry("team:blue", None, 0, 0), T0 + 9, 1),
                  tokens_revoked_event(T0 + 8)]),
         ("carol", [])]), shard=11, name="events: of every kind"),

    # The feed and its consumers.
    frame("list_consumers", [string("consumer", "")], shard=3, correlation=50),
    frame("list_consumers", [string("consumer", "search-index")], shard=3, correlation=50,
          name="list_consumers: one of them"),
    frame("list_consumers_reply", [number("retention", 0), number("end", 1), many("consumers", [])], correlation=50),
    frame("list_consumers_reply", [number("retention", 86_400_000), number("end", 300), many("consumers", [
        consumer("audit") + [many("states", [])],
        consumer("search-index", 5, ("messaging", "team"), T0, 128, T0 + 1, T0 + 2, 3, 4, T0 + 3) + [many("states", [
            [*partition(3, 4), string("state", "offset 7 \u2713")], [*partition(1023, 1024), string("state", "")]])],
        consumer("c" * 64, 2**32 - 1, ("t" * 64,), 2**63 - 1, 2**64 - 1, 2**63 - 1, 2**63 - 1, 2**16 - 1, 2**16 - 1,
                 2**64 - 1) + [many("states", [])]])], correlation=50, name="list_consumers_reply: three of them"),
    frame("read_feed", [
        string("consumer", "search-index"), *partition(3, 4), number("epoch", T0), number("number", 128),
        number("flags", 0), number("limit", 2_000)], shard=3, correlation=51),
    frame("read_feed", [
        string("consumer", "c" * 64), *partition(2**16 - 1, 2**16 - 1), number("epoch", 2**64 - 1),
        number("number", 2**64 - 1), number("flags", 2**64 - 1), number("limit", 2**32 - 1)], shard=3, correlation=51,
          name="read_feed: the largest numbers"),
    frame("read_feed", [
        string("consumer", "audit"), *partition(0, 1), number("epoch", 0), number("number", 1), number("flags", 1),
        number("limit", 10_000)], shard=3, correlation=51, name="read_feed: without a lease, at once"),
    frame("read_feed_reply", feed_page(128, 128, T0), correlation=51),
    frame("read_feed_reply", feed_page(1, 2**64 - 1, 2**63 - 1, gap_to=2**63 - 1), correlation=51,
          name="read_feed_reply: nothing but a gap"),
    frame("read_feed_reply", feed_page(
        150, 300, T0 + 10,
        record(0, 128, T0, CID, "alice", "m-42", 42, first=3),
        record(0, 129, T0, CID, "bob", "m-43", 1, "m-42"),
        record(1, 130, T0 + 1, CID, "alice", "m-42", 42),
        record(2, 131, T0 + 2, CID, "bob", "m-41", 41),
        record(3, 132, T0 + 3, CID, "bob", "m-41", 41, first=T0 - 60_000, text="apns", detail="phone"),
        record(4, 133, T0 + 4, CID, "carol", "", 0, first=2**32 - 1, second=1),
        record(5, 134, T0 + 4, CID, "carol", "m-40", 40),
        record(6, 135, T0 + 4, CID, "alice", "m-40", 40),
        record(7, 136, T0 + 5, CID, "", "m-39", 39),
        record(8, 137, T0 + 5, CID, "alice", "m-41", 41, first=40, second=2),
        record(9, 138, T0 + 5, CID, "dave"),
        record(10, 139, T0 + 6, CID),
        record(11, 140, T0 + 6, "team:red"),
        record(12, 141, T0 + 6, "team:red"),
        record(13, 142, T0 + 6, "t" * 64 + ":" + "c" * 255),
        record(14, 143, T0 + 7, CID, sequence=2**32 - 1),
        record(15, 144, T0 + 7, CID, "bob", first=41, second=2**64 - 1, text="m-41", detail="m" * 255),
        record(16, 145, T0 + 8, user="bob", first=2),
        record(17, 146, T0 + 9, user="\u00eb" * 127),
        record(18, 147, T0 + 10, first=T0 - 3_600_000),
        record(19, 148, T0 + 10, CID, "", "m-42", 42, first=2**32 + 1, second=1, users=("bob", "carol")),
        record(19, 149, T0 + 10, CID, "", "m-43", 1, "m-42", first=10 * 2**32 + 10, second=6, users=())),
        correlation=51, name="read_feed_reply: records of every type"),
    frame("put_consumer", of_consumer("audit", 50, number("kinds", 0), types(), byte("start", 0), time("since", 0)),
          shard=3, correlation=52),
    frame("put_consumer", of_consumer(
        "search-index", 51, number("kinds", 5), types("messaging", "team"), byte("start", 2), time("since", T0)),
          flags=1, shard=3, correlation=52, name="put_consumer: filters, since a time, a resend"),
    frame("put_consumer", of_consumer(
        "c" * 64, 2**64 - 1, number("kinds", 2**32 - 1), types("t" * 64), byte("start", 1), time("since", 2**63 - 1)),
          shard=3, correlation=52, name="put_consumer: the largest numbers"),
    frame("put_consumer_reply", [byte("created", 1)], correlation=52),
    frame("put_consumer_reply", [byte("created", 0)], correlation=52, name="put_consumer_reply: it existed"),
    frame("remove_consumer", of_consumer("audit", 52), shard=3, correlation=53),
    frame("remove_consumer_reply", [], correlation=53),
    frame("open_partition", of_consumer("search-index", 53, *partition(3, 4), number("epoch", T0)), shard=3,
          correlation=54),
    frame("open_partition", of_consumer(
        "search-index", 54, *partition(2**16 - 1, 2**16 - 1), number("epoch", 2**64 - 1)), shard=3, correlation=54,
          name="open_partition: the largest numbers"),
    frame("open_partition_reply", [number("number", 1), time("position_time", T0), string("state", "")],
          correlation=54),
    frame("open_partition_reply", [
        number("number", 2**64 - 1), time("position_time", 2**63 - 1), string("state", "s" * 16_384)], correlation=54,
          name="open_partition_reply: the longest state, the largest numbers"),
    frame("commit_consumer", commit("search-index", 55, 3, 4, 7, 128, T0 + 1, T0, "offset 7 \u2713"), shard=3,
          correlation=55),
    frame("commit_consumer", commit("search-index", 56, 3, 4, 1, 2**64 - 1, 2**63 - 1), shard=7, correlation=55,
          name="commit_consumer: a position alone"),
    frame("commit_consumer", commit("search-index", 57, 3, 4, 2), shard=3, correlation=55,
          name="commit_consumer: no state any more"),
    frame("commit_consumer", commit("search-index", 58, 0, 1, 6, 0, 0, 2**64 - 1, "s" * 16_384), shard=0,
          correlation=55, name="commit_consumer: the longest state, for an epoch"),
    frame("commit_consumer_reply", [], correlation=55),
    frame("lease_partitions", lease("search-index", 59, "worker-1", 4, 8_000, 0, 3), shard=5, correlation=56),
    frame("lease_partitions", lease("search-index", 60, "w" * 64, 2**16 - 1, 2**32 - 1, 2**16 - 1), shard=5,
          correlation=56, name="lease_partitions: the largest numbers"),
    frame("lease_partitions", lease("search-index", 61, "worker-1", 4, 0), shard=5, correlation=56,
          name="lease_partitions: the worker leaves"),
    frame("lease_partitions_reply", [number("workers", 2), indexes("granted", 0, 3)], correlation=56),
    frame("lease_partitions_reply", [number("workers", 0), indexes("granted")], correlation=56,
          name="lease_partitions_reply: nothing"),
    frame("lease_partitions_reply", [number("workers", 256), indexes("granted", 300, 2**16 - 1)], correlation=56,
          name="lease_partitions_reply: large numbers"),
] + [
    # Every other error.
    frame("error", [number("code", code), number("retry_after", 0), string("detail", "")], correlation=26,
          name=f"error: {name}")
    for code, name in [
        (1, "malformed_frame"), (2, "frame_too_large"), (3, "unsupported_version"), (5, "unknown_kind"),
        (6, "session_expired"), (7, "handshake_required"), (8, "handshake_timeout"), (9, "superseded"),
        (20, "wrong_shard"), (22, "unavailable"), (23, "outcome_unknown"), (24, "not_implemented"), (25, "clock_jump"),
        (26, "data_directory_lost"), (27, "not_owner"), (31, "channel_not_found"), (32, "not_a_member"),
        (33, "message_not_found"), (34, "message_deleted"), (35, "mark_unread_off"), (36, "limit_reached"),
        (37, "token_revoked"), (38, "order_not_available"), (39, "counts_not_visible"), (40, "receipt_not_requested"),
        (41, "own_message"), (42, "receipt_expired"), (43, "not_expected"), (44, "invalid_cursor"),
        (45, "user_erased"), (46, "ticket_invalid"), (47, "ticket_expired"), (48, "message_conflict"),
        (49, "not_in_thread"), (50, "feed_off"), (51, "consumer_not_found"), (52, "consumer_conflict"),
        (53, "lease_lost"), (61, "backup_under_way"), (62, "backup_not_found"), (63, "backup_failed"),
        (70, "import_conflict"), (71, "import_gap"), (72, "import_order"), (73, "time_in_future")]
] + [
    # Import and export.
    frame("import_channel", request(CID, 1, time("created", T0), options("patch", {})), correlation=60),
    frame("import_channel", request(CID, 2**64 - 1, time("created", 0), options("patch", {1: "00", 2: "01"})),
          correlation=60, name="import_channel: now, with options"),
    frame("import_channel_reply", [byte("was_created", 1)], correlation=60),
    frame("import_messages", request(CID, 1, many("messages", [])), correlation=61, name="import_messages: none"),
    frame("import_messages", request(CID, 2, many("messages", [
        moved_message("m1", "alice", "", 1, T0), moved_message("m2"), WHOLE_MESSAGE])), shard=3, correlation=61),
    frame("import_messages_reply", [many("codes", [])], correlation=61, name="import_messages_reply: none"),
    frame("import_messages_reply", [many("codes", [[number("code", n)] for n in (0, 71, 0)])], correlation=61),
    frame("import_members", request(CID, 1, many("members", [])), correlation=62, name="import_members: none"),
    frame("import_members", request(CID, 3, many("members", [
        moved_member("alice"), moved_member("bob", "admin", "", 9, 0, T0, 0, ("m2", T0 + 2), ("m2", T0 + 1), "m1", 1,
                                            (2, 1), 0, (None, None), (0, 1, T0 + 1), (0, 2, T0 + 2), (1, 2, T0 + 1)),
        WHOLE_MEMBER])), shard=3, correlation=62),
    frame("import_members_reply", [many("codes", [[number("code", n)] for n in (0, 72, 65535)])], correlation=62),
    frame("import_acknowledgements", request(CID, 4, many("acknowledgements", [
        moved_acknowledgement("m1", "bob", T0, "on my way"),
        moved_acknowledgement("m" * 255, "u" * 255, 2**63 - 1, "n" * 1024, 1)])), correlation=63),
    frame("import_acknowledgements_reply", [many("codes", [[number("code", n)] for n in (0, 40)])], correlation=63),
    frame("list_stored_channels", [number("after", 0), number("limit", 256)], shard=3, correlation=64),
    frame("list_stored_channels_reply", [many("channels", []), opt("next", None)], correlation=64,
          name="list_stored_channels_reply: none"),
    frame("list_stored_channels_reply", [
        many("channels", [[string("cid", CID)], [string("cid", "team:a")]]), opt("next", 2**64 - 2)], correlation=64),
    frame("export_channel", [string("cid", CID), string("user", ""), number("snapshot", 0), number("part", 0)],
          shard=3, correlation=65),
    frame("export_channel", [string("cid", CID), string("user", "u" * 255), number("snapshot", 2**64 - 1),
                             number("part", 2**64 - 1)], shard=3, correlation=65, name="export_channel: the last part"),
    frame("export_channel_reply", [number("snapshot", 0), number("parts", 1)] + [
        many(name, []) for name in ("channels", "messages", "members", "acknowledgements")], correlation=65,
          name="export_channel_reply: nothing"),
    frame("export_channel_reply", [
        number("snapshot", 7), number("parts", 2),
        many("channels", [[time("created", T0), options("patch", {1: "00"})]]),
        many("messages", [WHOLE_MESSAGE]), many("members", [WHOLE_MEMBER]),
        many("acknowledgements", [moved_acknowledgement("m1", "bob", 0)])], correlation=65),
    frame("list_users", [number("after", 2**64 - 1), number("limit", 1)], correlation=66),
    frame("list_users_reply", [many("users", []), opt("next", None)], correlation=66, name="list_users_reply: none"),
    frame("list_users_reply", [many("users", [user_settings("alice", 3, 1), user_settings("bob", 1, 0, T0, T0, T0)]),
                               opt("next", 2)], correlation=66),
    frame("put_push_job",
          put_push_job(62, "m1", 2**64 - 1, 604_800_000, '{"cid":"' + CID + '"}', ("bob", '[{"token":"✓"}]'),
                       ("alice", "[]")), shard=3, correlation=67),
    frame("put_push_job", put_push_job(2**64 - 1, "", 0, 2**64 - 1, ""), shard=3, correlation=67,
          name="put_push_job: nobody, and no content"),
    frame("put_push_job_reply", [number("accepted", 2)], correlation=67),
    frame("claim_push_jobs", [number("milliseconds", 10_000), number("limit", 100), number("bytes", 65_536)], shard=3,
          correlation=68),
    frame("claim_push_jobs_reply", [many("jobs", []), byte("more", 0)], correlation=68,
          name="claim_push_jobs_reply: none"),
    frame("claim_push_jobs_reply", [many("jobs", [
        claimed_job(T0, 2**64 - 1, T0, T0 + 604_800_000, "{}", ("bob", '[{"token":"t"}]'), ("u" * 255, "")),
        claimed_job(2**64 - 1, 1, 2**63 - 1, 2**63 - 1, "c" * 40_000,
                    ("alice", "d" * 1_000))]), byte("more", 1)], correlation=68),
    frame("update_push_jobs", update_jobs(63, 1, 0, (1, 0), (2**64 - 1, 2**64 - 1)), shard=3, correlation=69),
    frame("update_push_jobs", update_jobs(64, 0, 600_000), shard=3, correlation=69, name="update_push_jobs: none"),
    frame("update_push_jobs_reply", [named_jobs("unknown", (2**64 - 1, T0))], correlation=69),
]

# ---------------------------------------------------------------------------------------------- malformed frames


def bad(name, refusal, hexadecimal, limit=None):
    """`refusal`: the WireError, with its field after a colon where it names one."""
    entry = {"name": name, "refusal": refusal, "hex": hexadecimal}
    if limit is not None:
        entry["length_limit"] = limit
    return entry


def altered(kind, payload, **where):
    return (header(8 + len(payload), KINDS[kind], **where) + payload).hex()


def shard_map_of_2(*peers):
    """The payload of a map that node 2 sends, with peers of these numbers."""
    return encode_all([
        many("owned", []), number("node", 2),
        many("peers", [[number("node", peer), string("host", "a"), number("port", 7410)] for peer in peers])])


HELLO = encode_all(hello_fields())
CHALLENGE = encode_all(challenge_fields())
MARK = encode_all(request(CID, 6, string("user", "alice"), string("message", "m-1"), opt("unread_epoch", None)))
PATCH_HEAD = encode_all(typed("messaging", 9))
STATUS_HEAD = b"\x01\x00"


def patch(*raw_options):
    return PATCH_HEAD + varint(len(raw_options)) + b"".join(raw_options)


def bad_option(name, number_, value):
    """An option whose value, in hexadecimal, is no value of it."""
    value = bytes.fromhex(value)
    return bad(name, "badValue:optionValue",
               altered("patch_channel_type", patch(varint(number_) + varint(len(value)) + value)))


SETTINGS = encode_all(user_settings("alice", 1, 3, T0, T0, T0))
ACKNOWLEDGE = encode_all(request(CID, 21, string("user", "bob"), string("note", "")))
LIST = encode_all(page_of_members("alice", "m-1", 0, 0, 100, ""))
MEMBER = encode_all(member_status("bob", 2, T0, T0))
CHANNELS = encode_all(list_channels_of("alice", 0, 100, None))
CHANNEL_ENTRY = encode_all(channel_entry(CID, 0, 1, T0))
REBUILD = encode_all(rebuild(1, 1, 2, 3, 4))
PLACE = encode_all(place(7, 0, None, 42, "alice", "m-42"))
DELIVERY = encode_all(delivery(1, T0, T0))
ACKNOWLEDGE_PUSH = encode_all(request(
    CID, 39, string("user", "alice"), string("message", "m-42"), time("acked", T0), number("flags", 0)))
SUBSCRIBE = encode_all(subscribe(1, T0, CID))


def bad_event(name, refusal, event):
    """A channel's event, or its bytes, alone in a frame."""
    content = event if isinstance(event, bytes) else encode_all(event)
    return bad("event: " + name, refusal, altered(
        "events", encode_all([time("through", T0), byte("lost", 0)]) + b"\x01\x03a:b\x01" + content + b"\x00"))


def bad_user_event(name, refusal, event):
    content = event if isinstance(event, bytes) else encode_all(event)
    return bad("user event: " + name, refusal, altered(
        "events", encode_all([time("through", T0), byte("lost", 0)]) + b"\x00\x01\x01a\x01" + content))


def one_status(**changes):
    values = dict(sequence=1, status=1, receipt_status=0, read_count=1, delivered_count=2, unread_count=2,
                  member_count=3, flags=3, created=T0) | changes
    return STATUS_HEAD + b"".join(
        bytes([v]) if n in ("status", "receipt_status") else varint(v) for n, v in values.items())


CONSUMER = encode_all(consumer("a") + [many("states", [])])
PUT_CONSUMER = encode_all(of_consumer("a", 1, number("kinds", 0), types(), byte("start", 0), time("since", 0)))
READ_FEED = encode_all([string("consumer", "a"), *partition(0, 1), number("epoch", 1), number("number", 1),
                        number("flags", 0), number("limit", 1)])
FEED_PAGE = encode_all(feed_page(2, 2, T0, record(2, 1, T0, CID, "bob", "m-1", 1)))
COMMIT = encode_all(commit("a", 1, 0, 1, 7, 1, T0, 1, "s"))
LEASE = encode_all(lease("a", 1, "w", 2, 8_000, 0, 1))


BAD_FRAMES = [
    # The header, before the payload is there.
    bad("length 0", "lengthTooSmall", "00000000"),
    bad("length 7", "lengthTooSmall", "00000007"),
    bad("length 7, header whole", "lengthTooSmall", header(7, 0x14).hex()),
    bad("one above the limit", "lengthTooLarge", (1001).to_bytes(4, "big").hex(), limit=1000),
    bad("one above the usual limit", "lengthTooLarge", ((1 << 20) + 1).to_bytes(4, "big").hex()),
    bad("the largest length", "lengthTooLarge", "ffffffff"),
    bad("HTTP/1.1 from a lost client", "lengthTooLarge", b"GET / HTTP/1.1\r\n\r\n".hex()),
    bad("an HTTP/2 preface", "lengthTooLarge", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".hex()),
    bad("a TLS hello", "lengthTooLarge", "1603010200010001fc0303"),
    bad("kind 0", "unknownKind", header(8, 0x00).hex()),
    bad("kind 0x0a, the one after shard_map", "unknownKind", header(8, 0x0A).hex()),
    bad("kind 0x7f", "unknownKind", header(8, 0x7F).hex()),
    bad("kind 0x2f, the one after webhook_known", "unknownKind", header(8, 0x2F).hex()),
    bad("kind 0xaf, its reply", "unknownKind", header(8, 0xAF).hex()),
    bad("kind 0x3f, the one before acknowledge_push", "unknownKind", header(8, 0x3F).hex()),
    bad("kind 0x3e, the one after read_feed", "unknownKind", header(8, 0x3E).hex()),
    bad("kind 0xbe, its reply", "unknownKind", header(8, 0xBE).hex()),
    bad("kind 0x55, the one after record_keys", "unknownKind", header(8, 0x55).hex()),
    bad("kind 0x5f, the one before import_channel", "unknownKind", header(8, 0x5F).hex()),
    bad("kind 0x6a, the one after update_push_jobs", "unknownKind", header(8, 0x6A).hex()),
    bad("kind 0xea, its reply", "unknownKind", header(8, 0xEA).hex()),
    bad("put_push_job without users", "truncated", altered("put_push_job", b"\x01a\x01\x01m\x01\x01\x00")),
    bad("put_push_job of more users than there can be", "badValue:count",
        altered("put_push_job", b"\x01a\x01\x01m\x01\x01\x00\x02\x01u\x00")),
    bad("put_push_job cut in a user's devices", "truncated",
        altered("put_push_job", b"\x01a\x01\x01m\x01\x01\x00\x01\x01u\x02d")),
    bad("put_push_job with more behind it", "trailingBytes",
        altered("put_push_job", encode_all(put_push_job(1, "m", 1, 1, "{}")) + b"\x00")),
    bad("claim_push_jobs without a size", "truncated", altered("claim_push_jobs", b"\x01\x01")),
    bad("claim_push_jobs with more behind it", "trailingBytes", altered("claim_push_jobs", b"\x01\x01\x01\x00")),
    bad("claim_push_jobs_reply of more jobs than there can be", "badValue:count",
        altered("claim_push_jobs_reply", b"\x02\x01\x01\x01\x01\x00\x00\x00")),
    bad("claim_push_jobs_reply: more 2", "badValue:flags", altered("claim_push_jobs_reply", b"\x00\x02")),
    bad("update_push_jobs: done 2", "badValue:flags", altered("update_push_jobs", b"\x01\x02\x00\x00")),
    bad("update_push_jobs of more jobs than there can be", "badValue:count",
        altered("update_push_jobs", b"\x01\x01\x00\x02\x01\x01")),
    bad("update_push_jobs_reply with more behind it", "trailingBytes", altered("update_push_jobs_reply", b"\x00\x00")),
    bad("import_channel without options", "truncated", altered("import_channel", b"\x01a\x01\x00")),
    bad("import_messages of more messages than there can be", "badValue:count",
        altered("import_messages", b"\x01a\x01\x02" + encode_all(moved_message("m")))),
    bad("import_messages cut in a message", "truncated",
        altered("import_messages", b"\x01a\x01\x01" + encode_all(moved_message("mmmm"))[:-1])),
    bad("import_messages with unknown flags", "badValue:flags",
        altered("import_messages", b"\x01a\x01\x01" + encode_all(moved_message("m", flags=128)))),
    bad("import_messages with more behind them", "trailingBytes",
        altered("import_messages", b"\x01a\x01\x01" + encode_all(moved_message("m")) + b"\x00")),
    bad("import_members of more members than there can be", "badValue:count",
        altered("import_members", b"\x01a\x01\x02" + encode_all(moved_member("u")))),
    bad("import_members with unknown flags", "badValue:flags",
        altered("import_members", b"\x01a\x01\x01" + encode_all(moved_member("u", flags=128)))),
    bad("import_members with an unknown move", "badValue:flags",
        altered("import_members", b"\x01a\x01\x01" + encode_all(
            moved_member("u", "", "", 0, None, 0, 0, ("", 0), ("", 0), "", 0, (0, 0), 0, (None, None), (4, 1, T0))))),
    bad("import_members with a move to nothing", "badValue:flags", altered(
        "import_members", b"\x01a\x01\x01" + encode_all(moved_member(
            "u", "", "", 0, None, 0, 0, ("", 0), ("", 0), "", 0, (0, 0), 0, (None, None), (1, 0, T0))))),
    bad("import_members with a name that is no UTF-8", "badValue:text",
        altered("import_members", b"\x01a\x01\x01\x02\xc3\x28" + encode_all(moved_member("u"))[2:])),
    bad("import_acknowledgements with unknown flags", "badValue:flags", altered(
        "import_acknowledgements", b"\x01a\x01\x01" + encode_all(moved_acknowledgement("m", "u", T0, "", 2)))),
    bad("import_members_reply with a code above 16 bits", "badValue:code",
        altered("import_members_reply", b"\x01" + varint(2**16))),
    bad("export_channel without a part", "truncated", altered("export_channel", b"\x01a\x00\x00")),
    bad("export_channel_reply without acknowledgements", "truncated",
        altered("export_channel_reply", b"\x00\x01\x00\x00\x00")),
    bad("list_stored_channels without a limit", "truncated", altered("list_stored_channels", b"\x00")),
    bad("list_users_reply with more behind it", "trailingBytes", altered("list_users_reply", b"\x00\x00\x00")),
    bad("kind 0xd1, a reply to confirm_changes", "unknownKind", header(8, 0xD1).hex()),
    bad("snapshot_begin without shards", "badValue:count", altered("snapshot_begin", b"\x02\x0a\x00\x00")),
    bad("snapshot_begin with more shards than there can be", "badValue:count", altered("snapshot_begin", encode_all([
        byte("group", 2), number("first", 1), number("count", 65535), byte("from", 0)]))),
    bad("snapshot_begin from nobody", "badValue:node", altered("snapshot_begin", b"\x02\x0a\x06\x02")),
    bad("record_keys_reply with a short key", "badValue:count", altered("record_keys_reply", b"\x01\x05" + bytes(31))),
    bad("snapshot_read_reply with a short digest", "truncated",
        altered("snapshot_read_reply", b"\x00\x08" + bytes(31))),
    bad("snapshot_read_reply with more bytes than in all", "badValue:count", altered(
        "snapshot_read_reply", b"\x00\x01" + bytes(34))),
    bad("kind 0xd0, a reply that does not exist", "unknownKind", header(8, 0xD0).hex()),
    bad("kind 0x36, the one before thread_read_state", "unknownKind", header(8, 0x36).hex()),
    bad("a reply to no known kind", "unknownKind", header(8, 0xB6).hex()),
    bad("a reply to events", "unknownKind", header(8, 0x88).hex()),
    bad("a reply to hello", "unknownKind", header(8, 0x81).hex()),
    bad("kind before the payload is there", "unknownKind", header(1000, 0x7F)[:6].hex()),
    bad("flag 3", "badFlags", header(8, 0x14, flags=8).hex()),
    bad("every flag but the known ones", "badFlags", header(8, 0x14, flags=0xF8).hex()),
    bad("issued on drain", "badFlags", header(12, 0x07, flags=2).hex()),
    bad("issued on a reply", "badFlags", header(12, 0xA5, flags=2).hex()),
    bad("issued on an error", "badFlags", header(12, 0x0F, flags=3).hex()),
    bad("issued on events", "badFlags", header(12, 0x08, flags=2).hex()),
    bad("thread on events", "badFlags", header(10, 0x08, flags=4).hex()),
    bad("thread on drain", "badFlags", header(10, 0x07, flags=4).hex()),
    bad("thread on a reply", "badFlags", header(10, 0x94, flags=4).hex()),
    bad("thread on an error, beside issued", "badFlags", header(14, 0x0F, flags=6).hex()),
    bad("flag 7 beside resend", "badFlags", header(8, 0x07, flags=0x81).hex()),
    bad("length is checked before kind", "lengthTooSmall", header(7, 0x00, flags=255).hex()),
    bad("kind is checked before flags", "unknownKind", header(8, 0x00, flags=255).hex()),
    # Fields.
    bad("drain with a payload", "trailingBytes", altered("drain", b"\x00")),
    bad("shard_map with an empty range", "badValue:shards", altered("shard_map", b"\x01\x00\x00\x01\x01\x00")),
    bad("shard_map whose ranges overlap", "badValue:shards",
        altered("shard_map", b"\x02\x00\x02\x01\x01\x01\x01\x01\x00")),
    bad("shard_map with shard 65535", "badValue:shards", altered("shard_map", b"\x01\xff\xff\x03\x01\x01\x01\x00")),
    bad("shard_map of node 0", "badValue:node", altered("shard_map", b"\x00\x00\x00")),
    bad("shard_map of node 65536", "badValue:node", altered("shard_map", b"\x00\x80\x80\x04\x00")),
    bad("shard_map with peer 0", "badValue:node", altered("shard_map", shard_map_of_2(0))),
    bad("shard_map with peer 65536", "badValue:node", altered("shard_map", shard_map_of_2(65536))),
    bad("shard_map with a peer twice", "badValue:node", altered("shard_map", shard_map_of_2(1, 3, 3))),
    bad("shard_map whose peers fall", "badValue:node", altered("shard_map", shard_map_of_2(3, 1))),
    bad("shard_map with its own node among the peers", "badValue:node", altered("shard_map", shard_map_of_2(1, 2, 3))),
    bad("shard_map without the node", "truncated", altered("shard_map", b"\x00")),
    bad("shard_map with a peer without host", "badValue:address", altered("shard_map", encode_all([
        many("owned", []), number("node", 1),
        many("peers", [[number("node", 2), string("host", ""), number("port", 7410)]])]))),
    bad("shard_map with a peer at port 65536", "badValue:address", altered("shard_map", encode_all([
        many("owned", []), number("node", 1),
        many("peers", [[number("node", 2), string("host", "a"), number("port", 65536)]])]))),
    bad("deliver_changes: gone 2", "badValue:change", altered("deliver_changes", encode_all([
        number("from", 3), number("after", 0), many("changes", [
            [number("number", 1), string("user", "alice"), byte("gone", 2)] + membership(CID, 1, 0, 1, T0, 0)])]))),
    bad("deliver_changes with a number that is too large", "badValue:change", altered("deliver_changes", encode_all([
        number("from", 3), number("after", 0), many("changes", [
            [number("number", 2**62 + 1), string("user", "a"), byte("gone", 0)] + membership(CID, 1, 0, 1, T0, 0)])]))),
    bad("confirm_changes with a number that is too large", "badValue:change", altered("confirm_changes", encode_all([
        number("from", 3), number("through", 2**62 + 1)]))),
    bad("deliver_changes whose numbers do not rise", "badValue:change", altered("deliver_changes", encode_all([
        number("from", 3), number("after", 1), many("changes", [
            [number("number", 1), string("user", "alice"), byte("gone", 0)] + membership(CID, 1, 0, 1, T0, 0)])]))),
    bad("ping of 7 bytes", "truncated", altered("ping", bytes(7))),
    bad("ping of 9 bytes", "trailingBytes", altered("ping", bytes(9))),
    bad("hello without magic", "badValue:magic", altered("hello", b"XDMK" + HELLO[4:])),
    bad("hello cut in its nonce", "truncated", altered("hello", HELLO[:40])),
    bad("hello with more behind it", "trailingBytes", altered("hello", HELLO + b"\x00")),
    bad("hello with a name of 65 bytes", "badValue:text", altered("hello", encode_all(hello_fields(name="n" * 65)))),
    bad("hello whose name is no UTF-8", "badValue:text", altered("hello", HELLO[:-5] + b"\x02\xc3\x28")),
    bad("hello whose version is above 32 bits", "badVarint",
        altered("hello", b"TDMK" + varint(2**32) + HELLO[5:])),
    bad("challenge with no shard", "badValue:count", altered("challenge", encode_all(challenge_fields(shards=0)))),
    bad("challenge with 65536 shards", "badValue:count",
        altered("challenge", encode_all(challenge_fields(shards=65536)))),
    bad("challenge cut in its proof", "truncated", altered("challenge", CHALLENGE[:50])),
    bad("proof longer than its payload", "truncated", altered("proof", b"\x21" + bytes(32))),
    bad("proof whose length is 2^63", "truncated", altered("proof", varint(2**63) + bytes(32))),
    bad("ready with session 2", "badValue:session", altered("ready", b"\x02\x00\x00")),
    bad("ready with a count that cannot be", "badValue:count", altered("ready", b"\x00\x00\x05\x00\x00\x00")),
    bad("ready with 2^64-1 ranges", "badValue:count", altered("ready", b"\x00\x00" + varint(2**64 - 1))),
    bad("error without detail", "truncated", altered("error", b"\x04\x00")),
    bad("error with an overlong code", "badVarint", altered("error", b"\x84\x00\x00\x00")),
    bad("mark_read with no payload", "truncated", altered("mark_read", b"")),
    bad("mark_read without its epoch", "truncated", altered("mark_read", MARK[:-1])),
    bad("mark_read with more behind it", "trailingBytes", altered("mark_read", MARK + b"\x00")),
    bad("mark_read whose counter is overlong", "badVarint",
        altered("mark_read", MARK[:18] + b"\x86\x00" + MARK[19:])),
    bad("mark_read whose counter has 11 bytes", "badVarint",
        altered("mark_read", MARK[:18] + b"\xff" * 10 + b"\x01" + MARK[19:])),
    bad("mark_read whose counter is 2^64", "badVarint",
        altered("mark_read", MARK[:18] + b"\x80" * 9 + b"\x02" + MARK[19:])),
    bad("patch with a rising order broken", "badValue:option",
        altered("patch_channel_type", patch(b"\x02\x01\x00", b"\x01\x01\x00"))),
    bad("patch with an option twice", "badValue:option",
        altered("patch_channel_type", patch(b"\x01\x01\x00", b"\x01\x01\x00"))),
    bad("patch with option 0", "badValue:option", altered("patch_channel_type", patch(b"\x00\x01\x00"))),
    bad("patch with option 14", "badValue:option", altered("patch_channel_type", patch(b"\x0e\x01\x00"))),
    bad("patch with read_events 2", "badValue:optionValue", altered("patch_channel_type", patch(b"\x01\x01\x02"))),
    bad("patch with mark_unread 3", "badValue:optionValue", altered("patch_channel_type", patch(b"\x03\x01\x03"))),
    bad("patch with an empty value", "badValue:optionValue", altered("patch_channel_type", patch(b"\x01\x00"))),
    bad("patch with a value of two bytes", "badValue:optionValue",
        altered("patch_channel_type", patch(b"\x01\x02\x00\x00"))),
    # Options by their values.
    bad_option("read_events 255", 1, "ff"),
    bad_option("delivery_events 2", 2, "02"),
    bad_option("history 2", 4, "02"),
    bad_option("read_acks_receipts 3", 5, "03"),
    bad_option("receipt_ttl of no second", 6, nullable(0)),
    bad_option("receipt_ttl above 32 bits", 6, nullable(2**32)),
    bad_option("receipt_ttl in two bytes where one is enough", 6, "8000"),
    bad_option("receipt_ttl cut in its number", 6, "80"),
    bad_option("receipt_ttl with more behind it", 6, "0200"),
    bad_option("receipt_max_members above 32 bits", 7, nullable(2**32)),
    bad_option("receipt_daily_limit of 11 bytes", 8, "ff" * 10 + "01"),
    bad_option("receipt_request_roles 2", 9, "02"),
    bad_option("receipt_request_roles: none, and a list", 9, "0000"),
    bad_option("receipt_request_roles without its list", 9, "01"),
    bad_option("receipt_request_roles: a role less than announced", 9, "01020161"),
    bad_option("receipt_request_roles: a role more than announced", 9, "010101610162"),
    bad_option("receipt_request_roles: a role cut", 9, "01010261"),
    bad_option("receipt_request_roles: 65 roles", 9, request_roles(*(f"r{n}" for n in range(65)))),
    bad_option("receipt_request_roles: 2^64-1 roles", 9, "01" + varint(2**64 - 1).hex()),
    bad_option("receipt_request_roles: an empty role", 9, request_roles("")),
    bad_option("receipt_request_roles: a role with a space", 9, request_roles("an admin")),
    bad_option("receipt_request_roles: a role of 65 bytes", 9, request_roles("r" * 65)),
    bad_option("counts_visible_to 2", 10, "02"),
    bad_option("status_rule 4", 11, "04"),
    bad_option("status_rule any, with a number", 11, "0001"),
    bad_option("status_rule of no member", 11, rule_count(0)),
    bad_option("status_rule of members above 32 bits", 11, rule_count(2**32)),
    bad_option("status_rule without its count", 11, "02"),
    bad_option("status_rule without its percentage", 11, "03"),
    bad_option("status_rule 0 %", 11, rule_percentage(0)),
    bad_option("status_rule 101 %", 11, rule_percentage(101)),
    bad_option("kept_steps 4097", 12, varint(4097).hex()),
    bad_option("kept_steps above 64 bits", 12, "ff" * 9 + "02"),
    bad_option("reminders: five", 13, reminder_rules(*[(60, 1, 1)] * 5)),
    bad_option("reminders: more than there can be", 13, "04" + "3c0101"),
    bad_option("reminders: after no second", 13, reminder_rules((0, 1, 1))),
    bad_option("reminders: after more than 366 days", 13, reminder_rules((31_622_401, 1, 1))),
    bad_option("reminders: after more than 32 bits", 13, reminder_rules((2**32, 1, 1))),
    bad_option("reminders: when 3", 13, reminder_rules((60, 3, 1))),
    bad_option("reminders: of no member", 13, reminder_rules((60, 1, 0))),
    bad_option("reminders: of 100001 members", 13, reminder_rules((60, 1, 100_001))),
    bad_option("reminders: with more behind them", 13, reminder_rules((60, 1, 1)) + "00"),
] + [
    bad_option(f"option {n} with an empty value", n, "") for n in range(2, 14)
] + [
    # When the user's token was issued.
    bad("issued, and nothing behind the fields", "truncated", altered("mark_read", MARK, flags=2)),
    bad("issued in 3 bytes", "truncated", altered("mark_read", MARK + bytes(3), flags=2)),
    bad("issued in 5 bytes", "trailingBytes", altered("mark_read", MARK + bytes(5), flags=2)),
    bad("four bytes behind the fields, not announced", "trailingBytes", altered("mark_read", MARK + bytes(4))),
    bad("issued of a list_unsettled in no bytes", "truncated", altered("list_unsettled", b"", flags=2)),
    # Receipts, users, lists.
    bad("register_message_reply without its receipt refusal", "truncated",
        altered("register_message_reply", b"\x01\x01\x00")),
    bad("acknowledge without its messages", "truncated", altered("acknowledge", ACKNOWLEDGE)),
    bad("acknowledge of more messages than there can be", "badValue:count",
        altered("acknowledge", ACKNOWLEDGE + b"\x05\x01a")),
    bad("acknowledge with more behind it", "trailingBytes", altered("acknowledge", ACKNOWLEDGE + b"\x01\x01a\x00")),
    bad("acknowledge_reply of a code less than announced", "badValue:count", altered("acknowledge_reply", b"\x02\x00")),
    bad("patch_user without its time", "truncated",
        altered("patch_user", encode_all(settings_of("alice", 1, number("given", 1), number("values", 0))))),
    bad("assign_user without its last time", "truncated", altered("assign_user", encode_all(settings_of(
        "alice", 1, number("version", 1), number("flags", 0), time("a", T0), time("b", T0))))),
    bad("settle without its version", "truncated", altered("settle", b"\x01a\x01\x00")),
    bad("settle_reply of two bytes", "trailingBytes", altered("settle_reply", b"\x01\x00")),
    bad("get_user with more behind it", "trailingBytes", altered("get_user", b"\x01a\x00")),
    bad("settings with flag 16", "badValue:flags",
        altered("get_user_reply", encode_all(user_settings("alice", 1, 16)))),
    bad("settings of an erased user that hide", "badValue:flags",
        altered("get_user_reply", encode_all(user_settings("alice", 1, 9)))),
    bad("settings cut in a time", "truncated", altered("patch_user_reply", SETTINGS[:-1])),
    bad("settings with more behind them", "trailingBytes", altered("assign_user_reply", SETTINGS + b"\x00")),
    bad("settings whose time is above 63 bits", "badVarint",
        altered("get_user_reply", encode_all(user_settings("alice", 1, 0, 2**63)))),
    bad("settings whose user is no UTF-8", "badValue:text",
        altered("get_user_reply", b"\x02\xc3\x28" + SETTINGS[6:])),
    bad("list_unsettled with a payload", "trailingBytes", altered("list_unsettled", b"\x00")),
    bad("list_unsettled_reply without its users", "truncated", altered("list_unsettled_reply", b"\x00")),
    bad("list_unsettled_reply of more users than there can be", "badValue:count",
        altered("list_unsettled_reply", b"\x00\x09" + SETTINGS[:8])),
    bad("list_members without its cursor", "truncated", altered("list_members", LIST[:-1])),
    bad("list_members with more behind it", "trailingBytes", altered("list_members", LIST + b"\x00")),
    bad("list_members_reply of more entries than there can be", "badValue:count",
        altered("list_members_reply", b"\x03\x01a")),
    bad("list_members_reply cut in an entry", "truncated",
        altered("list_members_reply", b"\x01" + encode_all(entry("bob", T0, 1, "seen"))[:-1])),
    bad("list_members_reply without its cursor", "truncated",
        altered("list_members_reply", b"\x01" + encode_all(entry("bob", T0, 1, "seen")))),
    bad("member_statuses without its users", "truncated",
        altered("member_statuses", encode_all(viewed("alice", "m-1")))),
    bad("list_messages: a reply of no message", "badValue:count", altered("list_messages", encode_all(
        [string("cid", CID), number("limit", 1), opt("cursor", None), opt("reply", 3)]))),
    bad("list_messages_reply: unknown flags", "badValue:flags", altered("list_messages_reply", encode_all(
        [many("messages", [[number("sequence", 1), string("message", "m"), string("parent", ""), string("sender", ""),
                            time("created", T0), number("flags", 4)]]),
         opt("next_cursor", None), opt("next_reply", None)]))),
    bad("member_statuses_reply without the status it announces", "truncated",
        altered("member_statuses_reply", b"\x01\x03bob\x00")),
    bad("member_statuses_reply with a status behind a refusal", "trailingBytes",
        altered("member_statuses_reply", b"\x01\x03bob\x20" + MEMBER[5:])),
    bad("row with flag 2", "badValue:flags",
        altered("mark_read_reply", encode_all(row("alice")[:-1] + [number("flags", 2)]))),
    bad("row with flags 5", "badValue:flags",
        altered("mark_read_reply", encode_all(row("alice", own=(0, "", 1), flags=5)))),
    bad("row with flag 8", "badValue:flags",
        altered("mark_read_reply", encode_all(row("alice", own=(0, "", 1), flags=9)))),
    bad("mark_unread_since without its epoch", "truncated", altered("mark_unread_since", encode_all(
        request(CID, 47, string("user", "alice"), time("since", T0))))),
    bad("set_member without its flags", "truncated",
        altered("set_member", encode_all(request(CID, 45, string("user", "alice"), string("role", ""))))),
    bad("set_member_reply: muted 2", "badValue:flags", altered(
        "set_member_reply",
        encode_all([byte("joined", 0), string("role", ""), time("joined_at", T0), byte("muted", 2)]))),
    bad("row without the own details it announces", "truncated",
        altered("mark_read_reply", encode_all(row("alice")[:-1] + [number("flags", 1)]))),
    bad("row whose sequence number is above 32 bits", "badVarint",
        altered("mark_read_reply", encode_all(row("alice", (0, "", 2**32))))),
    bad("row whose time is above 63 bits", "badVarint",
        altered("mark_read_reply", encode_all(row("alice", (2**63, "", 0))))),
    bad("status 3", "badValue:status", altered("statuses_reply", one_status(status=3))),
    bad("receipt status 4", "badValue:status", altered("statuses_reply", one_status(receipt_status=4))),
    # Threads.
    bad("thread, and nothing behind the fields", "truncated", altered("mark_read", MARK, flags=4)),
    bad("thread cut in its string", "truncated", altered("mark_read", MARK + b"\x03m-", flags=4)),
    bad("thread with more behind it", "trailingBytes", altered("mark_read", MARK + b"\x03m-1\x00", flags=4)),
    bad("thread whose length is 2^63", "truncated", altered("mark_read", MARK + varint(2**63) + b"m-1", flags=4)),
    bad("thread whose length is overlong", "badVarint", altered("mark_read", MARK + b"\x83\x00m-1", flags=4)),
    bad("thread, not announced", "trailingBytes", altered("mark_read", MARK + b"\x03m-1")),
    bad("thread and issued, and no second", "truncated", altered("mark_read", MARK + b"\x03m-1", flags=6)),
    bad("thread and issued, and no thread", "truncated",
        altered("mark_read", MARK + (1_700_000_000).to_bytes(4, "big"), flags=6)),
    bad("issued before thread", "truncated",
        altered("mark_read", MARK + (1_700_000_000).to_bytes(4, "big") + b"\x03m-1", flags=6)),
    bad("issued announced, and a thread too", "trailingBytes",
        altered("mark_read", MARK + b"\x03m-1" + bytes(4), flags=2)),
    # Removal.
    bad("delete_channel without its counter", "truncated", altered("delete_channel", encode_all(request(CID)))),
    bad("delete_channel with more behind it", "trailingBytes",
        altered("delete_channel", encode_all(request(CID, 1)) + b"\x00")),
    bad("delete_channel_reply of no byte", "truncated", altered("delete_channel_reply", b"")),
    bad("delete_channel_reply of two bytes", "trailingBytes", altered("delete_channel_reply", b"\x01\x00")),
    bad("truncate_channel without its message", "truncated", altered("truncate_channel", encode_all(request(CID, 1)))),
    bad("truncate_channel cut in its message", "truncated",
        altered("truncate_channel", encode_all(request(CID, 1)) + b"\x03m-")),
    bad("truncate_channel_reply without the newest's time", "truncated",
        altered("truncate_channel_reply", encode_all(channel(CID, T0, {}, 2, 1, "m-1", T0)[:-1]))),
    bad("erase_member without its user", "truncated", altered("erase_member", encode_all(request(CID, 1)))),
    bad("erase_member with more behind it", "trailingBytes",
        altered("erase_member", encode_all(request(CID, 1, string("user", "alice"))) + b"\x00")),
    bad("erase_member_reply of no byte", "truncated", altered("erase_member_reply", b"")),
    bad("purge without its round", "truncated", altered("purge", b"")),
    bad("purge with more behind it", "trailingBytes", altered("purge", b"\x00\x00")),
    bad("purge of a round above 64 bits", "badVarint", altered("purge", b"\xff" * 9 + b"\x02")),
    bad("purge_reply without its round", "truncated", altered("purge_reply", b"")),
    bad("purge_reply with more behind it", "trailingBytes", altered("purge_reply", b"\x00\x00")),
    # The index.
    bad("list_channels without its cursor", "truncated", altered("list_channels", CHANNELS[:-1])),
    bad("list_channels with more behind it", "trailingBytes", altered("list_channels", CHANNELS + b"\x00")),
    bad("list_channels from a place above 32 bits", "badVarint",
        altered("list_channels", CHANNELS[:-1] + encode("opt", 2**32))),
    bad("list_channels_reply of more entries than there can be", "badValue:count",
        altered("list_channels_reply", b"\x30" + CHANNEL_ENTRY)),
    bad("list_channels_reply of an entry less than announced", "truncated",
        altered("list_channels_reply", b"\x02" + CHANNEL_ENTRY + b"\x00")),
    bad("list_channels_reply without its cursor", "truncated",
        altered("list_channels_reply", b"\x01" + CHANNEL_ENTRY)),
    bad("list_channels of deleted ones without its time", "truncated",
        altered("list_channels", encode_all(list_channels_of("alice", 2, 100, None)))),
    bad("list_channels of members, with a time", "trailingBytes",
        altered("list_channels", encode_all(list_channels_of("alice", 1, 100, None, T0)))),
    bad("list_channels_reply: member 4", "badValue:flags",
        altered("list_channels_reply", b"\x01" + encode_all(channel_entry(CID, 0, 4, T0)) + b"\x00")),
    bad("list_channels_reply: deleted, without its time", "truncated",
        altered("list_channels_reply", b"\x01" + encode_all(channel_entry(CID, 0, 2, 0)))),
    bad("list_channels_reply: a row above 32 bits", "badVarint",
        altered("list_channels_reply", b"\x01" + encode_all(channel_entry(CID, 2**32, 1, T0)) + b"\x00")),
    bad("list_channels_reply: joined above 63 bits", "badVarint",
        altered("list_channels_reply", b"\x01" + encode_all(channel_entry(CID, 0, 1, 2**63)) + b"\x00")),
    bad("list_channels_reply: a cid that is no UTF-8", "badValue:text",
        altered("list_channels_reply", b"\x01\x02\xc3\x28\x01\x01\x00\x00")),
    bad("unread_counts of more channels than there can be", "badValue:count",
        altered("unread_counts", b"\x09\x03a:b\x01u\x00")),
    bad("unread_counts cut in a row", "truncated", altered("unread_counts", b"\x01\x03a:b\x01u")),
    bad("unread_counts with more behind it", "trailingBytes", altered("unread_counts", b"\x01\x03a:b\x01u\x00\x00")),
    bad("unread_counts_reply of more than there can be", "badValue:count", altered("unread_counts_reply", b"\x02\x1f")),
    bad("unread_counts_reply without the counts it announces", "truncated",
        altered("unread_counts_reply", b"\x01\x00\x03")),
    bad("unread_counts_reply with counts behind a refusal", "trailingBytes",
        altered("unread_counts_reply", b"\x01\x1f\x03\x01")),
    bad("unread_counts_reply with a code that there is not", "badValue:code",
        altered("unread_counts_reply", b"\x01\x63")),
    bad("unread_counts_reply of messages above 32 bits", "badVarint",
        altered("unread_counts_reply", b"\x01\x00" + varint(2**32) + b"\x00\x00\x00")),
    bad("rebuild_index without its epoch", "truncated", altered("rebuild_index", b"\x01")),
    bad("rebuild_index with more behind it", "trailingBytes", altered("rebuild_index", b"\x01\x01\x00")),
    bad("rebuild_index_reply: phase 3", "badValue:phase", altered("rebuild_index_reply", b"\x03" + REBUILD[1:])),
    bad("rebuild_index_reply without its entries", "truncated", altered("rebuild_index_reply", REBUILD[:-1])),
    bad("rebuild_index_reply with more behind it", "trailingBytes", altered("rebuild_index_reply", REBUILD + b"\x00")),
    bad("more readers than members", "badValue:count",
        altered("statuses_reply", one_status(read_count=4, unread_count=0))),
    bad("unread is not the rest", "badValue:count", altered("statuses_reply", one_status(unread_count=1))),
    bad("status flags 8", "badValue:flags", altered("statuses_reply", one_status(flags=8))),
    bad("status flags 4 without the count", "truncated", altered("statuses_reply", one_status(flags=4))),
    # Push.
    bad("ticket_place without its message", "truncated", altered("ticket_place", b"\x03a:b\x01u")),
    bad("ticket_place_reply whose check is cut", "truncated", altered("ticket_place_reply", PLACE[:-1])),
    bad("ticket_place_reply with more behind it", "trailingBytes", altered("ticket_place_reply", PLACE + b"\x00")),
    bad("ticket_place_reply: a row above 32 bits", "badVarint",
        altered("ticket_place_reply", encode_all(place(7, 2**32, None, 42, "alice", "m-42")))),
    bad("ticket_place_reply: a parent above 32 bits", "badVarint",
        altered("ticket_place_reply", encode_all(place(7, 0, 2**32, 42, "alice", "m-42")))),
    bad("ticket_place_reply: a message above 32 bits", "badVarint",
        altered("ticket_place_reply", encode_all(place(7, 0, None, 2**32, "alice", "m-42")))),
    bad("acknowledge_push without its flags", "truncated", altered("acknowledge_push", ACKNOWLEDGE_PUSH[:-1])),
    bad("acknowledge_push with more behind it", "trailingBytes",
        altered("acknowledge_push", ACKNOWLEDGE_PUSH + b"\x00")),
    bad("acknowledge_push: flags 2 without a provider and a device", "truncated",
        altered("acknowledge_push", ACKNOWLEDGE_PUSH[:-1] + b"\x02")),
    bad("acknowledge_push: flags 3 without a device", "truncated",
        altered("acknowledge_push", ACKNOWLEDGE_PUSH[:-1] + b"\x03\x04apns")),
    bad("acknowledge_push: flags 2 with more behind the device", "trailingBytes",
        altered("acknowledge_push", ACKNOWLEDGE_PUSH[:-1] + b"\x02\x04apns\x05phone\x00")),
    bad("acknowledge_push: flags 1 with a provider and a device", "trailingBytes",
        altered("acknowledge_push", ACKNOWLEDGE_PUSH[:-1] + b"\x01\x04apns\x05phone")),
    bad("acknowledge_push at a time above 63 bits", "badVarint", altered("acknowledge_push", encode_all(request(
        CID, 39, string("user", "a"), string("message", "m"), time("acked", 2**63), number("flags", 0))))),
    bad("acknowledge_push_reply: moved 6", "badValue:flags", altered("acknowledge_push_reply", b"\x06" + DELIVERY[1:])),
    bad("acknowledge_push_reply without its message", "truncated", altered("acknowledge_push_reply", DELIVERY[:-1])),
    bad("acknowledge_push_reply with more behind it", "trailingBytes",
        altered("acknowledge_push_reply", DELIVERY + b"\x00")),
    bad("redeem_ticket without its flags", "truncated", altered("redeem_ticket", b"\x01" + PLACE + b"\x00")),
    bad("redeem_ticket with more behind it", "trailingBytes",
        altered("redeem_ticket", b"\x01" + PLACE + b"\x00\x00\x00")),
    bad("redeem_ticket: flags 2 without a provider and a device", "truncated",
        altered("redeem_ticket", b"\x01" + PLACE + b"\x00\x02")),
    bad("redeem_ticket: flags 2 cut in the device", "truncated",
        altered("redeem_ticket", b"\x01" + PLACE + b"\x00\x02\x03fcm\x03we")),
    bad("redeem_ticket: flags 3 with more behind the device", "trailingBytes",
        altered("redeem_ticket", b"\x01" + PLACE + b"\x00\x03\x03fcm\x03web\x00")),
    bad("redeem_ticket_reply cut in a name", "truncated",
        altered("redeem_ticket_reply", encode_all(delivery(1, T0, T0, CID, "alice", "m-42"))[:-1])),
    bad("webhook_known with no payload", "truncated", altered("webhook_known", b"")),
    bad("webhook_known_reply with more behind it", "trailingBytes", altered("webhook_known_reply", b"\x01\x00")),
    bad("note_webhook without its time", "truncated", altered("note_webhook", b"\x01k\x01")),
    bad("note_webhook until a time above 63 bits", "badVarint",
        altered("note_webhook", b"\x01k\x01" + varint(2**63))),
    bad("note_webhook_reply with no payload", "truncated", altered("note_webhook_reply", b"")),
    bad("revoke_token without its time", "truncated", altered("revoke_token", b"\x01j\x01\x01")),
    bad("revoke_token with more behind it", "trailingBytes", altered("revoke_token", b"\x01j\x01\x01\x05\x00")),
    bad("revoke_token until a time above 63 bits", "badVarint",
        altered("revoke_token", b"\x01j\x01\x01" + varint(2**63))),
    bad("revoke_token_reply without its version", "truncated", altered("revoke_token_reply", b"\x00")),
    bad("get_token with no payload", "truncated", altered("get_token", b"")),
    bad("list_revoked_tokens with more behind it", "trailingBytes", altered("list_revoked_tokens", b"\x00\x00\x00")),
    bad("list_revoked_tokens_reply: flags 4", "badValue:flags",
        altered("list_revoked_tokens_reply", b"\x09\x04\x00\x00")),
    bad("list_revoked_tokens_reply: more behind none", "badValue:count",
        altered("list_revoked_tokens_reply", b"\x09\x02\x00\x00")),
    bad("list_revoked_tokens_reply of more than there can be", "badValue:count",
        altered("list_revoked_tokens_reply", b"\x09\x00\x00\x02\x01j\x05\x01")),
    bad("list_revoked_tokens_reply: an id that is no text", "badValue:text",
        altered("list_revoked_tokens_reply", b"\x09\x00\x00\x01\x01\xff\x05\x01")),
    bad("present_ticket without its flags", "truncated", altered("present_ticket", b"\x01\x01t\x00")),
    bad("present_ticket with a provider and a device", "trailingBytes",
        altered("present_ticket", b"\x01\x01t\x00\x02\x03fcm\x03web")),
    bad("present_ticket_reply: moved 8", "badValue:flags", altered("present_ticket_reply", b"\x08" + DELIVERY[1:])),
    # Events.
    bad("subscribe without its channels", "truncated", altered("subscribe", b"\x00\x00")),
    bad("subscribe since a time above 63 bits", "badVarint",
        altered("subscribe", encode_all(subscribe(1, 2**63, CID)))),
    bad("subscribe to more channels than there can be", "badValue:count", altered("subscribe", b"\x00\x00\x05\x03a:b")),
    bad("subscribe cut in a cid", "truncated", altered("subscribe", SUBSCRIBE[:-1])),
    bad("subscribe with more behind it", "trailingBytes", altered("subscribe", SUBSCRIBE + b"\x00")),
    bad("subscribe_reply without its channels", "truncated", altered("subscribe_reply", b"\x00\x01")),
    bad("subscribe_reply: complete 2", "badValue:flags", altered("subscribe_reply", b"\x00\x02\x00")),
    bad("subscribe_reply of more channels than there can be", "badValue:count",
        altered("subscribe_reply", b"\x00\x01\x02\x01a\x00")),
    bad("subscribe_reply with users behind it", "trailingBytes", altered("subscribe_reply", b"\x00\x01\x00\x00")),
    bad("subscribe_reply through a time above 63 bits", "badVarint",
        altered("subscribe_reply", encode_all(subscribed(2**63)))),
    bad("unsubscribe with no payload", "truncated", altered("unsubscribe", b"")),
    bad("unsubscribe from more channels than there can be", "badValue:count", altered("unsubscribe", b"\x05\x03a:b")),
    bad("unsubscribe_reply with a payload", "trailingBytes", altered("unsubscribe_reply", b"\x00")),
    bad("subscribe_user that says neither on nor off", "truncated", altered("subscribe_user", b"\x01a")),
    bad("subscribe_user with more behind it", "trailingBytes", altered("subscribe_user", b"\x01a\x01\x00")),
    bad("subscribe_user_reply of no time", "truncated", altered("subscribe_user_reply", b"")),
    bad("subscribe_user_reply with more behind it", "trailingBytes", altered("subscribe_user_reply", b"\x00\x00")),
    bad("announce_row without its channels", "truncated", altered("announce_row", b"\x01a")),
    bad("announce_row to more channels than there can be", "badValue:count", altered("announce_row", b"\x01a\x02\x01")),
    bad("announce_row_reply with a payload", "trailingBytes", altered("announce_row_reply", b"\x00")),
    bad("events with no payload", "truncated", altered("events", b"")),
    bad("events through a time above 63 bits", "badVarint", altered("events", encode_all(told(2**63)))),
    bad("events: lost 2", "badValue:flags", altered("events", b"\x00\x02\x00\x00")),
    bad("events without users", "truncated", altered("events", b"\x00\x00\x00")),
    bad("events with more behind them", "trailingBytes", altered("events", b"\x00\x00\x00\x00\x00")),
    bad("events of more channels than there can be", "badValue:count", altered("events", b"\x00\x00\x02\x01a\x00")),
    bad("events of more users than there can be", "badValue:count", altered("events", b"\x00\x00\x00\x02\x01a\x00")),
    bad("events of a channel whose cid is no UTF-8", "badValue:text",
        altered("events", b"\x00\x00\x01\x02\xc3\x28\x00\x00")),
    bad("more events than there can be", "badValue:count", altered("events", b"\x00\x00\x01\x01a\x02\x06\x00\x00")),
    bad_event("kind 0", "badValue:flags", b"\x00\x00"),
    bad_event("kind 11", "badValue:flags", b"\x0b\x00"),
    bad_event("a row with own 4", "badValue:flags", row_event(4, 1, T0, BOB_OWN, BOB_SHOWN)),
    bad_event("a row with shown 16", "badValue:flags", row_event(1, 16, T0, BOB_OWN, BOB_SHOWN)),
    bad_event("a row without own details", "badValue:flags", row_event(1, 1, T0, BOB_SHOWN, BOB_SHOWN)),
    bad_event("a row that shows others own details", "badValue:flags", row_event(1, 1, T0, BOB_OWN, BOB_OWN)),
    bad_event("a row, shown without what is shown", "truncated", row_event(1, 1, T0, BOB_OWN)),
    bad_event("a row, not shown, with what is not", "truncated", row_event(1, 0, T0, BOB_OWN, BOB_SHOWN)),
    bad_event("a row at a time above 63 bits", "badVarint", row_event(1, 0, 2**63, BOB_OWN)),
    bad_event("a message with flag 128", "badValue:flags", message_new(1, "m-1", "alice", T0, T0, 128)),
    bad_event("a message that shows a move which it did not make", "badValue:flags",
              message_new(1, "m-1", "alice", T0, T0, 24)),
    bad_event("a message above 32 bits", "badVarint", message_new(2**32, "m-1", "alice", T0, T0, 0)),
    bad_event("a deleted message that is no UTF-8", "badValue:text", b"\x03\x00\x01\x02\xc3\x28\x00"),
    bad_event("truncated above 32 bits", "badVarint", truncated_event(2**32, T0)),
    bad_event("an update whose option is none", "badValue:option",
              channel_updated(T0, channel(CID, T0, {14: "00"}, 2, 0, "", 0))),
    bad_event("members above 32 bits", "badVarint", member_added("dave", "", T0, 2**32)),
    bad_event("a member who has read above 32 bits", "badVarint", member_added("dave", "", T0, 1, 2**32)),
    bad_event("limits of nobody", "badValue:count", limits()),
    bad_event("limits of nothing hidden", "badValue:flags", limits((T0, T0, 0, 0))),
    bad_event("limits with hidden 16", "badValue:flags", limits((T0, T0, 16, 0))),
    bad_event("limits that end before they begin", "badValue:flags", limits((T0, T0 - 1, 1, 0))),
    bad_event("limits without an event behind them", "badValue:count", limits((T0, T0, 1, 0))),
    bad_event("members left above 32 bits", "badVarint", member_removed("dave", T0, 2**32)),
    bad_event("status 3", "badValue:status", status_event("alice", 1, 2, "m-2", 3, T0)),
    bad_event("a status from behind its end", "badValue:count", status_event("alice", 3, 2, "m-2", 1, T0)),
    bad_event("receipt status 4", "badValue:status", receipt_event(1, "m-1", "alice", 4, 0, 1, "", "", T0)),
    bad_event("a receipt's count above 32 bits", "badVarint",
              receipt_event(1, "m-1", "alice", 1, 2**32, 1, "", "", T0)),
    bad_event("a receipt's note that is no UTF-8", "badValue:text",
              b"\x0a\x01\x01m\x01a\x01\x00\x00\x00\x02\xc3\x28\x00\x00\x00"),
    bad_user_event("kind 0", "badValue:flags", b"\x00\x00"),
    bad_user_event("kind 3", "badValue:flags", b"\x03\x00"),
    bad_user_event("gone 2", "badValue:flags", membership_event(channel_entry(CID, 0, 1, T0), T0, 2)),
    bad_user_event("member 4", "badValue:flags", membership_event(channel_entry(CID, 0, 4, T0), T0, 0)),
    bad_user_event("without its time", "badValue:count", b"\x02"),
    bad_user_event("with more behind it", "trailingBytes", tokens_revoked_event(T0) + [byte("more", 0)]),
] + [
    # Each event, cut before its last byte, in a frame that ends there.
    bad(f"event: {name} cut at its end", "truncated", altered(
        "events", b"\x00\x00\x01\x03a:b\x01" + encode_all(event)[:-1]))
    for name, event in (
        ("a row", row_event(1, 0, T0, row("bob", own=(0, "", 0)))),
        ("a row as others see it", row_event(0, 1, T0, BOB_OWN, BOB_SHOWN)),
        ("a message", message_new(1, "m-1", "alice", T0, T0, 0)),
        ("a deleted message", message_deleted_event(1, "m-1", T0)),
        ("a truncation", truncated_event(1, T0)),
        ("an update", channel_updated(T0, channel(CID, T0, {}, 2, 0, "", 0))),
        ("a deletion", channel_deleted_event(T0)),
        ("a member", member_added("dave", "", T0, 1)),
        ("a member who left", member_removed("dave", T0, 1)),
        ("a status", status_event("alice", 1, 2, "m-2", 1, T0)),
        ("a receipt", receipt_event(1, "m-1", "alice", 1, 0, 1, "", "", T0)))
] + [
    # The feed.
    bad("list_consumers with no payload", "truncated", altered("list_consumers", b"")),
    bad("list_consumers with more behind it", "trailingBytes", altered("list_consumers", b"\x01a\x00")),
    bad("list_consumers_reply without its consumers", "truncated", altered("list_consumers_reply", b"\x00\x01")),
    bad("list_consumers_reply of more consumers than there can be", "badValue:count",
        altered("list_consumers_reply", b"\x00\x01\x03" + CONSUMER)),
    bad("list_consumers_reply cut in a consumer", "truncated",
        altered("list_consumers_reply", b"\x00\x01\x01" + CONSUMER[:-1])),
    bad("list_consumers_reply with more behind it", "trailingBytes",
        altered("list_consumers_reply", b"\x00\x01\x01" + CONSUMER + b"\x00")),
    bad("list_consumers_reply: a name that is no UTF-8", "badValue:text",
        altered("list_consumers_reply", b"\x00\x01\x01\x02\xc3\x28" + CONSUMER[2:])),
    bad("list_consumers_reply: a partition above 16 bits", "badVarint", altered(
        "list_consumers_reply", b"\x00\x01\x01" + encode_all(consumer("a", index=2**16) + [many("states", [])]))),
    bad("list_consumers_reply: more states than there can be", "badValue:count",
        altered("list_consumers_reply", b"\x00\x01\x01" + CONSUMER[:-1] + b"\x01\x00\x01")),
    bad("list_consumers_reply: a state of a partition above 16 bits", "badVarint", altered(
        "list_consumers_reply",
        b"\x00\x01\x01" + CONSUMER[:-1] + b"\x01" + varint(0) + varint(2**16) + b"\x00")),
    bad("read_feed without its limit", "truncated", altered("read_feed", READ_FEED[:-1])),
    bad("read_feed with more behind it", "trailingBytes", altered("read_feed", READ_FEED + b"\x00")),
    bad("read_feed of a partition above 16 bits", "badVarint",
        altered("read_feed", b"\x01a" + varint(2**16) + varint(1) + READ_FEED[4:])),
    bad("read_feed of partitions above 16 bits", "badVarint",
        altered("read_feed", b"\x01a" + varint(0) + varint(2**16) + READ_FEED[4:])),
    bad("read_feed with a limit above 32 bits", "badVarint", altered("read_feed", READ_FEED[:-1] + varint(2**32))),
    bad("read_feed_reply without its records", "truncated",
        altered("read_feed_reply", encode_all(feed_page(2, 2, T0))[:-1])),
    bad("read_feed_reply of more records than there can be", "badValue:count",
        altered("read_feed_reply", encode_all(feed_page(2, 2, T0))[:-1] + b"\x01" + b"\x02" * 11)),
    bad("read_feed_reply cut in a record", "truncated", altered("read_feed_reply", FEED_PAGE[:-1])),
    bad("read_feed_reply with more behind it", "trailingBytes", altered("read_feed_reply", FEED_PAGE + b"\x00")),
    bad("read_feed_reply: an unknown type of record", "badValue:effect",
        altered("read_feed_reply", encode_all(feed_page(2, 2, T0, record(20, 1, T0))))),
    bad("read_feed_reply: a message above 32 bits", "badVarint",
        altered("read_feed_reply", encode_all(feed_page(2, 2, T0, record(2, 1, T0, sequence=2**32))))),
    bad("read_feed_reply: a record's time above 63 bits", "badVarint",
        altered("read_feed_reply", encode_all(feed_page(2, 2, T0, record(2, 1, 2**63))))),
    bad("read_feed_reply through a time above 63 bits", "badVarint",
        altered("read_feed_reply", encode_all(feed_page(2, 2, 2**63)))),
    bad("put_consumer without its time", "truncated", altered("put_consumer", PUT_CONSUMER[:-1])),
    bad("put_consumer with more behind it", "trailingBytes", altered("put_consumer", PUT_CONSUMER + b"\x00")),
    bad("put_consumer: start 3", "badValue:flags", altered("put_consumer", PUT_CONSUMER[:-2] + b"\x03\x00")),
    bad("put_consumer: types of records above 32 bits", "badVarint",
        altered("put_consumer", b"\x01a\x01" + varint(2**32) + PUT_CONSUMER[4:])),
    bad("put_consumer of more types of channels than there can be", "badValue:count",
        altered("put_consumer", b"\x01a\x01\x00\x03\x00\x00")),
    bad("put_consumer: a type that is no UTF-8", "badValue:text",
        altered("put_consumer", b"\x01a\x01\x00\x01\x02\xc3\x28\x00\x00")),
    bad("put_consumer since a time above 63 bits", "badVarint",
        altered("put_consumer", PUT_CONSUMER[:-1] + varint(2**63))),
    bad("put_consumer_reply: created 2", "badValue:flags", altered("put_consumer_reply", b"\x02")),
    bad("remove_consumer without its counter", "truncated", altered("remove_consumer", b"\x01a")),
    bad("remove_consumer with more behind it", "trailingBytes", altered("remove_consumer", b"\x01a\x01\x00")),
    bad("remove_consumer_reply with a payload", "trailingBytes", altered("remove_consumer_reply", b"\x00")),
    bad("open_partition without its epoch", "truncated", altered("open_partition", b"\x01a\x01\x00\x01")),
    bad("open_partition with more behind it", "trailingBytes",
        altered("open_partition", b"\x01a\x01\x00\x01\x01\x00")),
    bad("open_partition of a partition above 16 bits", "badVarint",
        altered("open_partition", b"\x01a\x01" + varint(2**16) + b"\x01\x01")),
    bad("open_partition_reply without its state", "truncated", altered("open_partition_reply", b"\x01\x00")),
    bad("open_partition_reply cut in its state", "truncated", altered("open_partition_reply", b"\x01\x00\x02s")),
    bad("open_partition_reply with more behind it", "trailingBytes",
        altered("open_partition_reply", b"\x01\x00\x00\x00")),
    bad("commit_consumer cut in its state", "truncated", altered("commit_consumer", COMMIT[:-1])),
    bad("commit_consumer with more behind it", "trailingBytes", altered("commit_consumer", COMMIT + b"\x00")),
    bad("commit_consumer: flags 8", "badValue:flags", altered("commit_consumer", encode_all(commit("a", 1, 0, 1, 8)))),
    bad("commit_consumer of partitions above 16 bits", "badVarint",
        altered("commit_consumer", encode_all(commit("a", 1, 0, 2**16, 1)))),
    bad("commit_consumer_reply with a payload", "trailingBytes", altered("commit_consumer_reply", b"\x00")),
    bad("lease_partitions without what the worker serves", "truncated", altered("lease_partitions", LEASE[:-3])),
    bad("lease_partitions with more behind it", "trailingBytes", altered("lease_partitions", LEASE + b"\x00")),
    bad("lease_partitions of more than there can be", "badValue:count",
        altered("lease_partitions", LEASE[:-3] + b"\x03\x00\x01")),
    bad("lease_partitions: a partition above 16 bits", "badVarint",
        altered("lease_partitions", encode_all(lease("a", 1, "w", 2, 8_000, 2**16)))),
    bad("lease_partitions: partitions above 32 bits", "badVarint",
        altered("lease_partitions", encode_all(lease("a", 1, "w", 2**32, 8_000)))),
    bad("lease_partitions: a worker whose name is no UTF-8", "badValue:text",
        altered("lease_partitions", b"\x01a\x01\x02\xc3\x28\x02\x00\x00")),
    bad("lease_partitions_reply with no payload", "truncated", altered("lease_partitions_reply", b"")),
    bad("lease_partitions_reply of more than there can be", "badValue:count",
        altered("lease_partitions_reply", b"\x01\x02\x00")),
    bad("lease_partitions_reply: a partition above 16 bits", "badVarint",
        altered("lease_partitions_reply", b"\x01\x01" + varint(2**16))),
]

# ------------------------------------------------------------------------------------------------ the log and pages

EFFECTS = {
    "channel_assigned": 1, "row_assigned": 2, "row_left": 3, "role_assigned": 4, "read_moved": 5,
    "delivered_moved": 6, "marker_assigned": 7, "message_assigned": 8, "message_deleted": 9, "read_moved_hidden": 10,
    "delivered_moved_hidden": 11, "delivered_by_push_ack": 13, "delivered_by_push_ack_hidden": 14,
    "channel_type_assigned": 16, "counters_assigned": 17, "session_assigned": 18, "type_settled": 19,
    "webhook_noted": 20, "ids_widened": 21, "token_revoked": 22,
    "consumer_assigned": 23, "consumer_committed": 24, "consumer_opened": 25, "consumer_state_assigned": 26,
    "consumer_workers_assigned": 27, "consumer_removed": 28, "feed_switched": 29, "deletion_held": 30,
    "deletion_ended": 31, "names_lost": 55, "timer_assigned": 51, "timer_removed": 52, "push_job_assigned": 53,
    "push_job_removed": 54, "acknowledged": 32, "acknowledgement_forgotten": 33, "acknowledged_through": 34,
    "steps_sealed": 35, "step_tail_cut": 36, "steps_trimmed": 37, "step_tail_assigned": 38, "truncated": 39,
    "channel_deleted": 40, "in_thread": 41, "row_erased": 42, "sender_erased": 43, "message_counts_assigned": 44,
    "membership_assigned": 45, "membership_removed": 46, "deletion_begun": 47, "user_assigned": 48, "user_settled": 49,
    "options_changed": 12, "user_erased": 50, "segment_flags_assigned": 58, "mute_assigned": 59,
    "unread_flag_assigned": 60, "membership_queued": 64, "memberships_confirmed": 65, "memberships_received": 66,
    "index_epoch_assigned": 67, "mentions_assigned": 70, "steps_imported": 71,
}
# Effects nested in others, by the names of their vectors.
EFFECT_BYTES = {}


def effect_bytes(kind, fields):
    content = encode_all(fields)
    return bytes([EFFECTS[kind]]) + varint(len(content)) + content


def effect(kind, *fields, name=None):
    fields = list(fields)
    data = effect_bytes(kind, fields)
    assert EFFECT_BYTES.setdefault(name or kind, data) is data, f"two effects of one name: {name or kind}"
    return {"name": name or kind, "effect": kind, "fields": fields, "hex": data.hex()}


def in_thread(parent, inner):
    return effect("in_thread", number("parent", parent), ["inner", "effect", inner], name=f"in_thread: {inner}")


def session_record(counter, not_applied, written, session=SESSION):
    return [raw("session", session), number("highest", counter),
            many("not_applied", [[number("counter", n)] for n in not_applied]), time("last_written", written)]


def at(channel_number, row_number=None):
    fields = [number("channel", channel_number)]
    return fields + ([] if row_number is None else [number("row", row_number)])


def whole_row(channel_number, row_number, flags, user, role, joined, joined_at, read, read_at, delivered, delivered_at,
              marker, epoch, more=None, marked_at=None, acked_at=None, counted_after=None,
              unread_after=None, flagged_at=None):
    """`more`: hidden, read steps, delivered steps, acknowledged through; where the flag 4 says so. `marked_at`: where
    16 does, `acked_at`: where 32 does, `counted_after`: where 64 does, `unread_after`: where 128 does, `flagged_at`:
    where 1024 does."""
    fields = at(channel_number, row_number) + [
        number("flags", flags), string("user", user), string("role", role), number("joined", joined),
        time("joined_at", joined_at), number("read", read), time("read_at", read_at), number("delivered", delivered),
        time("delivered_at", delivered_at), opt("marker", marker), number("unread_epoch", epoch)]
    if marked_at is not None:
        fields.append(time("marked_at", marked_at))
    if acked_at is not None:
        fields.append(time("acked_at", acked_at))
    if counted_after is not None:
        fields.append(number("counted_after", counted_after))
    if unread_after is not None:
        fields.append(number("unread_after", unread_after))
    if flagged_at is not None:
        fields.append(time("flagged_at", flagged_at))
    if more is not None:
        names = ("hidden", "read_steps", "delivered_steps", "acknowledged_through")
        fields += [number(name, value) for name, value in zip(names, more, strict=True)]
    return fields


def message(channel_number, sequence, flags, id, sender, registered, created, expires=None):
    return at(channel_number) + [
        number("sequence", sequence), number("flags", flags), string("id", id), string("sender", sender),
        time("registered", registered), time("created", created)] + (
            [] if expires is None else [time("receipt_expires", expires)])


def acknowledged(channel_number, sequence, row_number, flags, when, note):
    return at(channel_number) + [
        number("sequence", sequence), number("row", row_number), number("flags", flags), time("time", when),
        string("note", note)]


def of_page(channel_number, row_page, *rest):
    return at(channel_number) + [number("row_page", row_page), *rest]


def feed_worker(name, partitions, until, *held):
    return [string("worker", name), number("partitions", partitions), time("until", until), indexes("held", *held)]


EFFECT_VECTORS = [
    effect("channel_assigned", *at(1), string("cid", CID), time("created", T0), options("own", {})),
    effect("channel_assigned", *at(2**64 - 1), string("cid", "t" * 64 + ":" + "c" * 128), time("created", T0),
           options("own", {1: "00", 2: "00", 3: "02", 4: "01"}), name="channel_assigned: longer than 127 bytes"),
    effect("row_assigned", *whole_row(1, 0, 0, "alice", "", 0, T0, 0, 0, 0, 0, None, 0)),
    effect("row_assigned", *whole_row(
        7, 16777215, 3, "bob@example.org", "moderator", 9, T0, 300, T0 + 1, 4294967294, T0 + 2, 0, 4294967295),
        name="row_assigned: everything set"),
    effect("row_left", *at(1, 255), time("time", T0)),
    effect("role_assigned", *at(1, 256), string("role", "admin")),
    effect("role_assigned", *at(1, 0), string("role", ""), name="role_assigned: none"),
    effect("read_moved", *at(1, 0), number("sequence", 1), time("time", T0)),
    effect("read_moved", *at(2**64 - 1, 16777215), number("sequence", 2**32 - 1), time("time", 2**63 - 1),
           name="read_moved: the largest of all"),
    effect("delivered_moved", *at(128, 128), number("sequence", 128), time("time", 0)),
    effect("marker_assigned", *at(1, 3), opt("marker", None), number("unread_epoch", 0), time("time", 0)),
    effect("marker_assigned", *at(1, 3), opt("marker", 0), number("unread_epoch", 1), time("time", T0),
           name="marker_assigned: 0"),
    effect("message_assigned", *message(1, 1, 0, "m-1", "alice", T0, 0)),
    effect("message_assigned", *message(1, 4294967294, 7, "m" * 128, "", T0, T0 - 1),
           name="message_assigned: every flag, the longest id, no sender"),
    effect("message_deleted", *at(1), number("sequence", 256), time("time", T0)),
    effect("channel_type_assigned", *type_record("messaging", 3, {3: "01"}), time("taken", T0)),
    effect("counters_assigned", number("next_channel", 12), time("time", T0)),
    effect("session_assigned", *session_record(300, [3, 298], T0)),
    effect("row_assigned", *whole_row(1, 0, 4, "alice", "", 0, T0, 1, T0, 1, T0, None, 0, (0, 1, 0, 0)),
           name="row_assigned: one step"),
    effect("row_assigned", *whole_row(1, 2, 8, "carol", "", 3, T0, 3, 0, 0, 0, None, 0),
           name="row_assigned: of a thread, by having marked it read"),
    effect("row_assigned", *whole_row(1, 1, 4, "bob", "", 0, T0, 1, T0, 1, T0, None, 0, (1, 0, 0, 0)),
           name="row_assigned: read while hidden"),
    effect("row_assigned", *whole_row(
        2**64 - 1, 16777215, 23, "b" * 128, "r" * 64, 2**32 - 1, T0, 2**32 - 1, T0, 2**32 - 1, T0, 2**32 - 1, 2**32 - 1,
        (3, 2**32 - 1, 2**32 - 1, 2**32 - 1), 2**63 - 1), name="row_assigned: more, and everything at its largest"),
    effect("message_assigned", *message(1, 2, 8, "m-2", "alice", T0, 0, 0),
           name="message_assigned: a receipt that never expires"),
    effect("message_assigned", *message(1, 3, 63, "m-3", "alice", T0, T0, T0 + 86_400_000),
           name="message_assigned: a receipt that expires, and every flag"),
    effect("message_assigned", *message(1, 4, 16, "m-4", "alice", T0, 0),
           name="message_assigned: no receipt, the day has its receipts"),
    effect("message_assigned", *message(1, 5, 32, "m-5", "alice", T0, 0),
           name="message_assigned: no receipt, by role"),
    effect("message_assigned", *message(1, 6, 64, "m-6", "alice", T0, 0),
           name="message_assigned: its sender's position was left alone"),
    effect("message_assigned", *message(1, 7, 128, "m-7", "alice", T0, 0), byte("all", 1),
           name="message_assigned: mentions all"),
    effect("message_assigned", *message(1, 8, 136, "m-8", "alice", T0, 0, T0 + 1_000), byte("all", 0),
           many("mentions", [[number("row", n)] for n in (0, 7, 16777215)]),
           name="message_assigned: mentions three, with a receipt"),
    effect("read_moved_hidden", *at(1, 2), number("sequence", 5), time("time", T0)),
    effect("delivered_moved_hidden", *at(2**64 - 1, 16777215), number("sequence", 2**32 - 1), time("time", 2**63 - 1)),
    effect("type_settled", string("type", "messaging"), number("version", 3)),
    effect("acknowledged", *acknowledged(1, 2, 1, 0, T0, "")),
    effect("acknowledged", *acknowledged(2**64 - 1, 2**32 - 1, 16777215, 1, T0, "ü" * 512),
           name="acknowledged: while hidden, the longest note"),
    effect("acknowledged", *acknowledged(1, 2, 1, 0, 0, ""), name="acknowledged: gave way"),
    effect("acknowledgement_forgotten", *at(1), number("sequence", 2), number("row", 1)),
    effect("acknowledged_through", *at(1, 1), number("sequence", 3)),
    effect("steps_sealed", *of_page(1, 0, number("segment", 0), blob("steps", ""))),
    effect("steps_sealed", *of_page(
        7, 65535, number("segment", 2**32 - 1), blob("steps", bytes((5 * i) & 255 for i in range(300)).hex())),
        name="steps_sealed: longer than 255 bytes, no text"),
    effect("step_tail_cut", *of_page(1, 0, time("end", T0))),
    effect("steps_trimmed", *of_page(1, 0, number("first", 3))),
    effect("step_tail_assigned", *of_page(1, 0, number("first", 0), many("ends", []), blob("steps", ""))),
    effect("step_tail_assigned", *of_page(
        1, 65535, number("first", 3), many("ends", [[time("end", T0)], [time("end", T0 + 9)]]),
        blob("steps", "80ff00")),
        name="step_tail_assigned: two segments and steps since"),
    effect("row_assigned", *whole_row(1, 3, 16, "dave", "", 0, T0, 4, T0, 4, T0, 2, 1, None, T0 + 5),
           name="row_assigned: with a marker"),
    effect("user_assigned", number("number", 0), *user_settings("alice", 1), time("taken", 0)),
    effect("user_assigned", number("number", 2**32 - 1), *user_settings("a" * 128, 2**64 - 1, 3, T0, T0 + 1, T0 + 2),
           time("taken", T0 + 3), name="user_assigned: everything set"),
    effect("user_settled", number("number", 255), number("version", 2**62)),
    effect("channel_assigned", *at(2), string("cid", "team:red"), time("created", T0), options("own", EVERY_OPTION),
           name="channel_assigned: every option"),
    effect("channel_assigned", *at(3), string("cid", "team:blue"), time("created", T0),
           options("own", NULL_OPTIONS | {11: rule_count(300), 12: "00"}),
           name="channel_assigned: null, over what the type has"),
    effect("channel_type_assigned", *type_record("team", 4, {9: request_roles(), 11: "01", 12: "41"}),
           time("taken", T0), name="channel_type_assigned: no role may ask, all have to read, 65 steps"),

    # Removal.
    effect("truncated", *at(1), number("sequence", 256), time("time", T0)),
    effect("truncated", *at(2**64 - 1), number("sequence", 2**32 - 1), time("time", 2**63 - 1),
           name="truncated: the largest of all"),
    effect("deletion_begun", *at(1)),
    effect("deletion_begun", *at(2**64 - 1), name="deletion_begun: the largest of all"),
    effect("channel_deleted", *at(1), string("cid", CID)),
    effect("channel_deleted", *at(2**64 - 1), string("cid", "t" * 64 + ":" + "c" * 128),
           name="channel_deleted: the longest cid"),
    effect("row_erased", *at(1, 255), time("time", T0)),
    effect("sender_erased", *at(1), number("sequence", 257)),
    effect("user_assigned", number("number", 1), *user_settings("alice", 3, 4), time("taken", 0),
           name="user_assigned: being erased"),
    effect("options_changed", *at(1), time("time", T0)),
    effect("user_erased", number("number", 1), number("version", 4), raw("hash", xxh64(b"alice")), time("time", T0)),
    effect("user_erased", number("number", 2**32 - 1), number("version", 2**64 - 1), raw("hash", "ff" * 8),
           time("time", 2**63 - 1), name="user_erased: the largest of all"),
    effect("message_counts_assigned", *at(1), number("newest", 0), many("counts", [])),
    effect("message_counts_assigned", *at(1), number("newest", 600), many(
        "counts", [[number("count", n)] for n in (256, 0, 88)]), name="message_counts_assigned: three segments"),
    effect("message_counts_assigned", *at(1), number("newest", 256), many("counts", [[number("count", 128)]]),
           name="message_counts_assigned: one whole segment"),
    effect("mute_assigned", *at(1, 0), byte("muted", 1)),
    effect("mute_assigned", *at(2**64 - 1, 16777215), byte("muted", 0), name="mute_assigned: not any more"),
    effect("unread_flag_assigned", *at(1, 3), byte("set", 1), number("unread_epoch", 1), time("time", T0)),
    effect("unread_flag_assigned", *at(2**64 - 1, 16777215), byte("set", 0), number("unread_epoch", 2**32 - 1),
           time("time", 2**63 - 1), name="unread_flag_assigned: gone, the largest of all"),
    effect("row_assigned", *whole_row(1, 4, 256, "dave", "", 0, T0, 0, 0, 0, 0, None, 0), name="row_assigned: muted"),
    effect("row_assigned", *whole_row(1, 5, 1536, "erin", "", 0, T0, 1, T0, 0, 0, None, 2, flagged_at=T0 + 9),
           name="row_assigned: flagged unread"),
    effect("row_assigned", *whole_row(
        1, 6, 1028, "frank", "", 0, T0, 1, T0, 0, 0, None, 2, (0, 1, 0, 0), flagged_at=T0 + 9),
        name="row_assigned: flagged unread once"),
    effect("segment_flags_assigned", *at(1), many("segments", [[number("segment", 0), byte("what", 1)]])),
    effect("segment_flags_assigned", *at(2**64 - 1), many(
        "segments", [[number("segment", n), byte("what", what)] for n, what in ((1, 1), (300, 2), (2**24 - 1, 3))]),
        name="segment_flags_assigned: three segments"),

    # Imports.
    effect("mentions_assigned", *at(1), number("sequence", 1), many("rows", []),
           many("users", [[raw("hash", xxh64(b"bob"))]])),
    effect("mentions_assigned", *at(2**64 - 1), number("sequence", 2**32 - 1), many(
        "rows", [[number("row", n)] for n in (0, 300, 16777215)]),
        many("users", [[raw("hash", h * 8)] for h in ("00", "ff")]),
        name="mentions_assigned: rows, and users without rows"),
    effect("mentions_assigned", *at(1), number("sequence", 2), many("rows", [[number("row", 4)]]), many("users", []),
           name="mentions_assigned: one row"),
    effect("steps_imported", *of_page(1, 0, blob("steps", ""))),
    effect("steps_imported", *of_page(2**64 - 1, 65535, blob("steps", (
        varint(0) + varint(2 * 5) + varint(2 * T0) + varint(1)
        + varint(255 << 3 | 3) + varint(2 * 7) + varint(2 * 1000) + varint(2**32 - 1)).hex())),
        name="steps_imported: two steps"),
    in_thread(3, "mentions_assigned"),
    in_thread(2**32 - 1, "steps_imported"),

    # The index of users' channels.
    effect("membership_assigned", *at(7), number("place", 0), *membership(CID, 1, 0, 1, T0, 0)),
    effect("membership_assigned", *at(2**64 - 1), number("place", 2**32 - 1),
           *membership("t" * 64 + ":" + "c" * 128, 2**64 - 1, 16777215, 0, 2**63 - 1, 2**64 - 1),
           name="membership_assigned: the largest of all"),
    effect("membership_assigned", *at(7), number("place", 256), *membership(CID, 1, None, 0, 0, 3),
           name="membership_assigned: a sender who is no member"),
    effect("membership_assigned", *at(7), number("place", 1), *membership(CID, 2, 0, 3, T0, 0, T0),
           name="membership_assigned: a member, of a channel that was made anew"),
    effect("membership_assigned", *at(7), number("place", 2), *membership(CID, 2, None, 2, 0, 0, 2**63 - 1),
           name="membership_assigned: a sender, in a channel that was made anew"),
    effect("membership_assigned", *at(7), number("place", 3), *membership(CID, 1, None, 6, 0, 3, T0),
           name="membership_assigned: a tombstone"),
    effect("membership_removed", *at(7), number("place", 1)),
    effect("membership_queued", number("number", 1), string("user", "alice"), byte("gone", 0),
           *membership(CID, 1, 0, 1, T0, 0)),
    effect("membership_queued", number("number", 2**64 - 1), string("user", "a" * 128), byte("gone", 1),
           *membership("t" * 64 + ":" + "c" * 128, 2**64 - 1, None, 0, 0, 2**64 - 1),
           name="membership_queued: gone, and longer than 127 bytes"),
    effect("membership_queued", number("number", 2), string("user", "alice"), byte("gone", 1),
           *membership(CID, 1, 0, 2, T0, 0, T0), name="membership_queued: deleted"),
    effect("memberships_confirmed", number("shard", 3), number("through", 1024)),
    effect("memberships_confirmed", number("shard", 65535), number("through", 2**64 - 1),
           name="memberships_confirmed: the largest of all"),
    effect("memberships_received", number("shard", 3), number("through", 1024)),
    effect("index_epoch_assigned", number("epoch", 1)),

    # Acknowledged deliveries, and webhooks.
    effect("delivered_by_push_ack", *at(1, 0), number("sequence", 7), time("time", T0 + 60_000), time("acked", T0)),
    effect("delivered_by_push_ack_hidden", *at(2**64 - 1, 16777215), number("sequence", 2**32 - 1),
           time("time", 2**63 - 1), time("acked", 1)),
    effect("row_assigned",
           *whole_row(1, 0, 36, "alice", "", 0, T0, 0, 0, 7, T0 + 60_000, None, 0, (0, 0, 3, 0), acked_at=T0),
           name="row_assigned: with the time of a push ack"),
    effect("row_assigned", *whole_row(1, 1, 52, "bob", "", 0, T0, 9, T0, 7, T0 + 2, 3, 1, (2, 1, 1, 0), T0 + 3, T0 + 1),
           name="row_assigned: with a marker and the time of a push ack"),
    effect("row_assigned", *whole_row(1, 2, 72, "carol", "", 3, T0, 0, 0, 0, 0, None, 0, counted_after=0),
           name="row_assigned: of a thread, counted from its first reply on"),
    effect("row_assigned", *whole_row(1, 4, 68, "erin", "", 2**32 - 1, T0, 7, T0, 0, 0, None, 0, (1, 1, 0, 0),
                                      counted_after=2**32 - 2),
           name="row_assigned: of a thread, with more"),
    effect("row_assigned", *whole_row(1, 5, 240, "fay", "", 9, T0, 4, T0, 2, T0 + 2, 1, 1, None, T0 + 3, T0 + 1,
                                      counted_after=2, unread_after=0),
           name="row_assigned: of a thread, with a floor of its own"),
    in_thread(3, "delivered_by_push_ack"), in_thread(3, "delivered_by_push_ack_hidden"),
    effect("step_tail_assigned", *of_page(
        1, 0, number("first", 0), many("ends", []),
        # Row 0 delivered 7 at T0 + 60,000, acknowledged for T0; the step behind it row 0 delivered 8 a second later.
        blob("steps", (varint(1 | 2048) + varint(14) + varint(2 * (T0 + 60_000)) + varint(1) + varint(60_000)
                       + varint(1) + varint(2) + varint(2_000) + varint(2)).hex())),
        name="step_tail_assigned: a step that was acknowledged later"),
    effect("webhook_noted", raw("hash", xxh64(b"msg_2b5Yz")), time("until", T0 + 600_000)),
    effect("ids_widened"),
    effect("token_revoked", *revocation("backend-7", T0 + 86_400_000, 7)),
    effect("token_revoked", *revocation("Zo\u00eb/1", 0, 2**64 - 1), name="token_revoked: taken back"),
    effect("consumer_assigned", *consumer("audit")),
    effect("consumer_assigned", *consumer(
        "search-index", 5, ("messaging", "team"), T0, 128, T0 + 1, T0 + 2, 3, 4, T0 + 3),
        name="consumer_assigned: with filters, and read"),
    effect("consumer_assigned", *consumer(
        "c" * 64, 2**32 - 1, ("t" * 64, "u"), 2**63 - 1, 2**64 - 1, 2**63 - 1, 2**63 - 1, 2**16 - 1, 2**16 - 1,
        2**64 - 1), name="consumer_assigned: the largest numbers"),
    effect("consumer_committed", string("consumer", "audit"), number("number", 128), time("position_time", T0 + 1),
           time("committed_at", T0 + 2)),
    effect("consumer_opened", string("consumer", "audit"), *partition(3, 4), number("epoch", T0)),
    effect("consumer_opened", string("consumer", "audit"), *partition(2**16 - 1, 2**16 - 1), number("epoch", 2**64 - 1),
           name="consumer_opened: the largest numbers"),
    effect("consumer_state_assigned", string("consumer", "search-index"), *partition(3, 4), blob("state", "00ff6f6b")),
    effect("consumer_state_assigned", string("consumer", "search-index"), *partition(3, 4), blob("state", ""),
           name="consumer_state_assigned: none any more"),
    effect("consumer_workers_assigned", string("consumer", "search-index"), many("workers", [
        feed_worker("worker-1", 4, T0 + 8_000, 0, 3), feed_worker("worker-2", 4, T0 + 8_001)])),
    effect("consumer_workers_assigned", string("consumer", "audit"), many("workers", []),
           name="consumer_workers_assigned: none"),
    effect("consumer_workers_assigned", string("consumer", "c" * 64), many("workers", [
        feed_worker("w" * 64, 2**16 - 1, 2**63 - 1, 2**16 - 1)]),
        name="consumer_workers_assigned: the largest numbers"),
    effect("consumer_removed", string("consumer", "audit")),
    effect("feed_switched", string("consumer", ""), time("off_since", T0)),
    effect("timer_assigned", number("number", 1), *timer(1, 0, 7, T0 + 300_000, 300, 1, 1_000)),
    effect("timer_assigned", number("number", 128),
           *timer(2**64 - 1, 2**32 - 1, 2**32 - 1, 2**63 - 1, 2**32 - 1, 2, 100_000),
           name="timer_assigned: of a reply, the largest of all"),
    effect("timer_assigned", number("number", 129), *timer(1, 0, 7, T0 + 60_000, 60, 255),
           name="timer_assigned: an expiry"),
    effect("timer_removed", number("number", 128)),
    effect("push_job_assigned", number("number", 0), *push_job(1, T0, T0 + 60_000, "{}", ("bob", "[]"))),
    effect("push_job_assigned", number("number", 2**20 - 1), *push_job(
        2**64 - 1, 2**63 - 1, 2**63 - 1, "c" * 40_000, ("u" * 255, "d" * 1_000), ("alice", "")),
        name="push_job_assigned: large"),
    effect("push_job_removed", number("number", 2**20 - 1)),
    effect("feed_switched", string("consumer", ""), time("off_since", 0), name="feed_switched: on again"),
    effect("feed_switched", string("consumer", ""), time("off_since", 2**63 - 1),
           name="feed_switched: the largest time"),
    effect("deletion_held", string("consumer", ""), number("channel", 7), string("cid", "team:a"),
           number("needed_before", 300)),
    effect("deletion_held", string("consumer", ""), number("channel", 2**64 - 1),
           string("cid", "t" * 64 + ":" + "c" * 255),
           number("needed_before", 2**64 - 1), name="deletion_held: the largest of all"),
    effect("deletion_ended", string("consumer", ""), number("channel", 7)),
    effect("names_lost", string("consumer", ""), number("number", 300)),
] + [
    # Threads: all that one can have.
    in_thread(n, inner) for n, inner in [
        (1, "row_assigned"), (2**32 - 1, "row_assigned: more, and everything at its largest"), (256, "row_left"),
        (257, "read_moved"), (300, "read_moved_hidden"), (1, "delivered_moved"), (1, "delivered_moved_hidden"),
        (1, "marker_assigned"), (1, "message_assigned"),
        (1, "message_assigned: every flag, the longest id, no sender"), (1, "message_deleted"), (1, "step_tail_cut"),
        (1, "steps_trimmed"), (1, "step_tail_assigned: two segments and steps since"), (1, "row_erased"),
        (1, "sender_erased")]
]


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


def bad_batch(name, refusal, data):
    return {"name": name, "refusal": refusal, "hex": data.hex()}


MOVE = effect_bytes("read_moved", at(1, 0) + [number("sequence", 1), time("time", T0)])


def batch_of(*effects, count=None):
    announced = len(effects) if count is None else count
    return b"\x01" + varint(1) + varint(T0) + b"\x00" + varint(announced) + b"".join(effects)


BAD_BATCHES = [
    bad_batch("empty", "truncated", b""),
    bad_batch("another format", "badValue:format", b"\x02" + batch_of()[1:]),
    bad_batch("cut in its time", "truncated", batch_of()[:4]),
    bad_batch("more behind it", "trailingBytes", batch_of(MOVE) + b"\x00"),
    bad_batch("an effect less than announced", "badValue:count", batch_of(count=1)),
    bad_batch("effect 15, the one after delivered_by_push_ack_hidden", "badValue:effect", batch_of(b"\x0f\x01\x00")),
    bad_batch("effect 68, the one after index_epoch_assigned", "badValue:effect", batch_of(b"\x44\x01\x00")),
    bad_batch("wide ids with something behind it", "badValue:effect", batch_of(b"\x15\x01\x00")),
    bad_batch("a push job cut in its users", "badValue:count", batch_of(b"\x35\x06\x00\x01\x00\x00\x00\x01")),
    bad_batch("a push job beyond the last number", "badValue:effect",
              batch_of(effect_bytes("push_job_removed", [number("number", 2**20)]))),
    bad_batch("effect 63, the one before membership_queued", "badValue:effect", batch_of(b"\x3f\x01\x00")),
    bad_batch("effect 68, of a later version", "badValue:effect", batch_of(b"\x44\x01\x00")),
    bad_batch("an effect longer than its fields", "badValue:effect",
              batch_of(bytes([MOVE[0], MOVE[1] + 1]) + MOVE[2:] + b"\x00")),
    bad_batch("an effect shorter than its fields", "badValue:effect",
              batch_of(bytes([MOVE[0], MOVE[1] - 1]) + MOVE[2:])),
    bad_batch("an effect longer than the batch", "truncated", batch_of(bytes([MOVE[0], MOVE[1] + 1]) + MOVE[2:])),
    bad_batch("channel number 0", "badValue:effect",
              batch_of(effect_bytes("read_moved", at(0, 0) + [number("sequence", 1), time("time", T0)]))),
    bad_batch("message number 0", "badValue:effect",
              batch_of(effect_bytes("message_deleted", at(1) + [number("sequence", 0), time("time", T0)]))),
    bad_batch("row 2^24", "badValue:effect", batch_of(effect_bytes("row_left", at(1, 1 << 24) + [time("time", T0)]))),
    bad_batch("row flags 64, and counted from its own place on", "badValue:effect", batch_of(effect_bytes(
        "row_assigned", whole_row(1, 0, 64, "a", "", 3, T0, 0, 0, 0, 0, None, 0, counted_after=3)))),
    bad_batch("row flags 64 without the reply", "truncated",
              batch_of(effect_bytes("row_assigned", whole_row(1, 0, 64, "a", "", 3, T0, 0, 0, 0, 0, None, 0)))),
    bad_batch("row flags 128, and unread from its own place on", "badValue:effect", batch_of(effect_bytes(
        "row_assigned", whole_row(1, 0, 128, "a", "", 3, T0, 0, 0, 0, 0, None, 0, unread_after=3)))),
    bad_batch("row flags 2,048", "badValue:flags",
              batch_of(effect_bytes("row_assigned", whole_row(1, 0, 2048, "a", "", 0, T0, 0, 0, 0, 0, None, 0)))),
    bad_batch("row flags 16 without what follows", "truncated",
              batch_of(effect_bytes("row_assigned", whole_row(1, 0, 16, "a", "", 0, T0, 0, 0, 0, 0, None, 0)))),
    bad_batch("row flags 32 without what follows", "truncated",
              batch_of(effect_bytes("row_assigned", whole_row(1, 0, 32, "a", "", 0, T0, 0, 0, 1, T0, None, 0)))),
    bad_batch("a row acknowledged when it moved", "badValue:effect", batch_of(effect_bytes(
        "row_assigned", whole_row(1, 0, 32, "a", "", 0, T0, 0, 0, 1, T0, None, 0, acked_at=T0)))),
    bad_batch("a row acknowledged at no time", "badValue:effect", batch_of(effect_bytes(
        "row_assigned", whole_row(1, 0, 32, "a", "", 0, T0, 0, 0, 1, T0, None, 0, acked_at=0)))),
    bad_batch("delivered_by_push_ack after it moved", "badValue:effect", batch_of(effect_bytes(
        "delivered_by_push_ack", at(1, 0) + [number("sequence", 1), time("time", T0), time("acked", T0 + 1)]))),
    bad_batch("delivered_by_push_ack at no time", "badValue:effect", batch_of(effect_bytes(
        "delivered_by_push_ack", at(1, 0) + [number("sequence", 1), time("time", T0), time("acked", 0)]))),
    bad_batch("delivered_by_push_ack without its time, at the end", "truncated", batch_of(effect_bytes(
        "delivered_by_push_ack", at(1, 0) + [number("sequence", 1), time("time", T0)]))),
    bad_batch("a webhook whose hash is cut", "truncated", batch_of(effect_bytes("webhook_noted", [raw("hash", "00")]))),
    bad_batch("a token without its version", "truncated", batch_of(effect_bytes(
        "token_revoked", [string("jti", "a"), time("until", 5)]))),
    bad_batch("effect 56, the one after names_lost", "badValue:effect", batch_of(b"\x38\x01\x00")),
    bad_batch("deletion_held without its number", "truncated", batch_of(effect_bytes(
        "deletion_held", [string("consumer", ""), number("channel", 7), string("cid", "team:a")]))),
    bad_batch("deletion_held whose cid is no UTF-8", "badValue:text", batch_of(effect_bytes(
        "deletion_held",
        [string("consumer", ""), number("channel", 7), blob("cid", "c328"), number("needed_before", 1)]))),
    bad_batch("deletion_ended with more behind it", "badValue:effect", batch_of(effect_bytes(
        "deletion_ended", [string("consumer", ""), number("channel", 7), byte("more", 0)]))),
    bad_batch("a consumer without its epoch, at the end", "truncated",
              batch_of(effect_bytes("consumer_assigned", consumer("a")[:-1]))),
    bad_batch("a consumer with more behind it", "badValue:effect",
              batch_of(effect_bytes("consumer_assigned", consumer("a") + [byte("more", 0)]))),
    bad_batch("a consumer whose name is no UTF-8", "badValue:text",
              batch_of(effect_bytes("consumer_removed", [blob("consumer", "c328")]))),
    bad_batch("a consumer's types of records above 32 bits", "badVarint",
              batch_of(effect_bytes("consumer_assigned", consumer("a", 2**32)))),
    bad_batch("a consumer's partition above 16 bits", "badVarint",
              batch_of(effect_bytes("consumer_assigned", consumer("a", index=2**16)))),
    bad_batch("consumer_committed at a time above 63 bits", "badVarint", batch_of(effect_bytes(
        "consumer_committed", [
            string("consumer", "a"), number("number", 1), time("position_time", 2**63), time("committed_at", 0)]))),
    bad_batch("consumer_opened with partitions above 16 bits", "badVarint", batch_of(effect_bytes(
        "consumer_opened", [string("consumer", "a"), *partition(0, 2**16), number("epoch", 1)]))),
    bad_batch("a consumer's state longer than the batch", "truncated", batch_of(
        bytes([EFFECTS["consumer_state_assigned"], 6]) + b"\x01a\x00\x01\x09\x00")),
    bad_batch("more workers than there can be", "badValue:count", batch_of(effect_bytes(
        "consumer_workers_assigned", [string("consumer", "a"), number("workers", 2)] + feed_worker("", 0, 0)))),
    bad_batch("a worker's partition above 16 bits", "badVarint", batch_of(effect_bytes(
        "consumer_workers_assigned", [string("consumer", "a"), many("workers", [feed_worker("w", 4, T0, 2**16)])]))),
    bad_batch("consumer_removed with more behind it", "badValue:effect",
              batch_of(effect_bytes("consumer_removed", [string("consumer", "a"), byte("more", 0)]))),
    bad_batch("feed_switched without its time", "truncated",
              batch_of(effect_bytes("feed_switched", [string("consumer", "")]))),
    bad_batch("feed_switched at a time above 63 bits", "badVarint",
              batch_of(effect_bytes("feed_switched", [string("consumer", ""), time("off_since", 2**63)]))),
    bad_batch("feed_switched with more behind it", "badValue:effect",
              batch_of(effect_bytes("feed_switched", [string("consumer", ""), time("off_since", 0), byte("more", 0)]))),
    bad_batch("a marker without its time", "truncated", batch_of(effect_bytes(
        "marker_assigned", at(1, 3) + [opt("marker", 0), number("unread_epoch", 1)]))),
    bad_batch("a type without its time", "truncated",
              batch_of(effect_bytes("channel_type_assigned", type_record("a", 1, {})))),
    bad_batch("settings without their time", "truncated",
              batch_of(effect_bytes("user_assigned", [number("number", 0)] + user_settings("alice", 1)))),
    bad_batch("changed options of channel 0", "badValue:effect",
              batch_of(effect_bytes("options_changed", at(0) + [time("time", T0)]))),
    bad_batch("row flags 4 without what follows", "truncated",
              batch_of(effect_bytes("row_assigned", whole_row(1, 0, 4, "a", "", 0, T0, 0, 0, 0, 0, None, 0)))),
    bad_batch("row flags 0 with more behind them", "badValue:effect", batch_of(effect_bytes(
        "row_assigned", whole_row(1, 0, 0, "a", "", 0, T0, 0, 0, 0, 0, None, 0, (1, 0, 0, 0))))),
    bad_batch("row hidden 4", "badValue:flags", batch_of(effect_bytes(
        "row_assigned", whole_row(1, 0, 4, "a", "", 0, T0, 0, 0, 0, 0, None, 0, (4, 0, 0, 0))))),
    bad_batch("row with steps above 32 bits", "badVarint", batch_of(effect_bytes(
        "row_assigned", whole_row(1, 0, 4, "a", "", 0, T0, 0, 0, 0, 0, None, 0, (0, 2**32, 0, 0))))),
    bad_batch("message flags 512", "badValue:flags",
              batch_of(effect_bytes("message_assigned", message(1, 1, 512, "m", "a", T0, 0)))),
    bad_batch("message flags 256", "badValue:flags",
              batch_of(effect_bytes("message_assigned", message(1, 1, 256, "m", "a", T0, 0)))),
    bad_batch("a receipt without its expiry, at the end", "truncated",
              batch_of(effect_bytes("message_assigned", message(1, 1, 8, "m", "a", T0, 0)))),
    bad_batch("a receipt without its expiry, and another effect", "badValue:effect",
              batch_of(effect_bytes("message_assigned", message(1, 1, 8, "m", "a", T0, 0)), MOVE)),
    bad_batch("an expiry without a receipt", "badValue:effect",
              batch_of(effect_bytes("message_assigned", message(1, 1, 0, "m", "a", T0, 0, T0)))),
    bad_batch("a note of 1,025 bytes", "badValue:text",
              batch_of(effect_bytes("acknowledged", acknowledged(1, 1, 0, 0, T0, "n" * 1025)))),
    bad_batch("a note that is no UTF-8", "badValue:text", batch_of(effect_bytes(
        "acknowledged", acknowledged(1, 1, 0, 0, T0, "")[:-1] + [blob("note", "c328")]))),
    bad_batch("acknowledged with flag 2", "badValue:flags",
              batch_of(effect_bytes("acknowledged", acknowledged(1, 1, 0, 2, T0, "")))),
    bad_batch("acknowledged, message 0", "badValue:effect",
              batch_of(effect_bytes("acknowledged", acknowledged(1, 0, 0, 0, T0, "")))),
    bad_batch("acknowledged, row 2^24", "badValue:effect",
              batch_of(effect_bytes("acknowledged", acknowledged(1, 1, 1 << 24, 0, T0, "")))),
    bad_batch("a forgotten one of channel 0", "badValue:effect", batch_of(effect_bytes(
        "acknowledgement_forgotten", at(0) + [number("sequence", 1), number("row", 0)]))),
    bad_batch("steps of row page 65536", "badValue:effect", batch_of(effect_bytes(
        "steps_sealed", of_page(1, 65536, number("segment", 0), blob("steps", ""))))),
    bad_batch("steps longer than the batch", "truncated", batch_of(
        bytes([EFFECTS["steps_sealed"], 5]) + b"\x01\x00\x00" + b"\x09\x00")),
    bad_batch("a tail of more segments than there can be", "badValue:count", batch_of(effect_bytes(
        "step_tail_assigned", of_page(1, 0, number("first", 0), number("ends", 9), blob("steps", ""))))),
    bad_batch("settings with flag 16", "badValue:flags",
              batch_of(effect_bytes("user_assigned", [number("number", 0)] + user_settings("alice", 1, 16)))),
    bad_batch("settings of an erased user", "badValue:flags",
              batch_of(effect_bytes("user_assigned", [number("number", 0)] + user_settings("alice", 1, 8)))),
    bad_batch("a user's number above 32 bits", "badVarint",
              batch_of(effect_bytes("user_settled", [number("number", 2**32), number("version", 1)]))),
    bad_batch("an option's value cut in a channel", "badValue:optionValue", batch_of(effect_bytes(
        "channel_assigned", at(1) + [string("cid", CID), time("created", T0), options("own", {11: "02"})]))),
    bad_batch("an option twice in a type", "badValue:option", batch_of(effect_bytes(
        "channel_type_assigned",
        [string("type", "a"), number("version", 1), many("options", [
            [number("option", 12), blob("value", "00")], [number("option", 12), blob("value", "00")]])]))),
    # Removal.
    bad_batch("truncated up to message 0", "badValue:effect",
              batch_of(effect_bytes("truncated", at(1) + [number("sequence", 0), time("time", T0)]))),
    bad_batch("truncated, channel 0", "badValue:effect",
              batch_of(effect_bytes("truncated", at(0) + [number("sequence", 1), time("time", T0)]))),
    bad_batch("truncated without its time, at the end", "truncated",
              batch_of(effect_bytes("truncated", at(1) + [number("sequence", 1)]))),
    bad_batch("deletion_begun, channel 0", "badValue:effect", batch_of(effect_bytes("deletion_begun", at(0)))),
    bad_batch("channel_deleted, channel 0", "badValue:effect",
              batch_of(effect_bytes("channel_deleted", at(0) + [string("cid", CID)]))),
    bad_batch("channel_deleted whose cid is no UTF-8", "badValue:text",
              batch_of(effect_bytes("channel_deleted", at(1) + [blob("cid", "c328")]))),
    bad_batch("row_erased, row 2^24", "badValue:effect",
              batch_of(effect_bytes("row_erased", at(1, 1 << 24) + [time("time", T0)]))),
    bad_batch("sender_erased, message 0", "badValue:effect",
              batch_of(effect_bytes("sender_erased", at(1) + [number("sequence", 0)]))),
    bad_batch("user_erased with a hash of 7 bytes, at the end", "truncated", batch_of(effect_bytes(
        "user_erased", [number("number", 0), number("version", 1), raw("hash", "00" * 7)]))),
    bad_batch("user_erased with a hash of 9 bytes", "badValue:effect", batch_of(effect_bytes(
        "user_erased", [number("number", 0), number("version", 1), raw("hash", "01" * 9), time("time", T0)]))),
    bad_batch("message counts of more segments than there can be bytes", "badValue:count", batch_of(effect_bytes(
        "message_counts_assigned", at(1) + [number("newest", 2**32 - 1), number("counts", 9)]))),
    bad_batch("message counts of a segment that there is not", "badValue:count", batch_of(effect_bytes(
        "message_counts_assigned", at(1) + [
            number("newest", 256), many("counts", [[number("count", 1)], [number("count", 1)]])]))),
    bad_batch("a segment in which 257 messages count", "badValue:count", batch_of(effect_bytes(
        "message_counts_assigned", at(1) + [number("newest", 256), many("counts", [[number("count", 257)]])]))),
    bad_batch("a row flagged unread without a time", "badValue:effect", batch_of(effect_bytes(
        "row_assigned", whole_row(1, 5, 512, "erin", "", 0, T0, 1, T0, 0, 0, None, 2)))),
    bad_batch("mentions of nobody", "badValue:count", batch_of(effect_bytes(
        "message_assigned", message(1, 1, 128, "m", "a", T0, 0) + [byte("all", 0), many("mentions", [])]))),
    bad_batch("mentions of a row twice", "badValue:effect", batch_of(effect_bytes(
        "message_assigned", message(1, 1, 128, "m", "a", T0, 0) + [
            byte("all", 0), many("mentions", [[number("row", 3)]] * 2)]))),
    bad_batch("mentions assigned to a row twice", "badValue:effect", batch_of(effect_bytes(
        "mentions_assigned",
        at(1) + [number("sequence", 1), many("rows", [[number("row", 3)]] * 2), many("users", [])]))),
    bad_batch("mentions assigned to a user twice", "badValue:effect", batch_of(effect_bytes(
        "mentions_assigned",
        at(1) + [number("sequence", 1), many("rows", []), many("users", [[raw("hash", "01" * 8)]] * 2)]))),
    bad_batch("mentions assigned to message 0", "badValue:effect", batch_of(effect_bytes(
        "mentions_assigned", at(1) + [number("sequence", 0), many("rows", []), many("users", [])]))),
    bad_batch("imported steps of a page that no channel has", "badValue:effect", batch_of(effect_bytes(
        "steps_imported", of_page(1, 65536, blob("steps", ""))))),
    bad_batch("mute 2", "badValue:flags", batch_of(effect_bytes("mute_assigned", at(1, 0) + [byte("muted", 2)]))),
    bad_batch("a segment without a note", "badValue:flags", batch_of(effect_bytes(
        "segment_flags_assigned", at(1) + [many("segments", [[number("segment", 0), byte("what", 0)]])]))),
    bad_batch("a segment noted twice", "badValue:flags", batch_of(effect_bytes(
        "segment_flags_assigned", at(1) + [many("segments", [[number("segment", 3), byte("what", 1)]] * 2)]))),
    # The index.
    bad_batch("a membership in index 0", "badValue:effect", batch_of(effect_bytes(
        "membership_assigned", at(0) + [number("place", 0)] + membership(CID, 1, 0, 1, T0, 0)))),
    bad_batch("a membership in channel 0", "badValue:effect", batch_of(effect_bytes(
        "membership_assigned", at(7) + [number("place", 0)] + membership(CID, 0, 0, 1, T0, 0)))),
    bad_batch("a membership of row 2^24", "badValue:effect", batch_of(effect_bytes(
        "membership_assigned", at(7) + [number("place", 0)] + membership(CID, 1, 1 << 24, 1, T0, 0)))),
    bad_batch("a membership: member 4, a tombstone without its time", "badValue:flags", batch_of(effect_bytes(
        "membership_assigned", at(7) + [number("place", 0)] + membership(CID, 1, 0, 4, T0, 0)))),
    bad_batch("a membership: member 7, a tombstone of a member", "badValue:flags", batch_of(effect_bytes(
        "membership_assigned", at(7) + [number("place", 0)] + membership(CID, 1, 0, 7, T0, 0, T0)))),
    bad_batch("a membership: member 8", "badValue:flags", batch_of(effect_bytes(
        "membership_assigned", at(7) + [number("place", 0)] + membership(CID, 1, 0, 8, T0, 0)))),
    bad_batch("a membership that was deleted at no time", "badValue:effect", batch_of(effect_bytes(
        "membership_assigned", at(7) + [number("place", 0)] + membership(CID, 1, 0, 2, T0, 0, 0)))),
    bad_batch("a membership without the time at which it was deleted", "truncated", batch_of(effect_bytes(
        "membership_assigned", at(7) + [number("place", 0)] + membership(CID, 1, 0, 2, T0, 0)))),
    bad_batch("a membership at a place above 32 bits", "badVarint", batch_of(effect_bytes(
        "membership_removed", at(7) + [number("place", 2**32)]))),
    bad_batch("a membership without its epoch, at the end", "truncated", batch_of(effect_bytes(
        "membership_assigned", at(7) + [number("place", 0)] + membership(CID, 1, 0, 1, T0, 0)[:-1]))),
    bad_batch("a change of number 0", "badValue:effect", batch_of(effect_bytes(
        "membership_queued", [number("number", 0), string("user", "a"), byte("gone", 0)]
        + membership(CID, 1, 0, 1, T0, 0)))),
    bad_batch("a change: gone 2", "badValue:effect", batch_of(effect_bytes(
        "membership_queued", [number("number", 1), string("user", "a"), byte("gone", 2)]
        + membership(CID, 1, 0, 1, T0, 0)))),
    bad_batch("sent to shard 65536", "badValue:effect",
              batch_of(effect_bytes("memberships_confirmed", [number("shard", 65536), number("through", 1)]))),
    bad_batch("taken from shard 65536", "badValue:effect",
              batch_of(effect_bytes("memberships_received", [number("shard", 65536), number("through", 1)]))),
    bad_batch("an epoch with more behind it", "badValue:effect",
              batch_of(effect_bytes("index_epoch_assigned", [number("epoch", 1), byte("more", 0)]))),
    # Threads.
    bad_batch("in thread 0", "badValue:effect", batch_of(effect_bytes(
        "in_thread", [number("parent", 0), ["inner", "effect", "read_moved"]]))),
    bad_batch("in a thread: nothing, at the end", "truncated",
              batch_of(effect_bytes("in_thread", [number("parent", 1)]))),
    bad_batch("in a thread: an unknown effect", "badValue:effect",
              batch_of(effect_bytes("in_thread", [number("parent", 1), raw("inner", "0f0100")]))),
    bad_batch("in a thread: an effect, and more behind it", "badValue:effect", batch_of(effect_bytes(
        "in_thread", [number("parent", 1), ["inner", "effect", "read_moved"], byte("more", 0)]))),
    bad_batch("in a thread: an effect longer than its bytes", "truncated", batch_of(effect_bytes(
        "in_thread", [number("parent", 1), raw("inner", bytes([MOVE[0], MOVE[1] + 1]).hex() + MOVE[2:].hex())]))),
    bad_batch("in a thread: in a thread", "badValue:effect", batch_of(effect_bytes(
        "in_thread", [number("parent", 1), ["inner", "effect", "in_thread: read_moved"]]))),
] + [
    bad_batch(f"in a thread: {name}", "badValue:effect", batch_of(effect_bytes(
        "in_thread", [number("parent", 1), ["inner", "effect", name]])))
    for name in ("channel_assigned", "role_assigned", "acknowledged", "acknowledgement_forgotten",
                 "acknowledged_through", "steps_sealed", "truncated", "deletion_begun", "channel_deleted",
                 "message_counts_assigned", "segment_flags_assigned", "mute_assigned", "unread_flag_assigned",
                 "membership_assigned", "membership_removed", "options_changed", "channel_type_assigned",
                 "type_settled", "counters_assigned", "session_assigned", "user_assigned", "user_settled",
                 "user_erased", "membership_queued", "memberships_confirmed", "memberships_received",
                 "index_epoch_assigned", "webhook_noted", "ids_widened", "token_revoked", "consumer_assigned",
                 "consumer_committed", "consumer_opened", "consumer_state_assigned", "consumer_workers_assigned",
                 "consumer_removed", "feed_switched", "deletion_held", "deletion_ended", "names_lost",
                 "timer_assigned", "timer_removed", "push_job_assigned", "push_job_removed")
]

# ------------------------------------------------------------------------------------------------------ shard hash


def shard_hash():
    lengths = sorted(set(range(0, 101)) | {127, 128, 129, 193, 255, 256, 257, 300})
    texts = ["", "a", "messaging:general", "messaging:general-42", "team:!members-abc", "auth0|5f7c",
             "@bob:example.org", "messaging:Zo\u00eb", "messaging:Zoe\u0308", "livestream:0",
             "t" * 64 + ":" + "c" * 128]
    counts = [1, 2, 3, 7, 16, 64, 1000, 65535]
    return {
        "about": "XXH64, seed 0, by xxhsum -H1. Byte i of a sequence is (31 * i + 7) mod 256.",
        "sequences": [
            {"length": n, "hash": xxh64(bytes((31 * i + 7) & 255 for i in range(n)))} for n in lengths],
        "texts": [{"text": t, "hash": xxh64(t.encode())} for t in texts],
        "shards": [
            {"cid": t, "shard_count": c, "shard": int(xxh64(t.encode()), 16) % c} for t in texts[2:] for c in counts],
    }


# ---------------------------------------------------------------------------------------------------------- tickets

TICKET_SECRETS = ["0123456789abcdef0123456789abcdef", "an earlier secret of forty bytes, no less"]
TICKET_EXPIRY = 1_800_000_000
TICKET_STORE = bytes(range(16))
# The hashed prefix, by version.
TICKET_PURPOSES = {1: b"tidemark ticket 1", 2: b"tidemark ticket 2" + TICKET_STORE}


def place(number, row, parent, sequence, cid, user, message):
    check = bytes.fromhex(xxh64(f"{cid}\0{user}\0{message}".encode()))
    return varint(number) + varint(row) + encode("opt", parent) + varint(sequence) + check


def signed_part(secret, shard, place_bytes, device="", version=2, expiry=TICKET_EXPIRY):
    identifier = hashlib.sha256(secret.encode()).digest()[:1]
    return bytes([version]) + identifier + varint(expiry) + varint(shard) + place_bytes + encode("string", device)


def ticket_text(secret, signed, code_length=16, purpose=TICKET_PURPOSES[2]):
    code = hmac.new(secret.encode(), purpose + signed, hashlib.sha256).digest()[:code_length]
    return base64.urlsafe_b64encode(signed + code).decode().rstrip("=")


def tickets():
    current, earlier = TICKET_SECRETS
    foreign = "a secret that no gateway of this service has"
    small = place(1, 0, None, 1, "messaging:general", "bob", "m1")
    places = [
        ("the smallest", current, 0, small, ""),
        ("with a device", current, 3, small, "ios"),
        ("by the earlier secret", earlier, 3, small, "ios"),
        ("of a reply", current, 7, place(12, 300, 41, 2, "team:ops", "alice@example.org", "r-2"), "web"),
        ("the largest", current, 65535, place(2**64 - 1, 2**32 - 1, 2**32 - 1, 2**32 - 1, "t:c", "u", "m"), "d" * 32),
    ]
    good = [
        {"name": name, "version": version, "secret": secret, "expiry": TICKET_EXPIRY, "shard": shard,
         "place": place_bytes.hex(), "device": device,
         "text": ticket_text(secret, signed_part(secret, shard, place_bytes, device, version),
                             purpose=TICKET_PURPOSES[version])}
        for version in [2, 1] for name, secret, shard, place_bytes, device in places]
    text = good[1]["text"]
    signed = signed_part(current, 3, small, "ios")
    bad = [
        ("empty", ""),
        ("one character", "A"),
        ("cut by a character", text[:-1]),
        ("cut by four", text[:-4]),
        ("a character too many", text + "A"),
        ("with padding", text + "="),
        ("another last character, whose lowest bits stand for nothing",
         text[:-1] + chr(ord(text[-1]) + 1) if len(text) % 4 else text[:-1] + "!"),
        ("of the other base64 alphabet", "+" + text[1:]),
        ("a space in it", text[:8] + " " + text[9:]),
        ("longer than any", "A" * 164),
        ("of a later version", ticket_text(current, signed_part(current, 3, small, "ios", version=3))),
        ("of another store", ticket_text(current, signed, purpose=b"tidemark ticket 2" + TICKET_STORE[::-1])),
        ("of version 2, signed as version 1", ticket_text(current, signed, purpose=TICKET_PURPOSES[1])),
        ("by a secret that is not held", ticket_text(foreign, signed_part(foreign, 3, small, "ios"))),
        ("by a secret that is not held, under the name of one that is", ticket_text(foreign, signed)),
        ("by the earlier secret, under the name of the current one", ticket_text(earlier, signed)),
        ("signed for something else", ticket_text(current, signed, purpose=b"tidemark gateway 1")),
        ("with a shorter code", ticket_text(current, signed, code_length=15)),
        ("with another shard", ticket_text(current, signed)[:12] + "E" + text[13:]),
        ("signed, and cut within its place", ticket_text(current, signed_part(current, 3, small[:-1], ""))),
        ("signed, with bytes behind it", ticket_text(current, signed + b"\0")),
        ("signed, with a shard beyond 16 bits", ticket_text(current, signed_part(current, 65536, small, ""))),
    ]
    return {
        "about": "Tickets as tickets.md has them, by Python's hmac: what is in them, and what is none.",
        "secrets": TICKET_SECRETS,
        "store": TICKET_STORE.hex(),
        "tickets": good,
        "refused": [{"name": name, "text": text} for name, text in bad],
    }


# ------------------------------------------------------------------------------------------------------------ files

FILES = {
    "shard-hash.json": shard_hash,
    "tickets.json": tickets,
    "frames.json": lambda: {
        "about": "Whole frames. A field is [name, notation, value]; blob: a string whose bytes are no text.",
        "frames": FRAMES},
    "bad-frames.json": lambda: {
        "about": "What a receiver refuses, and as what (ReceiptWire's WireError). Limit 1048576 unless it is named.",
        "frames": BAD_FRAMES},
    "log.json": lambda: {
        "about": "Effects, batches and pages; and batches that are refused.",
        "effects": EFFECT_VECTORS, "batches": BATCH_VECTORS, "pages": PAGE_VECTORS, "bad_batches": BAD_BATCHES},
}


def render(value):
    """One entry of a list on a line: such files can be read, and compared line by line."""
    lines = ["{"]
    for index, (key, entry) in enumerate(value.items()):
        comma = "," if index < len(value) - 1 else ""
        if isinstance(entry, list):
            lines.append(f"  {json.dumps(key)}: [")
            lines += [
                "    " + json.dumps(e, ensure_ascii=False) + ("," if i < len(entry) - 1 else "")
                for i, e in enumerate(entry)]
            lines.append("  ]" + comma)
        else:
            lines.append(f"  {json.dumps(key)}: {json.dumps(entry, ensure_ascii=False)}{comma}")
    return "\n".join(lines + ["}"]) + "\n"


def main():
    check = sys.argv[1:] == ["--check"]
    stale = []
    for name, make in FILES.items():
        text = render(make())
        path = HERE / name
        if check:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                stale.append(name)
        else:
            path.write_text(text, encoding="utf-8")
    if stale:
        sys.exit("not as generate.py would write them: " + ", ".join(stale))


main()
