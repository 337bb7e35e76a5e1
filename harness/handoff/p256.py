"""Checks an ECDSA signature on NIST P-256, as cosign makes them, with nothing but Python.

Python has no ECDSA of its own. To check a signature, where nothing is secret, takes the formulas of FIPS
186-5, section 6.4.2, with the curve of SP 800-186. A bundle's verify.py holds this file's code.
"""

from __future__ import annotations

import base64
import hashlib

Point = tuple[int, int]
_P = 2**256 - 2**224 + 2**192 + 2**96 - 1
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_B = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_SPKI = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d030107034200" + "04")


def signed(public: Point, data: bytes, pair: tuple[int, int]) -> bool:
    """Whether ``pair`` is the signature of ``data`` by the owner of ``public``."""
    value, (r, s) = int.from_bytes(hashlib.sha256(data).digest(), "big"), pair
    if not (0 < r < _N and 0 < s < _N):
        return False
    inverse = pow(s, -1, _N)
    point = _add(_times(value * inverse % _N, _G), _times(r * inverse % _N, public))
    return point is not None and point[0] % _N == r


def _add(one: Point | None, other: Point | None) -> Point | None:
    if one is None or other is None:
        return one or other
    if one[0] == other[0] and (one[1] + other[1]) % _P == 0:
        return None
    if one == other:
        slope = (3 * one[0] * one[0] - 3) * pow(2 * one[1], -1, _P) % _P
    else:
        slope = (other[1] - one[1]) * pow(other[0] - one[0], -1, _P) % _P
    x = (slope * slope - one[0] - other[0]) % _P
    return x, (slope * (one[0] - x) - one[1]) % _P


def _times(factor: int, point: Point | None) -> Point | None:
    result = None
    while factor:
        if factor & 1:
            result = _add(result, point)
        point = _add(point, point)
        factor >>= 1
    return result


def public_key(pem: str) -> Point:
    """The point in a PEM file; raises ValueError where it holds no such key."""
    body = "".join(line for line in pem.split() if "-" not in line and line not in ("PUBLIC", "KEY"))
    data = base64.b64decode(body, validate=True)
    if len(data) != len(_SPKI) + 64 or not data.startswith(_SPKI):
        raise ValueError("the key is not an ECDSA key on P-256, as cosign makes them")
    x, y = (int.from_bytes(data[-64 + i : len(data) - 32 + i], "big") for i in (0, 32))
    if x >= _P or y >= _P or (y * y - (x * x * x - 3 * x + _B)) % _P:
        raise ValueError("the key is no point of the curve P-256")
    return x, y


def signature(text: str) -> tuple[int, int]:
    """The two numbers of a signature in base64: in DER a sequence of two integers below 128 bytes."""
    data = base64.b64decode(text, validate=True)
    if data[0] == 0x30 and data[1] == len(data) - 2 and data[2] == 2:
        middle = 4 + data[3]
        if data[middle] == 2 and data[middle + 1] == len(data) - middle - 2:
            return int.from_bytes(data[4:middle], "big"), int.from_bytes(data[middle + 2 :], "big")
    raise ValueError("not an ECDSA signature in DER")
