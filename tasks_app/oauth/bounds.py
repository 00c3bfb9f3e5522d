"""How long the values of OAuth requests may be: what is stored fits its column, the rest is modest."""

from django.http import HttpRequest

_ADDRESS = 2000
_LONGEST = {
    "client_id": 255,
    "client_secret": 255,
    "redirect_uri": _ADDRESS,
    "response_type": 64,
    "scope": 1000,
    "state": 4000,
    "nonce": 255,
    "claims": 4000,
    "resource": _ADDRESS,
    "code_challenge": 128,
    "code_challenge_method": 10,
    "code": 255,
    "code_verifier": 128,
    "refresh_token": 255,
    "token": 4000,
}


def fault_of(request: HttpRequest) -> str:
    """Return what is wrong with a request's values, in its address or body; "" when nothing is.

    Lengths are characters; of a parameter that is repeated, all values count together.
    """
    for sent in (request.GET, request.POST):
        for name, values in sent.lists():
            value = " ".join(map(str, values))
            if name in _LONGEST and len(value) > _LONGEST[name]:
                return f"{name} is longer than {_LONGEST[name]} characters."
    return ""
