"""Rules for `kafka`, and the agent's own options, beyond the type of each: addresses, client settings, logins, transactions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from ipaddress import IPv6Address, ip_address

from copycat_agent.definitions.client_settings import ACCEPTED, READING, check_name, check_value
from copycat_agent.definitions.models import Loc
from copycat_agent.definitions.options_reader import Reader
from copycat_agent.display import is_secret_name
from copycat_agent.oauth import token_problems
from copycat_agent.options import (
    ApiConnectOptions,
    ApiOptions,
    DeliveryOptions,
    KafkaOptions,
    OauthOptions,
    SecurityOptions,
    SparkOptions,
    format_duration,
)

_MODULES = {"msk-iam": "aws_msk_iam_sasl_signer", "sql": "pandas"}
"""Extra -> a module that only this extra installs."""


def lacking(extra: str) -> tuple[str, str] | None:
    """Returns what is missing and the command that installs it, None if the extra is installed. Imports nothing."""
    module = _MODULES[extra]
    if find_spec(module) is not None:
        return None
    return f"the Python package {module} is not installed", f"pip install 'copycat-agent[{extra}]'"


def under(defaults: KafkaOptions, own: KafkaOptions) -> KafkaOptions:
    """Returns `own` with `defaults` for options that it does not set: option by option, `security` and `client` key by key.

    An option that is given as null counts as set: `create_topics: null` turns the agent's off.
    """
    said = {name: getattr(own, name) for name in own.model_fields_set}
    if "client" in said:
        said["client"] = {**defaults.client, **own.client}
    if "security" in said:
        said["security"] = _security_under(defaults.security, own.security)
    merged = KafkaOptions(**{name: getattr(defaults, name) for name in KafkaOptions.model_fields} | said)
    merged.hide((own.hidden & own.model_fields_set) | (defaults.hidden - (own.model_fields_set - {"client"})))
    return merged


def _security_under(defaults: SecurityOptions, own: SecurityOptions) -> SecurityOptions:
    said = {name: getattr(own, name) for name in own.model_fields_set}
    merged = SecurityOptions(**{name: getattr(defaults, name) for name in SecurityOptions.model_fields} | said)
    merged.hide(own.hidden | (defaults.hidden - own.model_fields_set))
    return merged


_PORTS = range(1, 65536)
_HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62})(?:\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*\.?", re.ASCII)


def is_address(text: str) -> bool:
    """Returns whether `text` is HOST:PORT, with an IPv6 host in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) not in _PORTS:
        return False
    if host.startswith("[") and host.endswith("]"):
        try:
            IPv6Address(host[1:-1])
        except ValueError:
            return False
        return True
    return bool(_HOST.fullmatch(host))


def check_kafka(reader: Reader, own: KafkaOptions, effective: KafkaOptions, at: Loc = ("kafka",)) -> None:
    """Checks addresses, client settings, and that TLS and SASL options fit together, in the section `at`.

    `own` is what this file sets, `effective` includes the agent's defaults: a default may meet a requirement, and only what this file sets
    can be wrong here.
    """
    accepted = ACCEPTED if at == ("kafka",) else READING
    for number, address in enumerate(own.bootstrap_servers):
        if not is_address(address):
            reader.report((*at, "bootstrap_servers", number), "address", "needs HOST:PORT", "as in k1.example.test:9092 or [::1]:9092")
    for name, text in own.client.items():
        if wrong := check_name(name, accepted):
            reader.report((*at, "client", name), "kafka-client", *wrong, on_key=True)
        elif words := check_value(name, text):
            reader.report((*at, "client", name), "kafka-client", words)
    if "security" in own.model_fields_set:
        _check_security(reader, (*at, "security"), own.security.model_fields_set, effective.security)


def _check_security(reader: Reader, at: Loc, said: set[str], security: SecurityOptions) -> None:
    sasl, tls = security.protocol.startswith("SASL"), security.protocol.endswith("SSL")
    for name in sorted(said):
        if name in {"mechanism", "username", "password", "oauth"} and not sasl and getattr(security, name) is not None:
            _security(reader, at, name, f"{name} needs a SASL protocol, not {security.protocol}", "set protocol: SASL_SSL")
        if name in {"ca_file", "cert_file", "key_file", "key_password"} and not tls and getattr(security, name) is not None:
            _security(reader, at, name, f"{name} needs a TLS protocol, not {security.protocol}", "set protocol: SSL or SASL_SSL")
    if sasl:
        _check_sasl(reader, at, said, security)
    if tls:
        _check_tls(reader, at, security)


