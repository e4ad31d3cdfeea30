"""What object stores say when something is wrong, as kinds of OSError with words that may be shown."""

from __future__ import annotations

import pyarrow as pa
import pytest

from copycat_agent.sources.files.reading.remote_objects import translated

KEY = "When getting information for key 'logs/secret-name' in bucket 'bucket': "


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (FileNotFoundError(2, "Path does not exist 'bucket/a'"), FileNotFoundError, "no such file"),
        (OSError(f"{KEY}AWS Error NO_SUCH_BUCKET during ListObjectsV2 operation: gone"), FileNotFoundError, "no such bucket"),
        (OSError(f"{KEY}AWS Error ACCESS_DENIED during HeadObject operation: No response body."), PermissionError, "ACCESS_DENIED"),
        (OSError(f"{KEY}AWS Error INVALID_ACCESS_KEY_ID during ListObjectsV2 operation: x"), PermissionError, "INVALID_ACCESS_KEY_ID"),
        (OSError(f"{KEY}AWS Error UNKNOWN (HTTP status 403) during ListObjectsV2 operation: Forbidden"), PermissionError, "403"),
        (OSError(f"{KEY}AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7"), OSError, "NETWORK_CONNECTION"),
        (OSError(f"{KEY}AWS Error SLOW_DOWN during GetObject operation: x"), OSError, "SLOW_DOWN during GetObject"),
        (pa.ArrowInvalid("Unexpected query parameter in S3 URI: 'regon'"), OSError, "regon"),
        (OSError("Unable to load libjvm\nsecond line"), OSError, "Unable to load libjvm"),
    ],
)
def test_each_trouble_is_of_its_kind(error: Exception, kind: type[OSError], words: str) -> None:
    found = translated(error)
    assert type(found) is kind
    said = str(found.strerror)
    assert words in said
    assert "\n" not in said
    assert "secret-name" not in said
