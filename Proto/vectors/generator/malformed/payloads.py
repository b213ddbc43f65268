"""Payloads that the malformed vectors alter, and malformed vectors by their subjects."""

from ..fields.channels import (
    channel_entry, list_channels_of, member_status, page_of_members, rebuild, request, typed, user_settings)
from ..fields.events import subscribe
from ..fields.feed import commit, consumer, feed_page, lease, of_consumer, partition, record, types
from ..fields.notation import byte, encode_all, many, number, opt, string, time, varint
from ..fields.push import delivery, place
from ..fields.sessions import challenge_fields, hello_fields
from ..fields.values import CID, T0
from ..framing import altered, bad


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
CONSUMER = encode_all(consumer("a") + [many("states", [])])
PUT_CONSUMER = encode_all(of_consumer("a", 1, number("kinds", 0), types(), byte("start", 0), time("since", 0)))
READ_FEED = encode_all([string("consumer", "a"), *partition(0, 1), number("epoch", 1), number("number", 1),
                        number("flags", 0), number("limit", 1)])
FEED_PAGE = encode_all(feed_page(2, 2, T0, record(2, 1, T0, CID, "bob", "m-1", 1)))
COMMIT = encode_all(commit("a", 1, 0, 1, 7, 1, T0, 1, "s"))
LEASE = encode_all(lease("a", 1, "w", 2, 8_000, 0, 1))


def patch(*raw_options):
    return PATCH_HEAD + varint(len(raw_options)) + b"".join(raw_options)


def bad_option(name, number_, value):
    """An option whose value, in hexadecimal, is no value of it."""
    value = bytes.fromhex(value)
    return bad(name, "badValue:optionValue",
               altered("patch_channel_type", patch(varint(number_) + varint(len(value)) + value)))


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
