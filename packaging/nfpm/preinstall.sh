#!/bin/sh
# Before the new files arrive, on first installations and upgrades, of .deb and .rpm. A running agent is stopped first (it settles
# what is in flight): its JVM must not read jars that are being replaced. The mark tells that it is to be started again.
set -e
if [ -d /run/systemd/system ] && systemctl is-active --quiet copycat.service; then
    touch /run/copycat-agent.restart
    systemctl stop copycat.service
fi
