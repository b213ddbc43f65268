"""Values that many vectors have, and the values of options."""

from .notation import byte, encode, number, string, varint

SESSION = "00112233445566778899aabbccddeeff"
STORE = "f0e0d0c0b0a090807060504030201000"
NONCE_1 = bytes(range(32)).hex()
NONCE_2 = bytes(range(255, 223, -1)).hex()
PROOF = bytes((7 * i + 3) & 255 for i in range(32)).hex()
T0 = 1_767_225_600_000  # 2026-01-01T00:00:00Z
CID = "messaging:general"


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
