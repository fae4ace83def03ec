#!/bin/sh
# In the foreground, with a master process, as the official image starts it.
case $1 in
  haproxy) shift && exec haproxy -W -db "$@" ;;
  -*) exec haproxy -W -db "$@" ;;
  *) exec "$@" ;;
esac
