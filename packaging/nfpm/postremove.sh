#!/bin/sh
# After the files went. Offsets stay, so that a later installation goes on where this one stopped; only `apt purge` deletes them.
# An .rpm has no purge: docs/install.md says what to delete. The user stays in any case: it may own files.
set -e
if [ "$1" = purge ]; then
    rm -rf /var/lib/copycat /var/cache/copycat
    rmdir /etc/copycat/connectors.d /etc/copycat 2>/dev/null || true # definitions somebody wrote are theirs
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
