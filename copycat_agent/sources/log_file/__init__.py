"""Source `log_file`: files that grow, are rotated, cut and deleted. This page is the map of the package.

State. A saved offset (a *row*) belongs to one generation of one file: identity (device, inode, birth) and how often it was begun anew. A
row is either of a file that is followed, or *unfollowed* (`unfollowed_partitions`): no file is followed under it, whether it exists or
not. An unfollowed row may be a *previous generation* (its file was cut or rewritten, and does not hold those bytes any more), and it may
have an *unclaimed range*: bytes that were known and not read, which some other file may hold. Rows of files that are gone for long are
forgotten (`offset_expiry`).

A followed file is a `TrackedFile` (`tracked`; its part that does no file access is `KnownFile`). Its state is a handful of frozen values
(`file_state`), which only its own methods replace:

    matched    a pattern finds it                              set by a scan (`log_catalog`)
    draining   no pattern finds it; read to its end            set by a scan, ended by `file_closer`
    dropped    it is not followed; its row is unfollowed       `FollowedFiles.remove`
    unjudged   it was just met and may continue another file   set and ended by `succession.newcomers`; it is not read
    waiting    an older file of its log goes first             `rotation`, until that one is read up to a barrier
    in flight  a task reads it                                 `file_planner`, until `LogFileSource.finish`

A scan, `LogFileSource.scan`, works in this order; it collects its findings in one `Changes`, which is saved before anything that follows
from it is read:

 1. `LogCatalog.scan` lists what the patterns find. A known file is observed: renamed, grown, cut, or no longer what was read, and then
    its next generation begins at byte 0 (`begin_anew`) and its old row becomes a previous generation. An unknown one is met
    (`file_intake`): it is recognised by an unfollowed row (`UnfollowedPartitions.recall`), or begins where `beginning.start` says.
 2. Files that no pattern finds any more drain, through their open descriptors. Files that left while they were not open are searched for
    under other names (`succession.unclaimed.UnclaimedSearch`).
 3. `LogCatalog.judge` decides on newcomers: `succession.newcomers` and `archives` gather evidence, the pure `succession.rules` interpret
    it, and the newcomer continues a row, is a file of its own, or waits for the next scan. Files of a log that came and went between
    two scans are found in the directory (`succession.missed_rotations`).
 4. Only then are unclaimed ranges decided on (`succession.unclaimed`): some file outside the patterns has them, or they are lost and
    counted.
 5. `FileCloser.follow` closes files that are drained.

Then `FilePlanner.plan` makes splits of the files that may be read, older files first; a task reads them; `LogFileSource.changes_of` turns
results into offsets to save, and `finish` takes them over once they are saved.

A rotation under exactly_once: `mv app.log app.log.1`, and the program opens a new `app.log`.
 - A task may be reading the old file: by descriptor, so the rename takes nothing away, and its transaction commits records and offset
   together.
 - The next scan finds a known inode under another name. If `app.log.1` matches, the file is renamed, and its row gets the new name with
   its next progress; else it drains, and its row gets its present name and `gone_ms`. Nothing is sent again.
 - The new inode is met at byte 0 and gets a row. The name is that of a live log, so it is no copy: it is read unless it is still empty, or
   a batch of the old file, which no pattern finds any more, is in flight: then the next scan decides. `RotationOrder` lets it wait for
   the complete records that the old one had when the new one got its first bytes; it does not wait for an unfinished last line.
 - The planner puts both into one batch if that reaches far enough; `Split.after` makes the task send nothing of the new one while
   something of the old one is left. So the order holds in the topic, too, whatever part of the batch the transaction commits.
 - A crash anywhere leaves rows that were committed with their records. The next start finds both inodes by
   `UnfollowedPartitions.recall`, or the old one by search, and continues after the last committed byte.

With `copytruncate`, `app.log` is copied to `app.log.1` and cut. The copy is a newcomer with a rotated name, and is held back: while the
original is unchanged it "may be about to be cut"; if nothing is cut for some seconds it is a file of its own. What a task read before the
cut counts, if it was still there when it was read (`Stream.was_still`); otherwise its batch comes back as `changed`. The next scan finds
the original cut, begins its next generation, makes its row a previous generation, and holds the original back, too. The row is now an
`UnfollowedRow` for the copy, which holds the bytes before the offset while the original does not: the copy continues there (`rules.claim`),
in its own row, and is read before the new generation. All of this is saved in one transaction; after a crash before it both files are
unchanged, and the next start decides anew. A copy that no pattern finds is searched for (`succession.unclaimed`). With exactly_once, rows
that a scan has changed are in the store at once and in Kafka with the next batch (`LanePlan.driver_rows`), or by a transaction of their own
if nothing is sent.
"""
