"""What a definition must fulfil beyond the type of each option. Each rule reports to the `Reader` and raises nothing."""

from __future__ import annotations

import re
from datetime import datetime
from ipaddress import IPv6Address
from typing import TYPE_CHECKING

from copycat_agent.definitions.client_settings import check_name, check_value
from copycat_agent.definitions.extras import lacking
from copycat_agent.definitions.masking import is_secret_name
from copycat_agent.definitions.spool_rules import check_spool
from copycat_agent.formats import encoding_problem, split_problem
from copycat_agent.formats.records import FORMATS, build_format
from copycat_agent.oauth import token_problems

if TYPE_CHECKING:
    from copycat_agent.definitions.models import Loc
    from copycat_agent.definitions.reading import Reader
    from copycat_agent.options import (
        ApiOptions,
        DeliveryOptions,
        KafkaOptions,
        OauthOptions,
        RecordOptions,
        SecurityOptions,
        SourceOptions,
        SparkOptions,
    )

_PORTS = range(1, 65536)
_HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62})(?:\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*\.?", re.ASCII)


def is_address(text: str) -> bool:
    """Whether `text` is HOST:PORT, an IPv6 host in brackets."""
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


def check_source(reader: Reader, source: SourceOptions) -> None:
    """Globs are absolute, and `start_at` is a word or a time with its zone. Options that a source lacks are no matter."""
    include = getattr(source, "include", ())
    for number, glob in enumerate(include):
        if not glob.startswith("/"):
            reader.report(("source", "include", number), "bad-value", "a glob must be an absolute path", "start it with /")
    if "include" in type(source).model_fields and not include:
        reader.report(("source", "include"), "bad-value", "names no file", "list at least one path or glob")
    _check_symlink_roots(reader, source)
    _check_encoding(reader, source)
    check_format(reader, source)
    check_spool(reader, source)
    start_at = getattr(source, "start_at", None)
    if isinstance(start_at, str) and start_at not in {"beginning", "end"} and not _is_rfc3339(start_at):
        reader.report(("source", "start_at"), "bad-value", "needs beginning, end, or a time", 'as in "2026-11-21T05:00:00Z"')


def _check_symlink_roots(reader: Reader, source: SourceOptions) -> None:
    roots = getattr(source, "symlink_roots", ())
    for number, root in enumerate(roots):
        if not root.startswith("/"):
            reader.report(("source", "symlink_roots", number), "bad-value", "a directory must be an absolute path", "start it with /")
    if roots and not getattr(source, "follow_symlinks", False):
        hint = "set follow_symlinks: true, or delete symlink_roots"
        reader.report(("source", "symlink_roots"), "bad-value", "has no effect while no links are followed", hint, on_key=True)


def _check_encoding(reader: Reader, source: SourceOptions) -> None:
    encoding, line = getattr(source, "encoding", None), getattr(source, "line", None)
    if isinstance(encoding, str) and line is not None:
        problem = encoding_problem(encoding, line.delimiter) or (split_problem(encoding) if _splits(source) else None)
        if problem:
            reader.report(("source", "encoding"), "encoding", *problem)


def _splits(source: SourceOptions) -> bool:
    """Whether records over the limit go in parts: of several lines, their own option says so."""
    limits = getattr(source, "multiline", None) or getattr(source, "line", None)
    return getattr(limits, "on_too_long", "") == "split"


def check_format(reader: Reader, source: SourceOptions) -> None:
    """What the options of a format cannot mean together."""
    options = getattr(source, "format", None)
    kind = FORMATS.get(getattr(options, "type", ""))
    for place, why, hint in kind.problems(options) if kind else ():
        reader.report(("source", "format", *place), "format", why, hint)


def check_ordering(reader: Reader, source: SourceOptions, delivery: DeliveryOptions, record: RecordOptions) -> None:
    """Only whole files can be read in any order, and nobody counts the records before a range of one."""
    if delivery.ordering == "file":
        return
    loc: Loc = ("delivery", "ordering")
    if source.type == "log_file":
        hint = "delete it; ordering: none is for source spool_dir"
        reader.report(loc, "bad-value", "a log file is always read in order, while it grows", hint)
    elif not _counts_records(source) and any(
        "@record.number" in text for text in (record.topic, record.key or "", *record.headers.values())
    ):
        hint = "set ordering: file, or take {@offset}, which is the file's own"
        reader.report(loc, "bad-value", "@record.number would count within a range of the file only", hint)


def _counts_records(source: SourceOptions) -> bool:
    """Whether its format knows the number of each record wherever it begins to read."""
    form = getattr(source, "format", None)
    return form is not None and build_format(form).counts_records


def _is_rfc3339(text: str) -> bool:
    try:
        return re.match(r"\d{4}-\d\d-\d\d[Tt ]", text) is not None and datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def check_kafka(reader: Reader, own: KafkaOptions, effective: KafkaOptions) -> None:
    """Addresses, client settings, and that TLS and SASL options fit together.

    `own` is what this file says, `effective` what holds with the agent's defaults under it: a need may be met by a default,
    and only what this file says can be wrong here.
    """
    for number, address in enumerate(own.bootstrap_servers):
        if not is_address(address):
            reader.report(("kafka", "bootstrap_servers", number), "address", "needs HOST:PORT", "as in k1.example.test:9092 or [::1]:9092")
    for name, text in own.client.items():
        if wrong := check_name(name):
            reader.report(("kafka", "client", name), "kafka-client", *wrong, on_key=True)
        elif words := check_value(name, text):
            reader.report(("kafka", "client", name), "kafka-client", words)
    if "security" in own.model_fields_set:
        _check_security(reader, own.security.model_fields_set, effective.security)


def _check_security(reader: Reader, said: set[str], security: SecurityOptions) -> None:
    sasl, tls = security.protocol.startswith("SASL"), security.protocol.endswith("SSL")
    for name in sorted(said):
        if name in {"mechanism", "username", "password", "oauth"} and not sasl and getattr(security, name) is not None:
            _security(reader, name, f"{name} needs a SASL protocol, not {security.protocol}", "set protocol: SASL_SSL")
        if name in {"ca_file", "cert_file", "key_file", "key_password"} and not tls and getattr(security, name) is not None:
            _security(reader, name, f"{name} needs a TLS protocol, not {security.protocol}", "set protocol: SSL or SASL_SSL")
    if sasl:
        _check_sasl(reader, said, security)
    if tls:
        _check_tls(reader, security)


def _check_sasl(reader: Reader, said: set[str], security: SecurityOptions) -> None:
    mechanism = security.mechanism
    if mechanism is None:
        hint = "mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"
        _security(reader, "protocol", f"{security.protocol} needs a mechanism", hint)
    elif mechanism == "OAUTHBEARER":
        if security.oauth is None:
            _security(reader, "mechanism", "OAUTHBEARER needs oauth", "oauth: {token_url: ..., client_id: ..., client_secret: ...}")
        elif "oauth" in said:
            _check_oauth(reader, security.oauth)
        for name in sorted(said & {"username", "password"}):
            _security(reader, name, f"{name} is not used with OAUTHBEARER", "put client_id and client_secret under oauth")
    else:
        for name in ("username", "password"):
            if getattr(security, name) is None:
                hint = 'password: "${cred:NAME}" keeps it out of this file' if name == "password" else ""
                _security(reader, "mechanism", f"{mechanism} needs a {name}", hint)
        if "oauth" in said and security.oauth is not None:
            _security(reader, "oauth", f"oauth is not used with {mechanism}", "set mechanism: OAUTHBEARER")


def _check_oauth(reader: Reader, oauth: OauthOptions) -> None:
    loc = ("kafka", "security", "oauth")
    for name, code, why, hint in token_problems(oauth):
        reader.report((*loc, name) if name else loc, code, why, hint)
    if oauth.method == "msk_iam" and (missing := lacking("msk-iam")):
        reader.report((*loc, "method"), "not-installed", *missing)


def _check_tls(reader: Reader, security: SecurityOptions) -> None:
    if security.cert_file is not None and security.key_file is None:
        _security(reader, "cert_file", "a client certificate needs its key", "key_file: PATH")
    if security.key_file is not None and security.cert_file is None:
        _security(reader, "key_file", "a client key needs its certificate", "cert_file: PATH")
    if security.key_password is not None and security.key_file is None:
        _security(reader, "key_password", "there is no key that this would open", "key_file: PATH")


def _security(reader: Reader, name: str, text: str, hint: str) -> None:
    reader.report(("kafka", "security", name), "security", text, hint)


def check_spark(reader: Reader, spark: SparkOptions) -> None:
    """Spark settings show in the JVM's command line: nothing secret may stand there."""
    for name in spark.conf:
        loc: Loc = ("spark", "conf", name)
        if not name.startswith("spark."):
            reader.report(loc, "bad-value", "a Spark setting starts with spark.", on_key=True)
        elif is_secret_name(name) or loc in reader.secret:
            hint = "everyone on this host can read the command line of the JVM"
            reader.report(loc, "secret-in-public", "a secret cannot be given to Spark", hint, on_key=True)


def check_api(reader: Reader, api: ApiOptions) -> None:
    """Where the agent answers, and files of the port: who starts the agent may be in any directory."""
    if api.listen is not None and not is_address(api.listen):
        reader.report(("api", "listen"), "address", "needs HOST:PORT", "as in 127.0.0.1:9464, or 0.0.0.0:9464 for other hosts too")
    tls = (api.tls.cert_file, api.tls.key_file) if api.tls else (None, None)
    paths = {("socket",): api.socket, ("users",): api.users, ("tls", "cert_file"): tls[0], ("tls", "key_file"): tls[1]}
    for name, path in paths.items():
        if path is not None and not path.startswith("/"):
            example = "/run/copycat/agent.sock" if name == ("socket",) else "/etc/copycat/api.crt"
            reader.report(("api", *name), "bad-value", "needs an absolute path", f"as in {example}")
