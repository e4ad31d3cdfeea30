#!/bin/sh
# After the new files arrived. .deb: `configure` and the old version, if any; .rpm: 1 = first installation, 2 = upgrade.
# The service is enabled as the system's presets say, once, and is not started by the first installation.
set -e
if command -v systemd-sysusers >/dev/null; then
    systemd-sysusers copycat.conf
    systemd-tmpfiles --create copycat.conf || true
else # a container
    getent passwd copycat >/dev/null || useradd --system --user-group --home-dir /var/lib/copycat --shell /usr/sbin/nologin copycat
    install -d -m 0700 -o copycat -g copycat /var/lib/copycat /var/cache/copycat
    chgrp copycat /etc/copycat /etc/copycat/connectors.d /etc/copycat/agent.yaml
fi
case "$1:$2" in
configure: | 1:*)
    systemctl preset copycat.service >/dev/null 2>&1 || true
    ;;
esac
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
# An agent that runs is restarted, never stopped and started: a stop drops the deleted log files that systemd keeps open for it. Until
# then it goes on with what it has loaded. An .rpm restarts it when the whole transaction is over: the old version's files are still
# there now.
if [ "$1" = configure ] && [ -n "$2" ]; then
    systemctl try-restart copycat.service || true
fi
