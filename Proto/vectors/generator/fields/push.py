"""The fields of tickets, push acks, revoked tokens and push jobs."""

from ..hashes import xxh64
from .notation import byte, many, number, opt, raw, string, time
from .values import CID


def place(channel_number, row_number, parent, sequence, user, message_id, cid=CID):
    return [number("channel", channel_number), number("row", row_number), opt("parent", parent),
            number("sequence", sequence), raw("check", xxh64(b"\0".join(t.encode() for t in (cid, user, message_id))))]


def delivery(moved, sent, delivered, cid="", user="", message_id=""):
    return [byte("moved", moved), time("sent", sent), time("delivered", delivered), string("cid", cid),
            string("user", user), string("message", message_id)]


def ack_source(provider, device):
    """What follows flag 2 of a push ack."""
    return [string("provider", provider), string("device", device)]


def revocation(jti, until, version):
    return [string("jti", jti), time("until", until), number("version", version)]


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
