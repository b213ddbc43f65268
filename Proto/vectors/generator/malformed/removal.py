"""Malformed threads, and malformed frames that remove."""

from ..fields.channels import channel, request
from ..fields.notation import encode_all, string, varint
from ..fields.values import CID, T0
from ..framing import altered, bad
from .payloads import MARK

BAD_THREADS_AND_REMOVALS = [
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
]
