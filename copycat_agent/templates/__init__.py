r"""Templates: Python format strings over one record, such as `"{client}"`, `"{user.id}"` or `"{@timestamp:%Y-%m-%d}"`.

`compile_template` checks a text once, `Template.bind` fixes what is constant for a split and returns a closure for the hot
path. A name is a dotted path of dict keys, never an attribute or an index, so a template reaches nothing but the record.
While a record's value is still bytes its only field is `message`: the line, decoded as UTF-8 with U+FFFD for what is not.

Names that begin with `@` are metadata:

- `@file.path` `@file.name` `@file.dir`: bytes of a name that are not UTF-8 appear as backslash escapes (`caf\xe9.log`)
- `@file.inode` `@host` `@connector`
- `@offset`: the record's first byte; `@record.number`: counts from 1 within the file
- `@read_time`: when the template is rendered; `@timestamp`: the record's event time, or the read time when it has none.
  UTC, RFC 3339 with milliseconds, or by the strftime directives after the colon
"""

from __future__ import annotations

from copycat_agent.templates.fields import MISSING, RecordLike, compile_path, scalar_text
from copycat_agent.templates.template import METADATA, SplitMeta, Template, compile_template, time_text

__all__ = ["METADATA", "MISSING", "RecordLike", "SplitMeta", "Template", "compile_path", "compile_template", "scalar_text", "time_text"]
