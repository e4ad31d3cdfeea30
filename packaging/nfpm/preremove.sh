#!/bin/sh
# Before the files go. .deb: `remove`, or `upgrade` and the new version; .rpm: 0 = the last version goes, 1 = an upgrade.
set -e
case "$1" in
remove | 0)
    if [ -d /run/systemd/system ]; then
        systemctl stop copycat.service
    fi
    systemctl disable copycat.service >/dev/null 2>&1 || true
    ;;
esac
