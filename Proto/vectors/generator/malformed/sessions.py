"""Malformed frames of sessions, marks and patches."""

from ..fields.channels import membership
from ..fields.notation import byte, encode_all, many, number, string, varint
from ..fields.sessions import challenge_fields, hello_fields
from ..fields.values import CID, T0
from ..framing import altered, bad
from .payloads import CHALLENGE, HELLO, MARK, patch, shard_map_of_2

BAD_SESSIONS = [
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
]
