"""The vectors of tickets, from tickets.md alone."""

import base64
import hashlib
import hmac

from .fields.notation import encode, varint
from .hashes import xxh64

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
