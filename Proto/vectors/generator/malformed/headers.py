"""Frames that are refused by their headers, and snapshots for other nodes."""

from ..fields.notation import byte, encode_all, number
from ..framing import altered, bad, header

BAD_LENGTHS_AND_KINDS = [
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
]

BAD_KINDS_AND_FLAGS = [
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
]
