"""NVIDIA's list of NVSwitch errors (SXid): their names, and whether they take links down. A data table.

Source: Fabric Manager for NVIDIA NVSwitch Systems User Guide, DU-09883-001 v1.3 (October 2023), appendix D.4 (not
fatal), D.5 (fatal to the link's GPUs), D.6 (always fatal to the fabric) and D.7 (others).
"""

import re

from tenure.domain.severity import Severity

_NOT_FATAL = """
10001 host priv error
10002 host priv timeout
10004 thermal event began
10005 thermal event ended
11004 ingress invalid ACL
11012 single bit ECC error
11021 single bit ECC error
11022 single bit ECC error
11023 single bit ECC error
12021 single bit ECC error
12023 single bit ECC error
12028 egress nonposted PRIV error
15008 single bit ECC error
15011 single bit ECC error
19049 single bit ECC error
19055 single bit ECC error
19057 single bit ECC error
19059 single bit ECC error
19062 single bit ECC error
19065 single bit ECC error
19068 single bit ECC error
19071 single bit ECC error
19084 AN1 heartbeat timeout
20001 TX replay error
20012 broken or inconsistent connection
22013 Minion link DLREQ interrupt
24001 single bit ECC error
24002 single bit ECC error
24003 single bit ECC error
"""
_FATAL = """
10003 unhandled interrupt
11001 ingress invalid command
11009 ingress invalid VCSet
11013 ingress header DBE
11018 ingress RID DBE
11019 ingress RLAN DBE
11020 ingress control parity
12001 egress crossbar overflow
12002 egress packet route
12020 egress sequence ID error
12022 egress input ECC DBE
12024 egress output ECC DBE
12025 egress credit overflow
12026 egress destination request ID error
12027 egress destination response ID error
12030 egress control parity error
12031 egress credit parity error
12032 egress flit type mismatch
14017 TS ATO timeout
15001 route buffer over- or underflow
15006 route transdone over- or underflow
15009 route GLT DBE
15010 route parity
15012 route incoming DBE
15013 route credit parity
19047 NCISOC header ECC DBE
19048 NCISOC data ECC DBE
19054 header RAM ECC DBE
19056 DAT0 RAM ECC DBE
19058 DAT1 RAM ECC DBE
19060 CREQ RAM header ECC DBE
19061 CREQ RAM data ECC DBE
19063 response RAM header ECC DBE
19064 response RAM data ECC DBE
19066 COM RAM header ECC DBE
19067 COM RAM data ECC DBE
19069 RSP1 RAM header ECC DBE
19070 RSP1 RAM data ECC DBE
20034 link went down (LTSSM fault up)
22003 Minion halt
22011 Minion external error
22012 Minion link NA interrupt
23001 ingress SRC-VC buffer overflow
23002 ingress SRC-VC buffer underflow
23003 egress DST-VC credit overflow
23004 egress DST-VC credit underflow
23005 ingress packet burst error
23006 ingress packet sticky error
23007 possible bubbles at ingress
23008 ingress packet invalid destination error
23009 ingress packet parity error
23010 ingress SRC-VC buffer overflow
23011 ingress SRC-VC buffer underflow
23012 egress DST-VC credit overflow
23013 egress DST-VC credit underflow
23014 ingress packet burst error
23015 ingress packet sticky error
23016 possible bubbles at ingress
23017 ingress credit parity error
24004 sourcetrack TCEN0 crumbstore DBE
24005 sourcetrack TCEN0 TD crumbstore DBE
24006 sourcetrack TCEN1 crumbstore DBE
24007 sourcetrack timeout
"""


def _rows(table: str) -> dict[int, str]:
    return {int(code): name for code, name in (line.split(" ", 1) for line in table.strip().splitlines())}


SXIDS_NOT_FATAL, SXIDS_FATAL = _rows(_NOT_FATAL), _rows(_FATAL)
"""The name of each known SXid by its code."""

_SAID = re.compile(rb"\b(Non-fatal|Fatal)\b", re.IGNORECASE)


def describe_switch(code: int, message: bytes) -> tuple[Severity, str]:
    """How grave a sighting is and what to say of it: what the line says of its gravity wins, else the list."""
    said = _SAID.search(message)
    fatal = said.group(1).lower() == b"fatal" if said is not None else code in SXIDS_FATAL
    name = SXIDS_FATAL.get(code) or SXIDS_NOT_FATAL.get(code) or "not in the list"
    return Severity.DRAIN if fatal else Severity.WATCH, f"SXid {code}: {name}{' (fatal)' if fatal else ''}"
