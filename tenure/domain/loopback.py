"""Which addresses only this machine reaches."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether `host` is loopback by its writing: `127.x.x.x`, `::1`, `localhost`. Other names are not looked up."""
    bare = host.strip("[]")
    if bare == "localhost":
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False
