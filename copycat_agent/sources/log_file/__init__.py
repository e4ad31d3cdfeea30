"""Source `log_file`: files that grow, are rotated, cut and deleted. This page is the map of the package.

What there is. A saved offset (a *row*) belongs to one generation of one file: identity (device, inode, birth) and how often it was begun
anew. A row is either of a file that is followed, or *unfollowed* (`unfollowed`): nobody follows its file, which may be there or not. An
unfollowed row may be a *previous generation* (its file was cut or rewritten, and holds those bytes no more), and it may have an *unclaimed
range*: bytes that were known and not read, which some other file may hold. Rows of files that are gone for long are
forgotten (`forgetting`).

A followed file is a `TrackedFile` (`tracked`; what it knows without looking is `KnownFile`). Its state is a handful of frozen values
(`file_state`), which only its own methods replace:

    matched    a pattern finds it                              set by a scan (`catalog`)
    draining   no pattern finds it; read to its end            set by a scan, ended by `endings`
    dropped    nobody follows it; its row is unfollowed        `Followed.remove`
    unjudged   it was just met and may continue another file   set and ended by `succession.newcomers`; it is not read
    waiting    an older file of its log goes first             `rotation`, until that one is read up to a barrier
    in flight  a task reads it                                 `planning`, until `LogFiles.finish`

A look, `LogFiles.scan`, in this order; what it finds goes into one `Changes`, which is saved before anything that follows from it is read:

 1. `Catalog.scan` lists what the patterns find. A known file is observed: renamed, grown, cut, or no longer what was read, and then
    its next generation begins at byte 0 (`begin_anew`) and its old row becomes a previous generation. An unknown one is met
    (`meeting`): it is recognised by an unfollowed row (`Unfollowed.recall`), or begins where `beginning.start` says.
 2. Files that no pattern finds any more drain, through the descriptor that is held. Rows whose files left while nobody held them are
    searched for under other names (`succession.unclaimed.Search`).
 3. `Catalog.judge` decides on newcomers: `succession.newcomers` and `archives` gather evidence, the pure `succession.rules` say what it
    means, and the newcomer goes on with a row, is a file of its own, or waits for the next look. Files of a log that came and went between
    two looks are found in the directory (`succession.missed`).
 4. Only then are unclaimed ranges decided on (`succession.unclaimed`): some file outside the patterns has them, or they are lost and
    counted.
 5. `Endings.follow` lets go of files that are drained.

Then `FilePlanner.plan` makes splits of what may be read, older files first; a task reads them; `LogFiles.changes_of` turns results into
offsets to save, and `finish` takes them over once they are saved.

A rotation under exactly_once: `mv app.log app.log.1`, and the program opens a new `app.log`.
 - A task may be reading the old file: by descriptor, so the rename takes nothing away, and its transaction commits records and offset
   together.
 - The next look finds a known inode under another name. If `app.log.1` matches, the file is renamed; else it drains. Its row stays what it
   is, and nothing is sent again.
 - The new inode is met at byte 0 and gets a row. The name is that of a live log, so it is no copy: it is read unless it is still empty, or
   a batch of the old file, which no pattern finds any more, is in flight: then the next look decides. `RotationOrder` lets it wait for
   the complete records that the old one had when the new one got its first bytes; an unfinished last line does not hold it up.
 - The planner puts both into one batch when one batch reaches so far; `Split.after` makes the task send nothing of the new one while
   something of the old one is left. So the order holds in the topic, too, whatever part of the batch the transaction commits.
 - A crash anywhere leaves rows that were committed with their records. The next start finds both inodes by `Unfollowed.recall`, or the
   old one by search, and goes on behind the last committed byte.

With `copytruncate`, `app.log` is copied to `app.log.1` and cut. The copy is a newcomer with a rotated name, and is held back: while the
original stands it "may be about to be cut"; when nothing is cut for some seconds it is a file of its own. What a task read before the cut
counts, if it was still there when it was read (`Stream.was_still`); otherwise its batch comes back as `changed`. The look after that finds
the original cut, begins its next generation, makes its row a previous generation, and holds the original back, too. The row is now an
`UnfollowedRow` for the copy: it holds the bytes before the offset and the original has them no more, so it goes on there (`rules.claim`),
in the row of the copy, and is read before the new generation. All of this is saved in one transaction; a crash before it leaves both files
as they were, and the next start decides anew. A copy that no pattern finds is searched for (`succession.unclaimed`). With exactly_once,
rows that a look has changed are in the store at once and in Kafka with the next batch (`LanePlan.driver_rows`), or by a transaction of
their own when nothing is sent.
"""
