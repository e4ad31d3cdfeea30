"""Lines of public log formats (those of the loghub collection), made up with a seed: the same form, other words."""

from __future__ import annotations

import random
from collections.abc import Callable

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


class Lines:
    """Lines of each format; `lines(name, count)`."""

    def __init__(self, seed: int = 7) -> None:
        self._random = random.Random(seed)

    def of(self, name: str, count: int = 300) -> list[bytes]:
        """So many lines of a format."""
        make: Callable[[], str] = getattr(self, f"_{name}")
        return [make().encode() for _ in range(count)]

    def _one(self, *words: str) -> str:
        return self._random.choice(words)

    def _number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def _clock(self) -> str:
        return f"{self._number(0, 23):02d}:{self._number(0, 59):02d}:{self._number(0, 59):02d}"

    def _address(self) -> str:
        return ".".join(str(self._number(1, 254)) for _ in range(4))

    def _bsd(self) -> str:
        return f"{self._one(*_MONTHS)} {self._number(1, 28):2d} {self._clock()}"

    def _apache(self) -> str:
        when = f"{self._one(*_DAYS)} {self._one(*_MONTHS)} {self._number(1, 28):02d} {self._clock()} 2005"
        client = self._one("", f"[client {self._address()}] ")
        text = self._one(
            "workerEnv.init() ok /etc/httpd/conf/workers2.properties",
            f"mod_jk child workerEnv in error state {self._number(6, 9)}",
            "Directory index forbidden by rule: /var/www/html/",
            f"jk2_init() Found child {self._number(1000, 9999)} in scoreboard slot {self._number(6, 12)}",
        )
        return f"[{when}] [{self._one('notice', 'error', 'warn')}] {client}{text}"

    def _openssh(self) -> str:
        text = self._one(
            f"Failed password for invalid user webmaster from {self._address()} port {self._number(1024, 65535)} ssh2",
            "pam_unix(sshd:auth): check pass; user unknown",
            f"reverse mapping checking getaddrinfo for ns.example.com [{self._address()}] failed - POSSIBLE BREAK-IN ATTEMPT!",
            f"Received disconnect from {self._address()}: 11: Bye Bye [preauth]",
            "PAM 5 more authentication failures; logname= uid=0 euid=0 tty=ssh ruser= rhost=10.0.0.1  user=root",
        )
        return f"{self._bsd()} LabSZ sshd[{self._number(1, 32768)}]: {text}"

    def _linux(self) -> str:
        text = self._one(
            f"sshd(pam_unix)[{self._number(1, 32768)}]: authentication failure; logname= uid=0 euid=0 tty=NODEVssh ruser= rhost=10.1.1.1 ",
            "su(pam_unix)[21416]: session opened for user cyrus by (uid=0)",
            "logrotate: ALERT exited abnormally with [1]",
            f"kernel: audit(1122475266.4294965305:0): initialized {self._address()}",
            f"ftpd[{self._number(1, 32768)}]: connection from {self._address()} () at Sat Jun 18 02:08:10 2005 ",
            "gpm[2094]: *** info [mice.c(1766)]: ",
        )
        return f"{self._bsd()} combo {text}"

    def _hdfs(self) -> str:
        block = f"blk_{self._one('', '-')}{self._number(10**15, 9 * 10**18)}"
        component, text = self._random.choice(
            [
                ("dfs.DataNode$PacketResponder", f"PacketResponder {self._number(0, 2)} for block {block} terminating"),
                (
                    "dfs.FSNamesystem",
                    f"BLOCK* NameSystem.addStoredBlock: blockMap updated: {self._address()}:50010 is added to {block} size 6",
                ),
                ("dfs.DataNode$DataXceiver", f"Receiving block {block} src: /{self._address()}:5410 dest: /{self._address()}:50010"),
            ]
        )
        return f"081109 {self._clock().replace(':', '')} {self._number(1, 9999)} {self._one('INFO', 'WARN')} {component}: {text}"

    def _zookeeper(self) -> str:
        thread, component = self._random.choice(
            [
                ("QuorumPeer[myid=1]/0:0:0:0:0:0:0:0:2181", "FastLeaderElection"),
                (f"/{self._address()}:3888", "QuorumCnxManager$Listener"),
                ("SendWorker:188978561024", "QuorumCnxManager$SendWorker"),
                (f"NIOServerCxn.Factory:0.0.0.0/0.0.0.0:{self._number(2000, 3000)}", "NIOServerCnxn"),
            ]
        )
        text = self._one(
            "Notification time out: 3200", "Interrupted while waiting for message on queue", "Cannot open channel to 2 at election"
        )
        when = f"2015-07-{self._number(10, 30)} {self._clock()},{self._number(0, 999):03d}"
        return f"{when} - {self._one('INFO ', 'WARN ', 'ERROR')} [{thread}:{component}@{self._number(1, 999)}] - {text}"

    def _spark(self) -> str:
        component, text = self._random.choice(
            [
                ("executor.CoarseGrainedExecutorBackend", "Registered signal handlers for [TERM, HUP, INT]"),
                ("storage.BlockManager", f"Found block rdd_2_{self._number(0, 99)} locally"),
                ("rdd.HadoopRDD", f"Input split: hdfs://{self._address()}:9000/pjhe/logs/2kSOSP.log:{self._number(1, 9999)}+7292"),
            ]
        )
        return f"17/06/{self._number(1, 28):02d} {self._clock()} {self._one('INFO', 'WARN', 'ERROR')} {component}: {text}"

    def _android(self) -> str:
        component, text = self._random.choice(
            [
                (
                    "WindowManager",
                    "printFreezingDisplayLogsopening app wtoken = AppWindowToken{9f4ef63 token=Token{a64f992}}, drawn= false",
                ),
                (
                    "PowerManagerService",
                    f'acquire lock={self._number(1, 10**9)}, flags=0x1, tag="View Lock", name=com.android.systemui, ws=null',
                ),
                ("AudioManager  ", "getRingerModeExternal(com.android.systemui) = 0"),
                ("chatty", "uid=1000(system) expire 10 lines"),
            ]
        )
        when = f"03-{self._number(1, 28):02d} {self._clock()}.{self._number(0, 999):03d}"
        return f"{when} {self._number(1, 9999):5d} {self._number(1, 9999):5d} {self._one(*'VDIWEF')} {component}: {text}"