def _check_sasl(reader: Reader, at: Loc, said: set[str], security: SecurityOptions) -> None:
    mechanism = security.mechanism
    if mechanism is None:
        hint = "mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"
        _security(reader, at, "protocol", f"{security.protocol} needs a mechanism", hint)
    elif mechanism == "OAUTHBEARER":
        if security.oauth is None:
            _security(reader, at, "mechanism", "OAUTHBEARER needs oauth", "oauth: {token_url: ..., client_id: ..., client_secret: ...}")
        elif "oauth" in said:
            _check_oauth(reader, at, security.oauth)
        for name in sorted(said & {"username", "password"}):
            _security(reader, at, name, f"{name} is not used with OAUTHBEARER", "put client_id and client_secret under oauth")
    else:
        for name in ("username", "password"):
            if getattr(security, name) is None:
                hint = 'password: "${cred:NAME}" keeps it out of this file' if name == "password" else ""
                _security(reader, at, "mechanism", f"{mechanism} needs a {name}", hint)
        if "oauth" in said and security.oauth is not None:
            _security(reader, at, "oauth", f"oauth is not used with {mechanism}", "set mechanism: OAUTHBEARER")


def _check_oauth(reader: Reader, at: Loc, oauth: OauthOptions) -> None:
    loc = (*at, "oauth")
    for name, code, why, hint in token_problems(oauth):
        reader.report((*loc, name) if name else loc, code, why, hint)
    if oauth.method == "msk_iam" and (missing := lacking("msk-iam")):
        reader.report((*loc, "method"), "not-installed", *missing)


def _check_tls(reader: Reader, at: Loc, security: SecurityOptions) -> None:
    if security.cert_file is not None and security.key_file is None:
        _security(reader, at, "cert_file", "a client certificate needs its key", "key_file: PATH")
    if security.key_file is not None and security.cert_file is None:
        _security(reader, at, "key_file", "a client key needs its certificate", "cert_file: PATH")
    if security.key_password is not None and security.key_file is None:
        _security(reader, at, "key_password", "there is no key that this would open", "key_file: PATH")


def _security(reader: Reader, at: Loc, name: str, text: str, hint: str) -> None:
    reader.report((*at, name), "security", text, hint)


def check_spark(reader: Reader, spark: SparkOptions) -> None:
    """Refuses secrets in Spark settings, which show in command lines of JVMs.

    The exception is the one secret that Spark keeps out of them, without which nothing is encrypted on the way to a standalone cluster.
    """
    for name in spark.conf:
        loc: Loc = ("spark", "conf", name)
        if not name.startswith("spark."):
            reader.report(loc, "bad-value", "a Spark setting starts with spark.", on_key=True)
        elif name == "spark.authenticate.secret":  # passed to the driver's JVM in memory, to those of executors in their environment
            if loc not in reader.secret:
                reader.report(loc, "secret-in-public", "others may read this file", "refer to the secret: ${file:PATH}", on_key=True)
        elif is_secret_name(name) or loc in reader.secret:
            hint = "everyone on this host can read the command line of the JVM"
            reader.report(loc, "secret-in-public", "a secret cannot be given to Spark", hint, on_key=True)


def check_api(reader: Reader, api: ApiOptions) -> None:
    """Checks the addresses and files of `api`. Paths are absolute: the agent may be started in any directory."""
    if api.listen is not None and not is_address(api.listen):
        reader.report(("api", "listen"), "address", "needs HOST:PORT", "as in 127.0.0.1:9464, or 0.0.0.0:9464 for other hosts too")
    taken = {api.listen: "api.listen"}
    for part, example, port in (("connect", "127.0.0.1:8083", api.connect), ("page", "127.0.0.1:8090", api.page)):
        if port is not None:
            _check_guarded(reader, api, ("api", part, "listen"), port.listen, example, taken)
            taken.setdefault(port.listen, f"api.{part}.listen")
    if api.connect is not None:
        _check_writable(reader, api, api.connect)
    tls = (api.tls.cert_file, api.tls.key_file) if api.tls else (None, None)
    paths = {("socket",): api.socket, ("users",): api.users, ("tls", "cert_file"): tls[0], ("tls", "key_file"): tls[1]}
    for name, path in paths.items():
        if path is not None and not path.startswith("/"):
            example = "/run/copycat/agent.sock" if name == ("socket",) else "/etc/copycat/api.crt"
            reader.report(("api", *name), "bad-value", "needs an absolute path", f"as in {example}")


