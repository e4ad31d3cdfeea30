"""The Java client of Kafka Connect that AKHQ uses, kafka-connect-client by SourceLab (Maven Central), called from here."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from benchmarks.connect_jars import class_path as connect_class_path
from benchmarks.connect_jars import sourcelab_jar
from copycat_agent.maven import java, pyspark_jars

if TYPE_CHECKING:
    from collections.abc import Mapping

_HTTP = ("httpclient-4*.jar", "httpcore-4*.jar", "jcl-over-slf4j-*.jar", "commons-codec-*.jar", "slf4j-api-*.jar")
"""Of PySpark's jars; its Jackson is too new for the client, Connect's is not."""
_ENDED_SECONDS = 30.0


def class_path() -> str:
    """The client with what it needs, Connect's Jackson among it. Fetched once."""
    connect = connect_class_path().split(os.pathsep)
    jackson = (jar for jar in connect if Path(jar).name.startswith(("jackson-core-", "jackson-databind-", "jackson-annotations-")))
    return os.pathsep.join(map(str, (sourcelab_jar(), *jackson, *pyspark_jars(*_HTTP))))


class JavaClients:
    """A JVM for such clients; use as a context manager."""

    def __enter__(self) -> Self:
        jar = str(pyspark_jars("py4j-*.jar")[0])
        port, token, self._process = launch_gateway(
            jarpath=jar,
            classpath=class_path(),
            javaopts=["-Xmx128m"],
            java_path=java(),
            die_on_exit=True,
            enable_auth=True,
            return_proc=True,
        )
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._gateway.shutdown()
        finally:
            self._process.stdin.close()  # it ends with that
            self._process.wait(_ENDED_SECONDS)

    def client(self, address: str, user: str, password: str) -> JavaClient:
        """A client of the worker at HOST:PORT."""
        api = self._gateway.jvm.org.sourcelab.kafka.connect.apiclient
        client = api.KafkaConnectClient(api.Configuration(f"http://{address}").useBasicAuth(user, password))
        return JavaClient(api, client)


class JavaClient:
    """Calls its methods; what they return comes as JSON that Jackson makes of the client's own objects."""

    def __init__(self, api: Any, client: Any) -> None:
        self._api, self._client = api, client
        self._mapper = api.request.JacksonFactory.newInstance()

    def call(self, method: str, *arguments: Any) -> Any:
        """Py4JJavaError for what the client throws.

        Once a Spark session was started in this process, PySpark converts the errors of every gateway, and fails at it without a session.
        """
        try:
            return json.loads(self._mapper.writeValueAsString(getattr(self._client, method)(*arguments)))
        except Exception as error:
            if not isinstance(error, Py4JJavaError) and isinstance(error.__context__, Py4JJavaError):
                raise error.__context__ from None
            raise

    def add(self, name: str, config: Mapping[str, str]) -> Any:
        """`addConnector`."""
        return self.call("addConnector", self._api.request.dto.NewConnectorDefinition(name, dict(config)))

    def validate(self, kind: str, config: Mapping[str, str]) -> Any:
        """`validateConnectorPluginConfig`."""
        return self.call("validateConnectorPluginConfig", self._api.request.dto.ConnectorPluginConfigDefinition(kind, dict(config)))
