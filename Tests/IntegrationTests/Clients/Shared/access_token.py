"""Access tokens as a backend signs them: JSON Web Tokens (RFC 7519) with HS256, by Python's hmac."""
import base64, hashlib, hmac, json, time


def claims(user, **others):
    """Returns the claims of a token of a user, or of a server, for an hour; `others` replace and extend them."""
    now = int(time.time())
    caller = {"user_id": user} if user else {"server": True}
    return {"iat": now, "exp": now + 3600, **caller, **others}


def sign(secret, payload, head=b'{"alg":"HS256","typ":"JWT"}'):
    """Returns the token of a payload and a head, of any bytes."""
    text = _base64url(head) + b"." + _base64url(payload)
    return (text + b"." + _base64url(hmac.new(secret, text, hashlib.sha256).digest())).decode()


def token(secret, user=None, **others):
    return sign(secret, json.dumps(claims(user, **others)).encode())


def _base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=")
