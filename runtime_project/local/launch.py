"""Replaces itself by a command that dies with its parent, on request under another user.

Run by path with `python -I -S`, standard library only. A small program instead of a
`preexec_fn`, because Linux forgets the death signal when a process changes its user: the order
must be user first, then signal, then exec.
"""

import argparse
import ctypes
import os
import pwd
import sys

PR_SET_PDEATHSIG = 1
PR_SET_SECUREBITS = 28
# Keep capabilities when the user changes, and let access(2) respect them for any user:
# PostgreSQL asks access(2) before it starts its own programs.
SECBIT_NO_SETUID_FIXUP = 1 << 2
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
CAP_DAC_OVERRIDE = 1
CAP_DAC_READ_SEARCH = 2
CAPABILITY_VERSION_3 = 0x20080522


def main() -> None:
    """Parse, become the user, arrange the death signal, exec."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--death-signal", type=int, required=True)
    parser.add_argument("--user", default="")
    parser.add_argument("--read-anywhere", action="store_true")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    if options.user:
        _become(options.user, read_anywhere=options.read_anywhere)
    if sys.platform == "linux":
        _prctl(PR_SET_PDEATHSIG, options.death_signal)
    if os.getppid() != options.parent:
        sys.exit("the parent ended before the command began")
    os.execv(options.command[0], options.command)  # noqa: S606 - becoming the command is the point


def _become(user: str, *, read_anywhere: bool) -> None:
    """Drop root for `user`; keep only the right to read through closed folders, if asked.

    PostgreSQL refuses to run as root, yet its programs and data may lie below a folder such as
    /root that no other user may enter. Opening that folder would expose everything in it; a
    single ambient capability for one process does not.
    """
    entry = pwd.getpwnam(user)
    if read_anywhere:
        _prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP)
    os.setgroups([])
    os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
    os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
    if read_anywhere:
        _keep_one_capability()


def _keep_one_capability() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)()
    if libc.capget(header, data) != 0:
        raise OSError(ctypes.get_errno(), "capget failed")
    permitted = data[1]
    kept = next((c for c in (CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE) if permitted >> c & 1), None)
    if kept is None:
        sys.exit("root without the right to read every folder: move the project to an open one")
    for index, value in enumerate((1 << kept, 1 << kept, 1 << kept, 0, 0, 0)):
        data[index] = value
    if libc.capset(header, data) != 0:
        raise OSError(ctypes.get_errno(), "capset failed")
    _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, kept)


def _prctl(option: int, *values: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    if libc.prctl(option, *arguments) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option} failed")


if __name__ == "__main__":
    main()
