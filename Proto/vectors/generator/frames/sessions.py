"""Frames of sessions, between nodes, and errors in general."""

import hashlib

from ..fields.channels import membership
from ..fields.notation import blob, byte, many, number, raw, string
from ..fields.sessions import challenge_fields, hello_fields
from ..fields.values import CID, PROOF, T0
from ..framing import frame

SESSION_FRAMES = [
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
]
