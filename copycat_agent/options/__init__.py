"""The options of a definition and of the agent file: frozen models, one field per option, without behaviour.

Only this package uses pydantic. Each source, format, transform and converter derives its own options from `Options` in its own file;
`definitions` combines them, so the loader, the JSON Schema and `explain` all come from these models. A field exists only when the option
works. Every field has a description: it is the reference documentation.
"""

from pydantic import AfterValidator as AfterValidator
from pydantic import BeforeValidator as BeforeValidator
from pydantic import Discriminator as Discriminator
from pydantic import Field as Field
from pydantic import PlainSerializer as PlainSerializer
from pydantic import PrivateAttr as PrivateAttr
from pydantic import SecretStr as SecretStr
from pydantic import SerializeAsAny as SerializeAsAny
from pydantic import Tag as Tag
from pydantic import TypeAdapter as TypeAdapter
from pydantic import ValidationError as ValidationError
from pydantic import ValidationInfo as ValidationInfo
from pydantic import WithJsonSchema as WithJsonSchema
from pydantic.fields import FieldInfo as FieldInfo

from copycat_agent.display import HIDDEN as HIDDEN
from copycat_agent.options.definition import *  # noqa: F403 - the package is what its modules define
from copycat_agent.options.kafka_access import *  # noqa: F403 - as above
from copycat_agent.options.values import *  # noqa: F403 - as above
