"""How the agent reaches a Kafka cluster and a schema registry: addresses, TLS, logins, tokens, client settings."""

from __future__ import annotations

from typing import Literal

from pydantic import (
    Field,
)

from copycat_agent.options.values import Duration, Options, ScalarText, Secret


class BasicAuthOptions(Options):
    """User and password for HTTP."""

    username: str = Field(description="User.")
    password: Secret = Field(description="Password.")


class AssertionOptions(Options):
    """A signed statement of who asks for a token, in place of a secret (RFC 7523): one from a file, or one that the agent signs."""

    file: str | None = Field(
        None, description="File that holds one, read anew for each token, such as a projected service account token of Kubernetes."
    )
    key_file: str | None = Field(None, description="Private key (PEM) with which the agent signs one.")
    key_password: Secret | None = Field(None, description="Password of the private key.")
    algorithm: Literal["RS256", "ES256"] = Field("RS256", description="How it is signed.")
    issuer: str | None = Field(None, description="Claim iss, often the client id.")
    subject: str | None = Field(None, description="Claim sub.")
    audience: str | None = Field(None, description="Claim aud. Default: the token endpoint.")
    lifetime: Duration = Field(300.0, ge=10, le=86400, description="How long one is good.")


class TokenOptions(Options):
    """Where an access token comes from."""

    method: str = Field("oidc", description="How it is got.")
    token_url: str | None = Field(
        None, description="Token endpoint, https:// or http://. Needed except for azure_imds, which has a default."
    )
    client_id: str | None = Field(None, description="Client id; with azure_imds that of a user-assigned identity.")
    client_secret: Secret | None = Field(None, description="Client secret.")
    scope: str | None = Field(None, description="Scope to ask for.")
    assertion: AssertionOptions | None = Field(None, description="With jwt_bearer: what stands in place of a secret.")
    resource: str | None = Field(None, min_length=1, description="With azure_imds: what the token is for, its App ID URI.")
    ca_file: str | None = Field(
        None, description="CA certificates (PEM) that the token endpoint is checked against. Default: the system's."
    )


class RegistryOauthOptions(TokenOptions):
    """OAuth 2 for a schema registry. A process asks for one token, and uses it until it is about to expire."""

    method: Literal["oidc", "jwt_bearer", "azure_imds"] = Field("oidc", description="As of kafka.security.oauth.")
    logical_cluster: str | None = Field(None, min_length=1, description="Logical cluster of a registry in Confluent Cloud.")
    identity_pool: str | None = Field(None, min_length=1, description="Identity pool in Confluent Cloud.")


class SchemaRegistryOptions(Options):
    """The schema registry of converters that write schemas."""

    url: str = Field(description="Address, http:// or https://. User and password do not belong in it.")
    basic_auth: BasicAuthOptions | None = Field(None, description="User and password.")
    oauth: RegistryOauthOptions | None = Field(None, description="OAuth, in place of user and password.")
    ca_file: str | None = Field(None, description="CA certificates (PEM) that the registry is checked against.")
    cert_file: str | None = Field(None, description="Client certificate (PEM).")
    key_file: str | None = Field(None, description="Client key (PEM).")
    key_password: Secret | None = Field(None, description="Password of the client key.")


class OauthOptions(TokenOptions):
    """OAuth 2 for SASL/OAUTHBEARER. A process asks for one token, which all its clients use until it is about to expire."""

    method: Literal["oidc", "jwt_bearer", "azure_imds", "msk_iam"] = Field(
        "oidc",
        description="oidc: client_id and client_secret (client credentials). jwt_bearer: an assertion in place of a secret. azure_imds: "
        "the managed identity of an Azure host. msk_iam: Amazon MSK, with credentials that AWS's libraries find; needs the extra msk-iam.",
    )
    extensions: dict[str, ScalarText] = Field(
        {},
        description="SASL extensions for the broker, such as logicalCluster and identityPoolId of Confluent Cloud. Names are letters only.",
    )
    region: str | None = Field(None, min_length=1, description="With msk_iam: AWS region of the cluster.")
    role_arn: str | None = Field(None, min_length=1, description="With msk_iam: IAM role to assume. Default: the credentials as they are.")


class SecurityOptions(Options):
    """TLS and SASL towards the brokers."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field("PLAINTEXT", description="Security protocol.")
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = Field(None, description="SASL mechanism.")
    username: str | None = Field(None, description="SASL user.")
    password: Secret | None = Field(None, description="SASL password.")
    ca_file: str | None = Field(None, description="CA certificates (PEM) that the brokers are checked against.")
    cert_file: str | None = Field(None, description="Client certificate (PEM).")
    key_file: str | None = Field(None, description="Client key (PEM).")
    key_password: Secret | None = Field(None, description="Password of the client key.")
    oauth: OauthOptions | None = Field(None, description="How a token for OAUTHBEARER is got.")


class TopicOptions(Options):
    """How a missing topic is created."""

    partitions: int = Field(1, ge=1, description="Partitions.")
    replication_factor: int = Field(-1, ge=-1, description="Replicas; -1 is the broker's default.")
    config: dict[str, ScalarText] = Field({}, description="Topic configuration.")


class KafkaOptions(Options):
    """The Kafka cluster. In a definition it overrides what agent.yaml says, option by option."""

    bootstrap_servers: tuple[str, ...] = Field((), description="Broker addresses, HOST:PORT.")
    security: SecurityOptions = Field(SecurityOptions(), description="TLS and SASL.")
    client: dict[str, ScalarText] = Field({}, description="Further librdkafka settings by their names.")
    create_topics: TopicOptions | None = Field(None, description="Create missing topics this way; off when absent.")