def _check_guarded(reader: Reader, api: ApiOptions, loc: Loc, listen: str, example: str, taken: Mapping[str | None, str]) -> None:
    """Checks the address of a port that shows more than health. `taken`: addresses of other ports, with the options that name them."""
    if not is_address(listen):
        reader.report(loc, "address", "needs HOST:PORT", f"as in {example}")
    elif listen in taken:
        reader.report(loc, "address", f"{taken[listen]} has this address already", "choose another port")
    elif not (api.tls and api.users) and _is_open(listen.rpartition(":")[0].strip("[]")):
        words = "other hosts reach this address, so it needs api.tls and api.users"
        reader.report(loc, "address", words, f"set both, or listen at {example}")


def _check_writable(reader: Reader, api: ApiOptions, connect: ApiConnectOptions) -> None:
    """Checks `writable`: without users nobody may change anything; without directories no client's connector could read a file."""
    loc: Loc = ("api", "connect")
    if connect.writable and not api.users:
        reader.report((*loc, "writable"), "bad-value", "needs api.users", "make a line with: copycat passwd NAME --role operate")
    if connect.writable is not bool(connect.roots):
        words = "needs writable: true" if connect.roots else "needs roots"
        name, hint = ("roots", "set it, or delete roots") if connect.roots else ("writable", "as in roots: [/var/log/app]")
        reader.report((*loc, name), "bad-value", words, hint)
    for number, root in enumerate(connect.roots):
        if not root.startswith("/") or ".." in root.split("/"):
            reader.report((*loc, "roots", number), "bad-value", "a directory must be an absolute path without ..", "as in /var/log/app")


def _is_open(host: str) -> bool:
    """Returns whether other hosts reach this address. False for a name: it is resolved when the agent listens."""
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return False


TRANSACTION_MS = 60_000
"""transaction.timeout.ms: the broker aborts what is open longer."""
MOST_MS = TRANSACTION_MS // 2
"""No request, and no batch, takes longer than half of it, so that the requests after it, and the commit, are in time, too."""

_WITHIN = ("message.timeout.ms", "delivery.timeout.ms", "socket.timeout.ms")
"""Time-outs of requests. `linger.ms` is not among them: librdkafka requires it below `message.timeout.ms` in any case."""


def check_positions(reader: Reader, delivery: DeliveryOptions, agent_id: str | None) -> None:
    """Checks that positions are kept where a definition says. Commands without agent.yaml do not know where that is."""
    if delivery.positions == "kafka" and agent_id is None and not reader.offline:
        reader.report(("delivery", "positions"), "positions", "this agent keeps positions on its disk", "set agent_id in agent.yaml")
    elif delivery.positions == "local" and agent_id is not None:
        reader.report(("delivery", "positions"), "positions", f"agent {agent_id} keeps all positions in Kafka", "leave positions out")


def check_exactly_once(reader: Reader, delivery: DeliveryOptions, own: KafkaOptions, effective: KafkaOptions) -> None:
    """Checks the time-outs. `own` is what this file sets of Kafka, `effective` includes the agent's defaults."""
    if delivery.guarantee != "exactly_once":
        return
    if delivery.max_batch_time * 1000 > MOST_MS:
        words = (
            f"with exactly_once a batch is one transaction, and the broker aborts those that take {format_duration(TRANSACTION_MS / 1000)}"
        )
        reader.report(("delivery", "max_batch_time"), "exactly-once", words, f"set {format_duration(MOST_MS / 1000)} or less")
    for name in _WITHIN:
        text = effective.client.get(name, "")
        if text and check_value(name, text) is None and not 0 < int(text) <= MOST_MS:
            _tell(reader, name, is_own=name in own.client)


def _tell(reader: Reader, name: str, *, is_own: bool) -> None:
    text = f"has to be from 1 to {MOST_MS} with exactly_once, so that no request outlives its transaction"
    if is_own:
        reader.report(("kafka", "client", name), "exactly-once", text, "lower it, or delete it: the agent has a good value of its own")
    else:
        hint = f"set it in this file, under kafka.client, or lower it in agent.yaml; {name} there holds for all connectors"
        reader.report(("delivery", "guarantee"), "exactly-once", f"{name} of agent.yaml {text}", hint)
