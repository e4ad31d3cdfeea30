"""Samples of well-known formats, made up: what programs of that kind write, a few lines each."""

from __future__ import annotations

_JAVA_TRACE = [
    "java.lang.IllegalStateException: pool is closed",
    "\tat com.example.shop.Pool.take(Pool.java:41)",
    "\tat com.example.shop.Api.order(Api.java:117)",
    "Caused by: java.io.IOException: broken pipe",
    "\t... 12 more",
]
_PYTHON_TRACE = [
    "Traceback (most recent call last):",
    '  File "/srv/shop/api.py", line 12, in order',
    "    pool.take()",
    "RuntimeError: pool is closed",
]


def _many(count: int, line: str) -> list[str]:
    """Lines with `{n}`, `{s}` (seconds, two digits) and `{ms}` filled in."""
    return [line.replace("{n}", str(n)).replace("{s}", f"{n % 60:02}").replace("{ms}", f"{n * 37 % 1000:03}") for n in range(count)]


SAMPLES: dict[str, list[str]] = {
    "nginx-combined": _many(
        30,
        '10.0.0.{n} - - [22/Nov/2026:05:00:{s} +0000] "GET /item/{n}?q=a HTTP/1.1" 200 5{n} "https://a.test/" "Mozilla/5.0 (X11; Linux)"',
    ),
    "apache-common": _many(30, '192.0.2.{n} - frank [22/Nov/2026:05:00:{s} +0100] "POST /form HTTP/1.0" 302 -'),
    "apache-vhost": _many(30, 'www.example.test:443 192.0.2.{n} - - [22/Nov/2026:05:00:{s} +0100] "GET / HTTP/1.1" 200 12 "-" "curl/8.5"'),
    "apache-error": _many(30, "[Sun Dec 04 04:47:{s} 2005] [error] mod_jk child workerEnv in error state {n}"),
    "apache24-error": _many(
        30,
        "[Sun Nov 22 05:00:{s}.123{ms} 2026] [core:error] [pid 35{n}:tid 43{n}] [client 192.0.2.7:5{n}] AH00128: no such file: /srv/{n}",
    ),
    "nginx-error": _many(30, '2026/11/22 05:00:{s} [error] 31#7: *{n} open() "/srv/www/a{n}" failed (2: No such file), client: 10.0.0.{n}'),
    "openssh": _many(
        30, "Dec 10 06:55:{s} LabSZ sshd[242{n}]: Failed password for invalid user webmaster from 192.0.2.{n} port 38926 ssh2"
    ),
    "linux": _many(30, "Jun 14 15:16:{s} combo kernel: audit(1149828963.{ms}:{n}): initialized"),
    "syslog-pri": _many(30, "<34>Nov 22 05:00:{s} web1 su[{n}]: 'su root' failed for lonvick on /dev/pts/{n}"),
    "syslog-5424": _many(30, '<165>1 2026-11-22T05:00:{s}.{ms}Z web1 shop {n} ID47 [meta@32473 seq="{n}"] order {n} was paid'),
    "syslog-iso": _many(30, "2026-11-22T05:00:{s}.{ms}123+00:00 web1 systemd[1]: Started session {n} of user root."),
    "json": _many(30, '{"ts":"2026-11-22T05:00:{s}.{ms}Z","level":"info","order":{n},"paid":true,"msg":"order {n} was paid"}'),
    "json-epoch": _many(30, '{"time":17954688{s}{ms},"level":"info","msg":"order {n} was paid"}'),
    "logfmt": _many(30, 'ts=2026-11-22T05:00:{s}.{ms}Z level=info caller=main.go:{n} msg="order was paid" order={n} took=0.{ms}'),
    "cri": _many(30, "2026-11-22T05:00:{s}.{ms}123456Z stdout F order {n} was paid"),
    "cri-json": _many(30, '2026-11-22T05:00:{s}.{ms}123456Z stdout F {"level":"info","order":{n},"msg":"paid"}'),
    "docker": _many(30, '{"log":"order {n} was paid\\n","stream":"stdout","time":"2026-11-22T05:00:{s}.{ms}123456Z"}'),
    "python": [
        *_many(20, "2026-11-22 05:00:{s},{ms} - shop.api - INFO - order {n} was paid"),
        "2026-11-22 05:00:59,001 - shop.api - ERROR - failed",
        *_PYTHON_TRACE,
        "2026-11-22 05:01:00,002 - shop.api - INFO - goes on",
    ],
    "python-basic": _many(30, "INFO:shop.api:order {n} was paid"),
    "logback": [
        *_many(20, "2026-11-22 05:00:{s}.{ms} [http-nio-{n}] INFO  com.example.shop.Api - order {n} was paid"),
        "2026-11-22 05:00:59.001 [main] ERROR com.example.shop.Api - failed",
        *_JAVA_TRACE,
        "2026-11-22 05:01:00.002 [main] WARN  com.example.shop.Api - goes on",
    ],
    "log4j": _many(30, "2026-11-22 05:00:{s},{ms} INFO  [main] com.example.shop.Api - order {n} was paid"),
    "spring": [
        *_many(20, "2026-11-22T05:00:{s}.{ms}Z  INFO 4711 --- [nio-8080-exec-{n}] c.example.shop.Api   : order {n} was paid"),
        "2026-11-22T05:00:59.001Z ERROR 4711 --- [           main] c.example.shop.Api                       : failed",
        *_JAVA_TRACE,
    ],
    "zookeeper": _many(
        30,
        "2015-07-29 17:41:{s},{ms} - INFO  [QuorumPeer[myid=1]/0:0:0:0:0:0:0:0:2181:FastLeaderElection@{n}] - Notification time out: 3200",
    ),
    "hdfs": _many(
        30,
        "0811{s} 203615 1{n} INFO dfs.DataNode$PacketResponder: PacketResponder {n} for block blk_38865049064139660 terminating".replace(
            "{s}", "09"
        ),
    ),
    "spark": _many(30, "17/06/09 20:10:{s} INFO executor.CoarseGrainedExecutorBackend: Got assigned task {n}"),
    "android": [
        "--------- beginning of main",
        *_many(30, "03-17 16:13:{s}.{ms}  1702  23{n} D WindowManager: printFreezingDisplayLogsopening app wtoken = AppWindowToken{n}"),
    ],
    "apache-scanned": [
        *_many(30, '10.0.0.{n} - - [22/Nov/2026:05:00:{s} +0000] "GET /a{n} HTTP/1.1" 200 5{n} "-" "say \\"hi\\""'),
        '10.0.0.1 - - [22/Nov/2026:05:01:00 +0000] "-" 408 - "-" "-"',
        r'10.0.0.1 - - [22/Nov/2026:05:01:00 +0000] "\x16\x03\"" 400 226 "-" "-"',
    ],
    "nginx-longer": _many(30, '10.0.0.{n} - - [22/Nov/2026:05:00:{s} +0000] "GET /a HTTP/1.1" 200 5{n} "-" "curl/8" "10.9.9.9" 0.0{n}'),
    "w3c": [
        "#Software: Microsoft Internet Information Services 10.0",
        "#Fields: date time s-ip cs-method cs-uri-stem cs(User-Agent) sc-status time-taken",
        *_many(30, "2026-11-22 05:00:{s} 10.0.0.1 GET /a{n} Mozilla/5.0+(Windows) 200 {n}"),
    ],
    "ecs": _many(30, '{"@timestamp":"2026-11-22T05:00:{s}.{ms}Z","log.level":"info","message":"order {n} was paid"}'),
    "mongodb": _many(30, '{"t":{"$date":"2026-11-22T05:00:{s}.{ms}+00:00"},"s":"I","msg":"order {n} was paid"}'),
    "log4j2-json": _many(30, '{"timeMillis":1795323600{ms},"level":"INFO","message":"order {n} was paid"}'),
    "kafka": _many(30, "[2026-11-22 05:00:{s},{ms}] INFO [Partition logs-{n} broker=1] Log loaded (kafka.cluster.Partition)"),
    "hadoop": _many(30, "2015-10-18 18:01:{s},{ms} INFO org.apache.hadoop.mapreduce.v2.app.MRAppMaster: Created MRAppMaster {n}"),
    "klog": _many(30, "I1122 05:00:{s}.{ms}123   12{n} server.go:{n}] Started kubelet"),
    "go": _many(30, "2026/11/22 05:00:{s} order {n} was paid"),
    "level": _many(30, "[2026-11-22 05:00:{s}] [INFO] order {n} was paid"),
    "csv": ["order_id,day,qty,price,paid", *_many(30, "a{n},2026-11-22,{n},1{n}.50,true")],
    "csv-semicolon": ["order_id;customer;qty", *_many(30, "a{n};Miller, John;{n}")],
    "tsv": ["id\tname\tamount", *_many(30, "{n}\tname {n}\t{n}.125")],
    "pairs": _many(30, "user=u{n}|action=login|took=1{n}"),
    "plain": _many(30, "the quick brown fox {n} jumps, over the lazy dog"),
}
