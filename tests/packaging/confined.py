"""Runs a command as `packaging/systemd/copycat.service` would, without systemd: `unshare -m -i python confined.py PLAN`.

PLAN is JSON: `unit` (text of the unit), `user`, `shown` (directories the command needs to see), `places` (name below `PLACES` ->
directory that is mounted there), `writable` (those of the names that stay writable), `command`, `env`.

Applied, as far as the unit says so: read-only file system, no homes, private /tmp, /proc with its own processes only, a user
without groups and capabilities, umask, limits, no new privileges, address families, the filter of system calls. Not applied:
user namespace, device policy, and what else only systemd can do; tests/packaging/test_service.py runs the unit under systemd.
"""

from __future__ import annotations

import ctypes
import json
import os
import pwd
import re
import resource
import stat
import subprocess
import sys
from pathlib import Path

PLACES = Path("/mnt")
"""Where the directories of the command are, whatever their real paths: those may lie below directories of mode 0700."""

_EPERM, _EAFNOSUPPORT = 1, 97
_ERRNO, _ALLOW = 0x00050000, 0x7FFF0000
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_EQUAL, _GREATER = 4, 6
_FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10}
_LAST_FAMILY = 45


class _Compare(ctypes.Structure):
    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


def settings(unit: str) -> dict[str, list[str]]:
    """Every setting of a unit, with its values in order."""
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^([A-Za-z]+)=(.*)$", unit, re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


def system_calls(filters: list[str]) -> set[str]:
    """What `SystemCallFilter=` lines let pass; the first is a list of what is allowed, those with ~ take away."""
    allowed: set[str] = set()
    for line in filters:
        names = {call for name in line.lstrip("~").split() for call in _expanded(name)}
        allowed = allowed - names if line.startswith("~") else allowed | names
    return allowed


def _expanded(name: str) -> set[str]:
    if not name.startswith("@"):
        return {name}
    shown = subprocess.run(["systemd-analyze", "syscall-filter", "--no-pager", name], capture_output=True, text=True, check=True).stdout
    lines = [line.strip() for line in shown.splitlines()[1:]]
    return {call for line in lines if line and not line.startswith("#") for call in _expanded(line)}


def _mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


def arrange_files(plan: dict[str, list[str]], places: dict[str, str]) -> None:
    """The file system as the command is to see it. In a mount namespace of its own."""
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", PLACES)
    for name, directory in places.items():
        (PLACES / name).mkdir()
        _mount("--bind", directory, PLACES / name)
    needed = [Path(path).resolve() for path in plan["shown"]]
    for number, path in enumerate(needed):
        (PLACES / f".{number}").mkdir()
        _mount("--bind", path, PLACES / f".{number}")
    closed = {one for path in needed for one in path.parents if not one.stat().st_mode & stat.S_IXOTH}
    for path in [*sorted(closed), Path("/home"), Path("/root"), Path("/tmp"), Path("/var/tmp")]:
        if path.is_dir():
            _mount("-t", "tmpfs", "-o", f"mode={'1777' if path.name == 'tmp' else '755'}", "tmpfs", path)
    for number, path in enumerate(needed):
        if not path.exists():
            path.mkdir(parents=True)
            _mount("--bind", PLACES / f".{number}", path)
    _mount("-t", "proc", "-o", "hidepid=2", "proc", "/proc")
    writable = {str(PLACES / name) for name in plan["writable"]} | {"/tmp", "/var/tmp"}
    for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines():
        point = line.split()[4].encode().decode("unicode_escape")
        if point not in writable and not re.match(r"/(proc|sys|dev)(/|$)", point):
            subprocess.run(["mount", "-o", "remount,bind,ro", point], check=False, stderr=subprocess.DEVNULL)


def give_up_rights(unit: dict[str, list[str]], user: str) -> None:
    """User, capabilities, limits, umask. There is no way back."""
    libc = ctypes.CDLL(None, use_errno=True)
    for name, limit in (("LimitNOFILE", resource.RLIMIT_NOFILE), ("LimitCORE", resource.RLIMIT_CORE)):
        most = resource.getrlimit(limit)[1]  # a container's root may not raise it
        wanted = int(unit[name][-1])
        resource.setrlimit(limit, (min(wanted, most) if most != resource.RLIM_INFINITY else wanted,) * 2)
    os.umask(int(unit["UMask"][-1], 8))
    if unit["CapabilityBoundingSet"] == [""]:
        for capability in range(64):
            libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    entry = pwd.getpwnam(user)
    os.setgroups([])
    os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
    os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
    if unit["NoNewPrivileges"] == ["yes"]:
        assert libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0


def filter_calls(allowed: set[str], families: set[str]) -> None:
    """Every other system call fails with EPERM, every other address family with EAFNOSUPPORT."""
    seccomp = ctypes.CDLL("libseccomp.so.2")
    seccomp.seccomp_init.restype = ctypes.c_void_p
    sockets, calls = (ctypes.c_void_p(seccomp.seccomp_init(action)) for action in (_ALLOW, _ERRNO | _EPERM))
    number = seccomp.seccomp_syscall_resolve_name(b"socket")
    known = {_FAMILIES[family] for family in families}
    compares = [_Compare(0, _EQUAL, family, 0) for family in range(_LAST_FAMILY + 1) if family not in known]
    for compare in [*compares, _Compare(0, _GREATER, _LAST_FAMILY, 0)]:
        assert seccomp.seccomp_rule_add_array(sockets, _ERRNO | _EAFNOSUPPORT, number, 1, ctypes.byref(compare)) == 0
    for name in sorted(allowed):
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            assert seccomp.seccomp_rule_add_array(calls, _ALLOW, number, 0, None) == 0, name
    for context in (sockets, calls):
        assert seccomp.seccomp_load(context) == 0


def main() -> None:
    """Arrange everything, then become the command."""
    plan = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    unit = settings(plan["unit"])
    allowed = system_calls(unit["SystemCallFilter"])
    arrange_files(plan, plan["places"])
    os.chdir("/")
    give_up_rights(unit, plan["user"])
    filter_calls(allowed, set(unit["RestrictAddressFamilies"][-1].split()))
    os.execve(plan["command"][0], plan["command"], plan["env"])  # noqa: S606 - the point of it


if __name__ == "__main__":
    main()
